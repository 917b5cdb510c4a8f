"""The calls of several processes, threads and tasks as one story, from top to bottom.

Calls beside the call that started them, and the work of a long call such as `run_busy_loop` or a coroutine, are
*parts*: trees of plain calls that are drawn where they happened. The script's calls are the main thread of the story. A
part is drawn between them. It is drawn within one of them only if that call started the part, or waits for the other
side, as `SyncMPClient.get_output` does. A run of one process and one thread is not changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tracellm.report.diagram.lanes import Lane, Lanes, process_id
from tracellm.report.diagram.model import Diagram, Lifelines
from tracellm.report.diagram.ordering import moments, place_parts
from tracellm.report.tree.nodes import CallTree, Node, walk
from tracellm.report.wording.titles import script_of
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Message, Span, Trace
from tracellm.trace.steps import STEP_SPAN, Step, steps

__all__ = ["DiagramTree", "Sent", "Story", "is_story", "order_by_cause"]

_BESIDE = frozenset({names.THREAD_NAME, names.CALL_KIND})
"""Attributes of a call that may have run beside another; without any, there is one lane."""

AROUND = "LLMEngine.step"
"""The call by which the script makes a step happen, even if another process runs it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message between two calls; the receiving one is None if it was not recorded."""

    message: Message
    sender: Span
    receiver: Span | None
    step: Step | None = None
    """The step whose outputs it carries."""


@dataclass(frozen=True, slots=True)
class Story:
    """Facts about trees in which the parts of several lanes stand in one order; empty for one lane.

    Attributes:
        callers: for each part, by its span id, the span that called it; None for a root of its own.
        messages: the message, its sender and its receiver, by the id of the span that encoded it.
        lanes: the lane of each call; None for one lane.
        trace: the recording; None for one lane.
    """

    callers: Mapping[str, Span | None] = field(default_factory=dict)
    messages: Mapping[str, Sent] = field(default_factory=dict)
    lanes: Lanes | None = None
    trace: Trace | None = None
    _part_of: dict[str, str | None] = field(default_factory=dict)
    """A cache."""

    @property
    def steps_that_sent(self) -> frozenset[str]:
        """Span ids of steps whose outputs, not empty, went to another process."""
        return frozenset(sent.step.span.span_id for sent in self.messages.values() if sent.step)

    def above(self, span: Span) -> Span | None:
        """Return the call that made this one, if both ran in one lane."""
        parent = self.trace.parent(span) if self.trace else None
        return parent if parent and self.lanes and self.lanes.of(parent) == self.lanes.of(span) else None

    def part_of(self, span: Span) -> str | None:
        """Return the part that a call is in, by its span id; None for a call of the script's."""
        path: list[str] = []
        above: Span | None = span if self.trace else None
        while above is not None and above.span_id not in self._part_of:
            if above.span_id in self.callers:
                self._part_of[above.span_id] = above.span_id
                break
            path.append(above.span_id)
            above = self.trace.parent(above) if self.trace else None
        part = self._part_of[above.span_id] if above is not None else None
        self._part_of.update(dict.fromkeys(path, part))
        return part

    def is_long(self, span: Span) -> bool:
        """Return whether a call is drawn without its work, which is drawn where it happened."""
        return self.lanes is not None and _is_long(span, self.lanes)

    def lane_head(self, span: Span) -> Span | None:
        """Return the first call of the lane that a call ran in, or None for a process's main thread."""
        return self.lanes.heads.get(self.lanes.of(span)) if self.lanes else None


def is_story(trace: Trace) -> bool:
    """Return whether several processes, threads or tasks have to be put in one order."""
    if trace.messages:
        return True
    processes = {id(span.process) for span in trace.spans}
    alone = len(processes) < 2 and all(_BESIDE.isdisjoint(span.attributes) for span in trace.spans)
    return not alone and lanes_of(trace).several


lanes_of = per_trace(Lanes)
"""The lanes of a trace."""


@dataclass(frozen=True, slots=True)
class DiagramTree(CallTree):
    """A call tree that is being made into a sequence diagram.

    Attributes:
        lang: the language of the diagram.
        story: facts about several lanes in one order.
        returns: `id(node)` of the calls whose return is an arrow, too.
        remark: key and count of a sentence about the whole diagram; None for no remark.
        rest: the last steps, if none of their calls is drawn; and whether these are all like calls of earlier steps.
        lifelines: the lifelines of the calls' arrows; None until they are named.
        diagram: the result; None until it is laid out.
    """

    lang: str = "en"
    story: Story = field(default_factory=Story)
    returns: frozenset[int] = frozenset()
    remark: tuple[str, int] | None = None
    rest: tuple[Sequence[Step], bool] = ((), False)
    lifelines: Lifelines | None = None
    diagram: Diagram | None = None


