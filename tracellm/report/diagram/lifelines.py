"""Which lifeline a call stands on, and how the lifelines are named, ordered and boxed.

A lifeline is a class in a process. What a thread or a task of an event loop runs of the class that it belongs to has a
lifeline of its own, `EngineCoreProc` over `process_input_sockets`: it goes on whatever the rest of the class does.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from tracellm.report.diagram.model import Box, Participant
from tracellm.report.diagram.story import Story
from tracellm.report.texts import text
from tracellm.report.tree.nodes import Node, walk
from tracellm.report.tree.step_groups import step_head
from tracellm.report.wording.safe_text import beginning
from tracellm.report.wording.titles import script_of
from tracellm.trace import names
from tracellm.trace.model import Process, Span

__all__ = ["LONGEST_NAME", "Place", "Places", "readable_ids"]

_Key = TypeVar("_Key", bound=Hashable)

_WORD = re.compile(r"(?![xX])[A-Za-z]\w*[A-Za-z]\w*", re.ASCII)  # the x of `--x-xray` would be read as an arrow's
_KEYWORDS = re.compile(
    "acc|accdescr|acctitle|activate|actor|alt|and|as|autonumber|box|break|create|critical|deactivate|destroy|details|"
    "else|end|left|link|links|loop|note|nowrap|of|opt|option|over|par|par_over|participant|properties|rect|right|"
    "sequencediagram|title|wrap",
    re.IGNORECASE,
)
"""What Mermaid's sequence diagrams read as syntax."""
_PARTS = re.compile("style|classdef", re.IGNORECASE)  # Mermaid looks for these within a line, too


def in_order(calls: Sequence[tuple[_Key, _Key]], of_steps: Sequence[tuple[_Key, _Key]]) -> list[_Key]:
    """Every lifeline once.

    Args:
        calls: caller and callee of every call, in the order of the calls.
        of_steps: those of the calls that lead to the engine's steps or are part of one; without any, the order is that
            of the first calls.
    """
    order = list(dict.fromkeys(key for pair in of_steps or calls for key in pair))
    known = set(order)
    beside: dict[_Key, _Key] = {}  # the lifeline put next to a caller last
    for caller, callee in calls:
        if caller not in known:  # the root of another process, or of a thread
            known.add(caller)
            order.append(caller)
        if callee not in known:
            known.add(callee)
            order.insert(order.index(beside.get(caller, caller)) + 1, callee)
            beside[caller] = callee
    return order


def readable_ids(names: Sequence[str]) -> list[str]:
    """An id for each lifeline: its name, `hello_py` for `hello.py`; `P3` for the third where that would be syntax."""
    used: set[str] = set()
    ids = []
    for number, name in enumerate(names, 1):
        id = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
        if not _WORD.fullmatch(id) or _KEYWORDS.fullmatch(id) or _PARTS.search(id) or id in used:
            id = f"P{number}"
        used.add(id)
        ids.append(id)
    return ids


LONGEST_NAME = 40
"""Characters of a lifeline's or a method's name."""

_OUTSIDE, _NOWHERE = -1, 1_000_000


class Place(NamedTuple):
    """A lifeline: the number of its process, whose methods, and of a thread's or a task's the method that it runs."""

    process: int
    name: str
    loop: str = ""


