"""The order of a story's parts, and their positions in the trees.

Work in two processes at once has no order of its own: the engine core begins its next step while the client still
processes the outputs of the last. For equal diagrams of equal runs, an engine core's *turn* (receiving messages, a
step, sending outputs) is placed where the client took its outputs, and a worker's work where it was called. Nothing is
placed before its cause, and the calls of each thread keep their order. A part is then placed between the script's
calls, in one that waits, or below a coroutine.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracellm.report.diagram.lanes import WAITS, Lane, Lanes, process_id
from tracellm.report.tree.nodes import DEEPEST, Node
from tracellm.trace import names
from tracellm.trace.messages import sent_at
from tracellm.trace.model import Message, Span, Trace
from tracellm.trace.steps import STEP_SPAN

__all__ = ["Moment", "moments", "place_parts"]


_BEFORE, _TURN, _SENT, _AFTER = range(4)


@dataclass(frozen=True, slots=True)
class Moment:
    """Position of a part: a time in nanoseconds, then a rank among parts of that time.

    `step` is the id of the span of the step whose turn the part belongs to, if any.
    """

    time_ns: int
    rank: tuple[int, int] = (_AFTER, 0)
    step: str | None = None

    @property
    def key(self) -> tuple[int, tuple[int, int]]:
        """Sort key of parts."""
        return self.time_ns, self.rank


def moments(trace: Trace, lanes: Lanes, parts: Sequence[Span]) -> dict[str, Moment]:
    """Return the moment of each part, by span id. `parts` are ordered by start."""
    by_part = {span.span_id: Moment(span.start_ns, (_AFTER, i)) for i, span in enumerate(parts)}
    taken, waits, until = _taken(trace)
    steps = _steps_of(trace, by_part)
    by_lane: dict[Lane, list[Span]] = {}
    for part in parts:
        by_lane.setdefault(lanes.of(part), []).append(part)
    sends, came = _traffic(trace, lanes)
    beside: dict[int, list[Span]] = {}
    for lane, there in by_lane.items():
        if lane[1]:
            beside.setdefault(lane[0], []).extend(part for part in there if not lanes.begins(part))
    for pid in {lane[0] for lane in by_lane}:
        core = by_lane.get((pid, ""), [])
        if any(part.span_id in steps for part in core):
            sent = sends.get(pid, [])
            by_part |= _turns(core, sent, sorted(came.get(pid, ())), taken, until, steps, by_part)
            ids = {send.span_id for send in sent}
            by_part |= _taken_up(core, [part for part in beside.get(pid, ()) if part.span_id not in ids], by_part)
    by_part |= _waits(by_lane, waits, by_part)
    by_part |= _called(trace, by_lane)
    return by_part | _in_thread_order(by_lane, by_part)


def _traffic(trace: Trace, lanes: Lanes) -> tuple[dict[int, list[Span]], dict[int, list[int]]]:
    """Return the messages each process sent outside its main thread, and the arrival times of those it received."""
    sends: dict[int, list[Span]] = {}
    came: dict[int, list[int]] = {}
    for message in trace.messages:
        pid, beside = lanes.of(message.send)
        if beside:
            sends.setdefault(pid, []).append(message.send)
        if message.receive is not None:
            came.setdefault(process_id(message.receive), []).append(message.receive.start_ns)
    return sends, came


def _taken(trace: Trace) -> tuple[dict[str, int], dict[str, str], dict[str, int]]:
    """Return when each message was taken, the message taken by each call of WAITS, and when its processing ended.

    Keys are span ids: of the send, of the waiting call, and of the send. The third is known inside an `LLMEngine.step`.
    """
    taken: dict[str, int] = {}
    waits: dict[str, str] = {}
    until: dict[str, int] = {}
    arrived: dict[int, list[Message]] = {}
    for message in trace.messages:
        if message.receive is None:
            taken[message.send.span_id] = message.send.start_ns
            continue
        taken[message.send.span_id] = max(message.receive.start_ns, sent_at(message.send))  # clocks may differ
        if message.send.attributes.get(names.MESSAGE_TYPE) == "OUTPUTS":
            arrived.setdefault(process_id(message.receive), []).append(message)
    waiting: dict[int, list[Span]] = {}
    for wait in trace.named(*WAITS):
        if not wait.open and wait.error is None:
            waiting.setdefault(process_id(wait), []).append(wait)
    for pid, came in arrived.items():
        queue = iter(waiting.get(pid, ()))
        for message in sorted(came, key=lambda one: one.receive.start_ns if one.receive else 0):
            assert message.receive is not None
            taker = next((one for one in queue if one.end_ns >= message.receive.start_ns), None)
            if taker is not None:
                taken[message.send.span_id] = max(taken[message.send.span_id], taker.start_ns)
                waits[taker.span_id] = message.send.span_id
                around = trace.parent(taker)
                if around is not None and around.name == "LLMEngine.step":
                    until[message.send.span_id] = around.end_ns
    return taken, waits, until


def _steps_of(trace: Trace, parts: Iterable[str]) -> dict[str, Span]:
    """Return the step that a part is or contains, by the part's span id."""
    part_of: dict[str, str | None] = {id: id for id in parts}
    found: dict[str, Span] = {}
    for step in trace.named(STEP_SPAN):
        path: list[str] = []
        above: Span | None = step
        while above is not None and above.span_id not in part_of:
            path.append(above.span_id)
            above = trace.parent(above)
        part = part_of[above.span_id] if above is not None else None
        part_of.update(dict.fromkeys(path, part))  # the next step has many of these above it, too
        if part is not None:
            found[part] = step
    return found