def order_by_cause(tree: DiagramTree) -> DiagramTree:
    """Put the parts of all lanes in one order, each after its cause. A tree of one lane is not changed."""
    trace, roots = tree.trace, tree.roots
    if not is_story(trace):
        return tree
    lanes = lanes_of(trace)
    _hide_messages(trace, roots)
    # the calls of the script, among which all others stand
    spine = next((root for root in roots if script_of(root.span)), None)
    detached: list[tuple[Node, Span | None]] = [(root, None) for root in roots if root is not spine]
    for root in roots:
        detached += _detach(root, lanes)
    callers = {part.span.span_id: caller for part, caller in detached}
    parts = sorted([part for part, _ in detached], key=lambda node: (node.span.start_ns, -node.span.end_ns))
    when = moments(trace, lanes, [node.span for node in parts])
    for node in parts:
        _mark(node, lanes, callers[node.span.span_id])
    parts.sort(key=lambda node: when[node.span.span_id].key)
    top = spine or Node("repeat", ("repeat", ()))
    place_parts(top, parts, trace, lanes, when, callers)
    units = _units([top])
    turns = {id: moment.step for id, moment in when.items() if moment.step is not None}
    inside = set(units.values())
    return replace(
        tree,
        roots=[top],
        ordered=False,
        units=units,
        turns={id: step for id, step in turns.items() if step not in inside},
        story=Story(callers, _messages(trace, turns), lanes, trace),
    )


def _is_long(span: Span, lanes: Lanes) -> bool:
    return lanes.is_long(span) and not script_of(span)


def _units(roots: list[Node]) -> dict[str, str]:
    """Return the client's call around each step, by its span id, with the id of the step's span."""
    found: dict[str, str] = {}
    stack = [(root, "") for root in roots]
    while stack:
        node, around = stack.pop()
        if node.spans and node.span.name == AROUND:
            around = node.span.span_id
        elif node.spans and node.span.name == STEP_SPAN and around:
            found.setdefault(around, node.span.span_id)
        stack += [(child, around) for child in reversed(node.children)]
    return found


def _messages(trace: Trace, turns: Mapping[str, str]) -> dict[str, Sent]:
    known = {step.span.span_id: step for step in steps(trace)}
    found = {}
    for message in trace.messages:
        send, receive = message.send, message.receive
        receiver = (trace.parent(receive) or receive) if receive else None
        step = known.get(turns.get(send.span_id, ""))
        found[send.span_id] = Sent(message, trace.parent(send) or send, receiver, step)
    return found


def _hide_messages(trace: Trace, roots: Iterable[Node]) -> None:
    """Hide the decoding of messages in its caller, with all below it: the arrow is drawn where the message was sent.

    Messages of one type that go to several processes get different keys, and are never folded into one.
    """
    sends = {message.send.span_id: message for message in trace.messages}
    ends: dict[object, set[int]] = {}
    for message in trace.messages:
        if message.receive is not None:
            ends.setdefault(message.send.attributes.get(names.MESSAGE_TYPE), set()).add(process_id(message.receive))
    receives = {message.receive.span_id for message in trace.messages if message.receive is not None}
    for node in list(walk(roots)):
        sent = sends.get(node.span.span_id)
        if sent is not None and len(ends.get(sent.send.attributes.get(names.MESSAGE_TYPE), ())) > 1:
            node.key = ("to", sent.receive and process_id(sent.receive), node.key)
        if not node.children:
            continue
        taken = sends if node.span.span_id in sends else receives
        for child in node.children:
            if taken is sends or child.span.span_id in receives:
                _swallow(node, child)
        kept = [] if taken is sends else [child for child in node.children if child.span.span_id not in receives]
        if len(kept) < len(node.children):
            node.replace_children(kept)


def _swallow(node: Node, child: Node) -> None:
    for below in walk([child]):
        node.take_in(below)


def _detach(root: Node, lanes: Lanes) -> list[tuple[Node, Span | None]]:
    """Remove the parts from a tree; return each with its caller. Parts begin lanes, or are the work of long calls."""
    parts: list[tuple[Node, Span | None]] = []
    for node in list(walk([root])):
        if node.children:
            long = _is_long(node.span, lanes)
            gone = {id(child) for child in node.children if long or lanes.begins(child.span)}
            if gone:
                parts += [(child, node.span) for child in node.children if id(child) in gone]
                node.replace_children([child for child in node.children if id(child) not in gone])
    return parts


def _mark(part: Node, lanes: Lanes, caller: Span | None) -> None:
    """Give a part a key of its lane and its caller: parts of different ones are never folded into one."""
    lane: Lane = lanes.of(part.span)
    part.key = ("part", (lane[0], lane[1].partition("|")[2]), caller.lifeline if caller else "", part.key)
