"""Placement of parts in the trees: between the script's calls, into one that waits, below a coroutine."""

from collections.abc import Mapping

from tracellm.report.diagram.lanes import Lanes
from tracellm.report.diagram.ordering import Moment
from tracellm.report.tree.nodes import DEEPEST, Node
from tracellm.trace import names
from tracellm.trace.model import Span, Trace

__all__ = ["place_parts"]

_RECENT = 50
"""Among so many parts placed last may be the call in which the next was started."""
_FARTHEST = 1000
"""The most calls above a part that are looked at."""

_COROUTINES = ("coroutine", "async_generator")


def place_parts(
    top: Node,
    parts: list[Node],
    trace: Trace,
    lanes: Lanes,
    when: Mapping[str, Moment],
    callers: Mapping[str, Span | None],
) -> None:
    """Put parts, in their order, among the calls of `top`, or into those of these that wait.

    Args:
        top: the tree, which is changed.
        parts: each a tree of its own.
        trace: the recording.
        lanes: the lane of each call.
        when: the moment of each part, by its span id.
        callers: the call that made each part, by the part's span id.
    """
    placement = _Placement(trace, lanes, when, callers)
    todo = [(top, parts)]
    while todo:
        node, coming = todo.pop()
        todo += placement.merge(node, coming)


class _Placement:
    def __init__(
        self, trace: Trace, lanes: Lanes, when: Mapping[str, Moment], callers: Mapping[str, Span | None]
    ) -> None:
        self._trace = trace
        self._callers = callers
        self._lanes = lanes
        self._when = when

    def merge(self, node: Node, parts: list[Node]) -> list[tuple[Node, list[Node]]]:
        """Put parts among a node's calls; gives the calls that some belong in, with these."""
        placed: list[Node] = []
        inside: dict[int, tuple[Node, list[Node]]] = {}
        own = iter(node.children)
        upcoming = next(own, None)
        host: Node | None = None
        for part in parts:
            moment = self._when[part.span.span_id]
            while upcoming is not None and upcoming.span.start_ns <= moment.time_ns:
                placed.append(upcoming)
                host = upcoming if self._lanes.is_host(upcoming.span) else None
                upcoming = next(own, None)
            into = next(
                (
                    one
                    for one in (*self._ancestors(part, placed), *([host] if host else []))
                    if one.span.start_ns <= moment.time_ns < max(one.span.end_ns, one.span.start_ns + 1)
                ),
                None,
            )
            if into is None:
                placed.append(part)
            else:
                inside.setdefault(id(into), (into, []))[1].append(part)
        if upcoming is not None:
            placed += [upcoming, *own]
        node.replace_children(self._gathered(placed))
        return list(inside.values())

    def _gathered(self, placed: list[Node]) -> list[Node]:
        """Put what a coroutine did before anything else happened below it, so that requests that are alike fold."""
        found: list[Node] = []
        running: list[Node] = []  # coroutines, each called by the one before it, in the last of which we are
        for node in placed:
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

    def _ancestors(self, part: Node, placed: list[Node]) -> list[Node]:
        """The call in which this part was started, among the parts placed before it."""
        recent = {one.span.span_id: one for one in placed[-_RECENT:] if one.spans and self._lanes.is_host(one.span)}
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
        # The one placed last.
        return [one for id, one in reversed(recent.items()) if id in found][:1]
