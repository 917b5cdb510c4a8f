"""The lifelines of a diagram: the one of each call, their names, order and boxes.

A lifeline is a class in a process. A method that a thread or a task runs has a lifeline of its own, `EngineCoreProc`
over `process_input_sockets`: it runs independently of the rest of the class.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from tracellm.report.diagram.lanes import process_id
from tracellm.report.diagram.model import Box, Lifelines, Participant
from tracellm.report.diagram.story import DiagramTree, Story
from tracellm.report.texts import text
from tracellm.report.tree.nodes import Node, walk
from tracellm.report.tree.step_groups import step_head
from tracellm.report.wording.safe_text import beginning
from tracellm.report.wording.titles import script_of
from tracellm.trace import names
from tracellm.trace.model import Process, Span

__all__ = ["LONGEST_NAME", "in_order", "name_lifelines", "readable_ids"]

_Key = TypeVar("_Key", bound=Hashable)

_WORD = re.compile(r"(?![xX])[A-Za-z]\w*[A-Za-z]\w*", re.ASCII)  # the x of `--x-xray` would be read as an arrow's
_KEYWORDS = re.compile(
    "acc|accdescr|acctitle|activate|actor|alt|and|as|autonumber|box|break|create|critical|deactivate|destroy|details|"
    "else|end|left|link|links|loop|note|nowrap|of|opt|option|over|par|par_over|participant|properties|rect|right|"
    "sequencediagram|title|wrap",
    re.IGNORECASE,
)
"""Words that Mermaid's sequence diagrams read as syntax."""
_PARTS = re.compile("style|classdef", re.IGNORECASE)  # Mermaid looks for these within a line, too


def in_order(calls: Sequence[tuple[_Key, _Key]], of_steps: Sequence[tuple[_Key, _Key]]) -> list[_Key]:
    """Return every lifeline once.

    Args:
        calls: caller and callee of every call, in the order of the calls.
        of_steps: those of the calls that lead to the engine's steps or are part of one; without any, the order is that
            of the first calls.
    """
    order = list(dict.fromkeys(key for pair in of_steps or calls for key in pair))
    known = set(order)
    beside: dict[_Key, _Key] = {}  # the lifeline placed next to a caller last
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
    """Return an id for each lifeline: its name, `hello_py` for `hello.py`; `P3` if the third would be syntax."""
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


class _Lifeline(NamedTuple):
    """Key of a lifeline: the number of its process, its class, and for a thread or a task the method that it runs."""

    process: int
    name: str
    loop: str = ""


class _Call(NamedTuple):
    """The arrow of a call, and whether it leads to a step or is part of one."""

    node: Node
    source: _Lifeline
    target: _Lifeline
    of_step: bool


def name_lifelines(tree: DiagramTree) -> DiagramTree:
    """Find the two lifelines of each call's arrow, and order, name and box the lifelines."""
    finder = _Finder(tree)
    calls = [call for root in tree.roots for call in finder.calls(root, root, in_step=False)[0]]
    every = [(call.source, call.target) for call in calls]
    order = sorted(in_order(every, [(call.source, call.target) for call in calls if call.of_step]), key=_side)
    shown = [(_shown(key.name), _shown(key.loop)) for key in order]
    ids = dict(zip(order, readable_ids([" ".join(texts).rstrip() for texts in shown]), strict=True))
    participants = tuple(
        Participant(ids[key], *texts, process=finder.process(key)) for key, texts in zip(order, shown, strict=True)
    )
    ends = {id(call.node): (ids[call.source], ids[call.target]) for call in calls}
    return replace(tree, lifelines=Lifelines(participants, finder.boxes(ids), ends))