class Places:
    """The lifelines of trees that are all to be drawn."""

    def __init__(self, roots: Iterable[Node], story: Story, lang: str) -> None:
        self._story = story
        self._lang = lang
        roots = list(roots)
        self._processes = _processes(roots, story)
        self._with_script = {_pid(root.span) for root in roots if root.spans and script_of(root.span)}
        self._drawn = {span.span_id for node in walk(roots) if node.kind == "call" for span in node.spans}
        calls: list[tuple[Place, Place]] = []
        to_steps: set[int] = set()  # which of the calls lead to a step or are part of one
        for root in roots:
            self._collect(root, root, calls, to_steps, in_step=False)
        of_steps = [call for number, call in enumerate(calls) if number in to_steps]
        self.order = sorted(in_order(calls, of_steps), key=self._side)
        shown = [f"{_shown(place.name)} {_shown(place.loop)}".rstrip() for place in self.order]
        self.ids = dict(zip(self.order, readable_ids(shown), strict=True))
        """What the diagram's text calls each lifeline, in the order drawn."""

    def of(self, span: Span) -> Place:
        """The lifeline of a call."""
        head = self._story.lane_head(span)
        loop = head.method if head is not None and head.lifeline == span.lifeline else ""
        return Place(self._processes[_pid(span)][0], span.lifeline, loop)

    def caller(self, node: Node, around: Node) -> Place:
        """The lifeline that calls `node`, which is drawn within `around`."""
        story = self._story
        part = story.part_of(node.span)
        if part is not None and (around.kind != "call" or story.part_of(around.span) != part):
            caller = story.callers[part]
            return self._from_outside(node.span) if caller is None else self.of(self._nearest_drawn(caller))
        if around.kind == "call" and around is not node:
            return self.of(around.span)
        return self._from_outside(node.span)

    def _nearest_drawn(self, caller: Span) -> Span:
        """The call that is drawn and leads to this one; itself where none is."""
        above: Span | None = caller
        while above is not None and above.span_id not in self._drawn:
            above = self._story.above(above)
        return above or caller

    def _from_outside(self, span: Span) -> Place:
        """Where a call comes from that nobody recorded made."""
        if script_of(span):
            return self.of(span)
        if names.HTTP_METHOD in span.attributes:
            return Place(_OUTSIDE, text(self._lang, "diagram.http_client"))
        if _pid(span) in self._with_script or self._story.is_long(span):
            return self.of(span)
        number, name = self._processes[_pid(span)]
        return Place(number, name)

    def receiver(self, span: Span) -> Place:
        """The lifeline that gets the message that was sent in this call."""
        receiver = self._story.messages[span.span_id].receiver
        return Place(_NOWHERE, text(self._lang, "diagram.receiver")) if receiver is None else self.of(receiver)

    def participants(self) -> tuple[Participant, ...]:
        """The lifelines from left to right."""
        return tuple(Participant(id, _shown(place.name), _shown(place.loop)) for place, id in self.ids.items())

    def boxes(self) -> tuple[Box, ...]:
        """One for each process, where there is more than one, or something outside of it."""
        numbers = list(dict.fromkeys(place.process for place in self.order))
        if len(numbers) < 2:
            return ()
        return tuple(
            Box(self._box(number), tuple(id for place, id in self.ids.items() if place.process == number))
            for number in numbers
        )

    def _box(self, number: int) -> str:
        if number in (_OUTSIDE, _NOWHERE):
            return text(self._lang, "diagram.outside" if number == _OUTSIDE else "diagram.not_recorded")
        name = next(name for of, name in self._processes.values() if of == number)
        shown = _shown(name)
        here = {place.name for place in self.order if place.process == number}
        if "EngineCoreProc" in here:
            return text(self._lang, "diagram.box.engine", name=shown)
        return text(self._lang, "diagram.box.client", name=shown) if here & _CLIENTS else shown

    def _side(self, place: Place) -> tuple[int, bool]:
        """Processes in the order of their first calls; threads stand at the side where the other process is."""
        return place.process, bool(place.loop) == (place.process == 0)

    def _collect(
        self,
        node: Node,
        around: Node,
        calls: list[tuple[Place, Place]],
        to_steps: set[int],
        in_step: bool,
    ) -> bool:
        """Add every caller and callee from `node` down; whether a step is among them."""
        number = len(calls)
        inner = around
        if node.kind == "call":
            inner = node
            calls.append(self.ends(node, around))
        head = step_head(node) if node.kind == "steps" else None
        leads = [self._collect(child, inner, calls, to_steps, in_step or child is head) for child in node.children]
        if node.kind == "call" and (in_step or any(leads)):
            to_steps.add(number)
        return in_step or any(leads)

    def ends(self, node: Node, around: Node) -> tuple[Place, Place]:
        """From which lifeline to which the arrow of a call, or of a message, goes."""
        if (sent := self._story.messages.get(node.span.span_id)) is not None:
            return self.of(sent.sender), self.receiver(node.span)
        return self.caller(node, around), self.of(node.span)


_CLIENTS = {"SyncMPClient", "AsyncMPClient"}


def _shown(name: str) -> str:
    return beginning(name, LONGEST_NAME)


def _pid(span: Span) -> int:
    return span.process.pid if span.process else 0


def _processes(roots: Iterable[Node], story: Story) -> dict[int, tuple[int, str]]:
    """The number and the name of each process that made calls, by process id, in order of the first call."""
    found: dict[int, Process | None] = {}
    for span in _spans(roots, story):
        found.setdefault(_pid(span), span.process)
    return {pid: (number, process.name if process else "?") for number, (pid, process) in enumerate(found.items())}


def _spans(roots: Iterable[Node], story: Story) -> Iterator[Span]:
    for node in walk(roots):
        if node.kind == "call":
            yield node.span
            if (sent := story.messages.get(node.span.span_id)) is not None:
                yield sent.sender
                if sent.receiver is not None:
                    yield sent.receiver
            caller = story.callers.get(story.part_of(node.span) or "")
            if caller is not None:
                yield caller