def _turns(
    core: Sequence[Span],
    sends: Sequence[Span],
    came: Sequence[int],
    taken: dict[str, int],
    until: dict[str, int],
    steps: Mapping[str, Span],
    by_part: Mapping[str, Moment],
) -> dict[str, Moment]:
    """Return the moments of a process's turns: the parts of its main thread, and the messages of its other threads."""
    found: dict[str, Moment] = {}
    starts = [part.start_ns for part in core]
    sent = _sent_after(core, starts, sends, steps)
    for index, send_list in sent.items():
        step = steps.get(core[index].span_id)
        at = min(taken[send.span_id] for send in send_list)
        for number, send in enumerate(send_list):
            found[send.span_id] = Moment(at, (_SENT, number), step.span_id if step else None)
    quiet = 0  # a step without outputs stands after the end of the client's processing of the last outputs
    for index, part in enumerate(core):
        if index in sent:
            quiet = max(until.get(send.span_id, 0) for send in sent[index])
        elif part.span_id in steps:
            found[part.span_id] = Moment(max(part.start_ns, quiet), (_AFTER, index), steps[part.span_id].span_id)
    after: Moment | None = None  # the turn that earlier parts of this thread may belong to
    for index in range(len(core) - 1, -1, -1):
        part = core[index]
        if index in sent or part.span_id in steps:
            step = steps.get(part.span_id)
            after = found.get(part.span_id, by_part[part.span_id])
            if index in sent:
                at = min(taken[send.span_id] for send in sent[index])
                after = found[part.span_id] = Moment(at, (_TURN, index), step.span_id if step else None)
        elif after is not None:
            is_loop = part.attributes.get(names.CALL_KIND) == "loop"
            if not is_loop and bisect_left(came, part.end_ns) < bisect_left(came, starts[index + 1]):
                after = None  # the engine core waited for a message: this is part of no turn
                continue
            found[part.span_id] = Moment(after.time_ns, (after.rank[0], index), after.step)
            if is_loop:
                after = None  # a turn begins with a look into the queue
    return found


def _sent_after(
    core: Sequence[Span], starts: Sequence[int], sends: Sequence[Span], steps: Mapping[str, Span]
) -> dict[int, list[Span]]:
    """Return the messages that the other threads sent, by the position of the part that caused them.

    Outputs name the step that made them. Any other message counts as the answer to the last call before it.
    """
    step_indexes = [index for index, part in enumerate(core) if part.span_id in steps]
    by_index = {steps[core[index].span_id].attributes.get(names.STEP_INDEX): index for index in step_indexes}
    unnamed = not any(names.MESSAGE_STEP in send.attributes for send in sends)  # a recording of an older version
    before = len(core)  # position of the step whose outputs were sent next
    sent: dict[int, list[Span]] = {}
    for send in reversed(sends):
        owner = by_index.get(send.attributes.get(names.MESSAGE_STEP, -1))
        if owner is None:
            owner = bisect_left(starts, send.start_ns) - 1
            outputs = unnamed and send.attributes.get(names.MESSAGE_TYPE) == "OUTPUTS"
            if outputs:
                owner = min(owner, before - 1)  # each step's outputs are one message
            if owner >= 0 and core[owner].span_id in steps and core[owner].end_ns > send.start_ns:
                owner -= 1  # that step is still running: messages sent now are of the one before
            if outputs and owner >= 0:
                steps_until = bisect_right(step_indexes, owner)
                owner = before = step_indexes[steps_until - 1] if steps_until else 0
        if owner >= 0:
            sent.setdefault(owner, []).append(send)
    for of_place in sent.values():
        of_place.reverse()
    return sent