class _Finder:
    """Finds the lifelines of the calls of a tree."""

    def __init__(self, tree: DiagramTree) -> None:
        self._story = tree.story
        self._lang = tree.lang
        self._processes = _processes(tree.roots, tree.story)
        self._with_script = {process_id(root.span) for root in tree.roots if root.spans and script_of(root.span)}
        self._drawn = {span.span_id for node in walk(tree.roots) if node.kind == "call" for span in node.spans}

    def _of(self, span: Span) -> _Lifeline:
        """Return the lifeline of a call."""
        head = self._story.lane_head(span)
        loop = head.method if head is not None and head.lifeline == span.lifeline else ""
        return _Lifeline(self._processes[process_id(span)][0], span.lifeline, loop)

    def _caller(self, node: Node, around: Node) -> _Lifeline:
        """Return the lifeline that calls `node`, which is drawn within `around`."""
        story = self._story
        part = story.part_of(node.span)
        if part is not None and (around.kind != "call" or story.part_of(around.span) != part):
            caller = story.callers[part]
            return self._from_outside(node.span) if caller is None else self._of(self._nearest_drawn(caller))
        if around.kind == "call" and around is not node:
            return self._of(around.span)
        return self._from_outside(node.span)

    def _nearest_drawn(self, caller: Span) -> Span:
        """Return the nearest drawn call around this one, or the call itself."""
        above: Span | None = caller
        while above is not None and above.span_id not in self._drawn:
            above = self._story.above(above)
        return above or caller

    def _from_outside(self, span: Span) -> _Lifeline:
        """Return the lifeline of a call whose caller was not recorded."""
        if script_of(span):
            return self._of(span)
        if names.HTTP_METHOD in span.attributes:
            return _Lifeline(_OUTSIDE, text(self._lang, "diagram.http_client"))
        if process_id(span) in self._with_script or self._story.is_long(span):
            return self._of(span)
        number, name = self._processes[process_id(span)]
        return _Lifeline(number, name)

    def _receiver(self, span: Span) -> _Lifeline:
        """Return the lifeline that receives the message sent in this call."""
        receiver = self._story.messages[span.span_id].receiver
        return _Lifeline(_NOWHERE, text(self._lang, "diagram.receiver")) if receiver is None else self._of(receiver)

    def process(self, lifeline: _Lifeline) -> int:
        """Return the process id of a lifeline's calls; negative for what is outside of the recorded processes."""
        if lifeline.process in (_OUTSIDE, _NOWHERE):
            return -1 if lifeline.process == _OUTSIDE else -2
        return next(pid for pid, (number, _) in self._processes.items() if number == lifeline.process)

    def boxes(self, ids: Mapping[_Lifeline, str]) -> tuple[Box, ...]:
        """Return a box for each process, if there is more than one, or something outside of it."""
        numbers = list(dict.fromkeys(key.process for key in ids))
        if len(numbers) < 2:
            return ()
        return tuple(
            Box(self._box(number, ids), tuple(id for key, id in ids.items() if key.process == number))
            for number in numbers
        )

    def _box(self, number: int, order: Iterable[_Lifeline]) -> str:
        if number in (_OUTSIDE, _NOWHERE):
            return text(self._lang, "diagram.outside" if number == _OUTSIDE else "diagram.not_recorded")
        name = next(name for of, name in self._processes.values() if of == number)
        shown = _shown(name)
        here = {key.name for key in order if key.process == number}
        if here & _ENGINE_CORES:
            return text(self._lang, "diagram.box.engine", name=shown)
        return text(self._lang, "diagram.box.client", name=shown) if here & _CLIENTS else shown

    def calls(self, node: Node, around: Node, *, in_step: bool) -> tuple[list[_Call], bool]:
        """Return the calls from `node` down, each before its callees, and whether a step is among them."""
        inner = node if node.kind == "call" else around
        head = step_head(node) if node.kind == "steps" else None
        below = [self.calls(child, inner, in_step=in_step or child is head) for child in node.children]
        leads = in_step or any(led for _, led in below)
        found = [call for calls, _ in below for call in calls]
        return ([_Call(node, *self._ends(node, around), leads), *found] if node.kind == "call" else found), leads

    def _ends(self, node: Node, around: Node) -> tuple[_Lifeline, _Lifeline]:
        """Return the two lifelines of the arrow of a call, or of a message."""
        if (sent := self._story.messages.get(node.span.span_id)) is not None:
            return self._of(sent.sender), self._receiver(node.span)
        return self._caller(node, around), self._of(node.span)


def _side(lifeline: _Lifeline) -> tuple[int, bool]:
    """Order processes by their first calls; threads are placed at the side of the other process."""
    return lifeline.process, bool(lifeline.loop) == (lifeline.process == 0)


_CLIENTS = {"SyncMPClient", "AsyncMPClient", "DPLBAsyncMPClient"}
_ENGINE_CORES = {"EngineCoreProc", "DPEngineCoreProc"}


def _shown(name: str) -> str:
    return beginning(name, LONGEST_NAME)


def _processes(roots: Iterable[Node], story: Story) -> dict[int, tuple[int, str]]:
    """Return number and name of each process that made calls, by process id, in the order of the first call."""
    found: dict[int, Process | None] = {}
    for span in _spans(roots, story):
        found.setdefault(process_id(span), span.process)
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
