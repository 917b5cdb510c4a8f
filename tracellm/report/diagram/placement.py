"""Putting the parts of a story in their places: between the script's calls, into one that waits, below a coroutine."""

from collections.abc import Mapping

from tracellm.report.diagram.lanes import Lanes
from tracellm.report.diagram.ordering import Moment
from tracellm.report.tree.nodes import DEEPEST, Node
from tracellm.trace import names
from tracellm.trace.model import Span, Trace

__all__ = ["Teller"]

_RECENT = 50
"""Of so many parts told last, one may be the call in which the next was started."""
_FARTHEST = 1000
"""Of so many calls above a part."""

_COROUTINES = ("coroutine", "async_generator")


class Teller:
    """Puts parts into the trees where they are told."""

    def __init__(self, trace: Trace, lanes: Lanes, when: dict[str, Moment], callers: Mapping[str, Span | None]) -> None:
        self._trace = trace
        self._callers = callers
        self._lanes = lanes
        self._when = when

    def place(self, top: Node, parts: list[Node]) -> None:
        """Put parts, in the order told, among the calls of `top`, or into those of these that wait."""
        todo = [(top, parts)]
        while todo:
            node, coming = todo.pop()
            todo += self._merge(node, coming)

    def _merge(self, node: Node, parts: list[Node]) -> list[tuple[Node, list[Node]]]:
        told: list[Node] = []
        inside: dict[int, tuple[Node, list[Node]]] = {}
        own = iter(node.children)
        upcoming = next(own, None)
        host: Node | None = None
        for part in parts:
            moment = self._when[part.span.span_id]
            while upcoming is not None and upcoming.span.start_ns <= moment.time_ns:
                told.append(upcoming)
                host = upcoming if self._lanes.is_host(upcoming.span) else None
                upcoming = next(own, None)
            into = next(
                (
                    one
                    for one in (*self._ancestors(part, told), *([host] if host else []))
                    if one.span.start_ns <= moment.time_ns < max(one.span.end_ns, one.span.start_ns + 1)
                ),
                None,
            )
            if into is None:
                told.append(part)
            else:
                inside.setdefault(id(into), (into, []))[1].append(part)
        if upcoming is not None:
            told += [upcoming, *own]
        node.replace_children(self._gathered(told))
        return list(inside.values())

    def _gathered(self, told: list[Node]) -> list[Node]:
        """What a coroutine did before anything else happened stands below it, so that requests that are alike fold."""
        found: list[Node] = []
        running: list[Node] = []  # coroutines, each called by the one before it, in the last of which we are
        for node in told:
            caller = self._callers.get(node.span.span_id)
            while running and (caller is None or running[-1].span is not caller):
                running.pop()
            if running:
                running[-1].add(node)
            else:
                found.append(node)
            if node.span.attributes.get(names.CALL_KIND) in _COROUTINES and len(running) < DEEPEST:
                running.append(node)
        return found

    def _ancestors(self, part: Node, told: list[Node]) -> list[Node]:
        """Of the parts told before, the one in whose call this one was started."""
        recent = {one.span.span_id: one for one in told[-_RECENT:] if one.spans and self._lanes.is_host(one.span)}
        if not recent:
            return []
        found: list[str] = []
        above = self._trace.parent(part.span)
        for _ in range(_FARTHEST):
            if above is None:
                break
            if above.span_id in recent:
                found.append(above.span_id)
            above = self._trace.parent(above)
        # The one told last.
        return [one for id, one in reversed(recent.items()) if id in found][:1]