def _taken_up(core: Sequence[Span], others: Sequence[Span], by_part: Mapping[str, Moment]) -> dict[str, Moment]:
    """Return the moments of other threads' work on incoming messages: when the main thread handles these."""
    found: dict[str, Moment] = {}
    starts = [part.start_ns for part in core]
    for number, part in enumerate(others):
        index = bisect_left(starts, part.end_ns)
        if index < len(core):
            taken_up = by_part[core[index].span_id]
            found[part.span_id] = Moment(max(part.start_ns, taken_up.time_ns), (_BEFORE, number), taken_up.step)
    return found


def _waits(
    by_lane: Mapping[Lane, list[Span]], waits: Mapping[str, str], by_part: Mapping[str, Moment]
) -> dict[str, Moment]:
    """Return the moments of a task that takes outputs in a loop: its waiting call before the turn, the rest after."""
    found: dict[str, Moment] = {}
    for lane, parts in by_lane.items():
        if not lane[1]:
            continue  # other work of the main thread must not be delayed
        turn: Moment | None = None
        for part in parts:
            if part.name in WAITS:
                turn = by_part.get(waits.get(part.span_id, ""))
                if turn is not None:
                    found[part.span_id] = Moment(turn.time_ns, (_BEFORE, 0), turn.step)
            elif turn is not None:
                found[part.span_id] = Moment(max(part.start_ns, turn.time_ns), by_part[part.span_id].rank, turn.step)
    return found


def _called(trace: Trace, by_lane: Mapping[Lane, list[Span]]) -> dict[str, Moment]:
    """Return the moments of workers' parts: when their call was sent, or before the first call the worker's start."""
    calls: dict[int, list[Message]] = {}
    for message in trace.messages:
        if message.receive is not None and message.send.attributes.get(names.MESSAGE_TYPE) == "CALL":
            calls.setdefault(process_id(message.receive), []).append(message)
    found: dict[str, Moment] = {}
    by_name = sorted(calls, key=lambda pid: calls[pid][0].send.attributes[names.MESSAGE_ID])
    for number, pid in enumerate(by_name):
        arrived = [message.receive.start_ns for message in calls[pid] if message.receive is not None]
        for index, part in enumerate(by_lane.get((pid, ""), [])):
            place = bisect_left(arrived, part.end_ns)  # a part may contain the arrival
            caller = trace.parent(part)
            if place:
                found[part.span_id] = Moment(sent_at(calls[pid][place - 1].send), (_AFTER, index))
            elif caller is not None:
                found[part.span_id] = Moment(caller.start_ns, (_AFTER + number, index))
    return found


def _in_thread_order(by_lane: Mapping[Lane, list[Span]], by_part: Mapping[str, Moment]) -> dict[str, Moment]:
    """Raise moments so that no part stands before an earlier one of its thread."""
    found: dict[str, Moment] = {}
    for parts in by_lane.values():
        before: Moment | None = None
        for part in parts:
            moment = by_part[part.span_id]
            if before is not None and moment.key < before.key:
                moment = Moment(before.time_ns, (max(before.rank[0], moment.rank[0]), before.rank[1]), moment.step)
                found[part.span_id] = moment
            before = moment
    return found


_RECENT = 50
"""Number of recently placed parts that are searched for the call that started the next one."""
_FARTHEST = 1000
"""Maximum number of calls above a part that are searched."""

_COROUTINES = ("coroutine", "async_generator")


def place_parts(
    top: Node,
    parts: list[Node],
    trace: Trace,
    lanes: Lanes,
    when: Mapping[str, Moment],
    callers: Mapping[str, Span | None],
) -> None:
    """Put parts, in their order, among the calls of `top`, or below a call that waits for them.

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
        """Put parts among a node's calls; return the calls that contain parts, with these parts."""
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
        """Put the first work of a coroutine directly below it, so that equal requests fold."""
        found: list[Node] = []
        running: list[Node] = []  # coroutines, each called by the one before it; the last one is the current
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
        """Return the call that started this part, if it is among the last parts placed; else an empty list."""
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
        # the one placed last
        return [one for id, one in reversed(recent.items()) if id in found][:1]
