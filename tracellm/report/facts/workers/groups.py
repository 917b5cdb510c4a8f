"""Several workers: the part of the model that each has, and the time that each computes, waits, transfers and is idle.

An operation of several ranks, such as an all-reduce, takes until the last of them has arrived. Its ranks have it under
the same number, so the time of each is divided: waiting until the last arrives, and the transfer after that. Tensors
between pipeline stages are operations of two ranks, sender and receiver.

Times of two processes are comparable on one machine. On a GPU, a call only launches an operation, so its time is not
that of the operation.

vLLM has no counterpart.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tracellm.report.facts.workers.parts import WorkerPart, worker_parts
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import Step, engine_key, step_around, steps

__all__ = ["KINDS", "Interval", "Kind", "Operation", "RankStep", "WorkerGroup", "worker_groups"]

Kind = Literal["compute", "before", "after", "ranks", "transfer"]
"""Use of a worker's time: computing; waiting for the stage before, for the stage after, or for the other ranks of its
own stage; transfer."""
KINDS: tuple[Kind, ...] = ("compute", "before", "after", "ranks", "transfer")

_COLLECTIVES = ("GroupCoordinator.all_reduce", "GroupCoordinator.all_gather")
_RECEIVE = "GroupCoordinator.recv_tensor_dict"
_WORK = ("Worker.execute_model", "Worker.sample_tokens")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of several ranks: the call of each, and the time that each waits for the last one."""

    calls: dict[int, Span]
    waits: dict[int, int]

    @property
    def last(self) -> int:
        """The rank that arrived last."""
        return max(self.calls, key=lambda rank: (self.calls[rank].start_ns, rank))


@dataclass(frozen=True, slots=True)
class Interval:
    """Time from `start_ns` to `end_ns`."""

    kind: Kind
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class RankStep:
    """A rank's work for one step: its intervals, and the time without work before it.

    `waits` has the time that it waited for each other rank.
    """

    rank: int
    step: Step
    intervals: list[Interval] = field(default_factory=list)
    idle_ns: int = 0
    waits: Counter[int] = field(default_factory=Counter)

    def time(self, kind: Kind) -> int:
        """Return the nanoseconds of one kind."""
        return sum(interval.end_ns - interval.start_ns for interval in self.intervals if interval.kind == kind)


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """The workers of one engine.

    Attributes:
        parts: the part of the model of each, by rank.
        steps: work of each rank for each step with tokens, in the order of steps, then ranks.
        operations: operations whose ranks were all recorded, in order.
        unknown: why times are not divided: `hosts` (several machines), `device` (a GPU), or `operations` (none was
            recorded); empty if they are.
        left_out: number of steps whose operations were not recorded.
    """

    parts: tuple[WorkerPart, ...]
    steps: tuple[RankStep, ...]
    operations: tuple[Operation, ...]
    unknown: str
    left_out: int

    @property
    def num_stages(self) -> int:
        """Number of pipeline stages."""
        return 1 + max(part.stage for part in self.parts)


@per_trace
def worker_groups(trace: Trace) -> tuple[WorkerGroup, ...]:
    """Return the workers of each engine with several; none for a run with one worker."""
    return tuple(_group(trace, parts) for parts in worker_parts(trace))


def _group(trace: Trace, parts: tuple[WorkerPart, ...]) -> WorkerGroup:
    spans: dict[int, list[Span]] = {part.rank: [] for part in parts}
    ranks = {id(part.process): part.rank for part in parts}
    for span in trace.spans:
        if id(span.process) in ranks:
            spans[ranks[id(span.process)]].append(span)
    by_span = {span.span_id: rank for rank, own in spans.items() for span in own}
    operations = [*_collectives(spans), *_transfers(trace, by_span)]
    operations.sort(key=lambda operation: min(span.start_ns for span in operation.calls.values()))
    unknown = _unknown(parts, operations)
    if unknown:
        return WorkerGroup(parts, (), (), unknown, 0)
    work = _work(trace, parts, spans, operations)
    expected = any(len(part.tp_ranks) > 1 for part in parts)
    complete = [one for one in work if not expected or any(part.kind != "compute" for part in one.intervals)]
    left_out = len({one.step.index for one in work} - {one.step.index for one in complete})
    return WorkerGroup(parts, tuple(complete), tuple(operations), "", left_out)


def _unknown(parts: Iterable[WorkerPart], operations: list[Operation]) -> str:
    if len({part.process.host for part in parts}) > 1:
        return "hosts"
    if any(not part.device.startswith("cpu") for part in parts):
        return "device"
    return "" if operations else "operations"


def _collectives(spans: dict[int, list[Span]]) -> Iterator[Operation]:
    """Yield the all-reduces and all-gathers that all their ranks recorded."""
    calls: dict[tuple[tuple[int, ...], int], dict[int, Span]] = {}
    for rank, own in spans.items():
        for span in own:
            members, number = span.attributes.get(names.COLLECTIVE_RANKS), span.attributes.get(names.COLLECTIVE_NUMBER)
            if span.name in _COLLECTIVES and not span.open and isinstance(members, list) and isinstance(number, int):
                calls.setdefault((tuple(members), number), {})[rank] = span
    for (members, _), found in calls.items():
        if set(found) == set(members):
            last = max(span.start_ns for span in found.values())
            yield Operation(found, {rank: _until(span, last) for rank, span in found.items()})


def _transfers(trace: Trace, by_span: dict[str, int]) -> Iterator[Operation]:
    """Yield the sends of tensors, each with its receive, from the start of the wait for them."""
    for message in trace.messages:
        if message.send.attributes.get(names.MESSAGE_TYPE) != "TENSORS" or message.receive is None:
            continue
        send, receive = message.send, message.receive
        around = trace.parent(receive)
        receive = around if around is not None and around.name == _RECEIVE else receive
        if send.span_id not in by_span or receive.span_id not in by_span or send.open or receive.open:
            continue
        sender, receiver = by_span[send.span_id], by_span[receive.span_id]
        waits = {sender: 0, receiver: _until(receive, send.start_ns)}
        if receive.start_ns < send.end_ns:  # or else it was sent without waiting
            waits[sender] = _until(send, receive.start_ns)
        yield Operation({sender: send, receiver: receive}, waits)


def _until(span: Span, time_ns: int) -> int:
    """Return the part of a call before this time."""
    return min(max(0, time_ns - span.start_ns), span.duration_ns)


def _work(
    trace: Trace, parts: tuple[WorkerPart, ...], spans: dict[int, list[Span]], operations: list[Operation]
) -> list[RankStep]:
    """Return the work of each rank for each step with tokens."""
    by_call = {(rank, span.span_id): operation for operation in operations for rank, span in operation.calls.items()}
    stages = {part.rank: part.stage for part in parts}
    known = {(engine_key(step.span), step.index): step for step in steps(trace) if step.requests}
    called = _called(trace)
    found: list[RankStep] = []
    for rank, own in spans.items():
        current: RankStep | None = None
        mine: list[RankStep] = []
        for span in own:
            if span.span_id in called:
                place = called[span.span_id]
                step = known.get(place) if place else None
                if step is None:
                    current = None
                elif current is None or current.step is not step:
                    current = RankStep(rank, step)
                    mine.append(current)
            if current is not None and span.name in _WORK and not span.open:
                current.intervals.append(Interval("compute", span.start_ns, span.end_ns))
            elif current is not None and (operation := by_call.get((rank, span.span_id))) is not None:
                _divide(current, operation, span, stages)
        found += _with_idle(mine)
    found = [one for one in found if one.intervals]
    return sorted(found, key=lambda one: (one.step.span.start_ns, one.rank))


def _called(trace: Trace) -> dict[str, tuple[Hashable, int] | None]:
    """Return the engine and the step of each call that a worker received, by the id of the receiving span.

    In a vLLM, whose messages to workers are not recorded, the worker's span itself is part of the step's.
    """
    calls = {
        message.receive.span_id: message.send
        for message in trace.messages
        if message.receive is not None and message.send.attributes.get(names.MESSAGE_TYPE) == "CALL"
    }
    calls = calls or {span.span_id: span for span in trace.named(*_WORK)}
    return {span_id: _place(step_around(trace, call)) for span_id, call in calls.items()}


def _place(step: Span | None) -> tuple[Hashable, int] | None:
    index = None if step is None else step.attributes.get(names.STEP_INDEX)
    return (engine_key(step), index) if step is not None and isinstance(index, int) else None


def _divide(work: RankStep, operation: Operation, span: Span, stages: dict[int, int]) -> None:
    """Take an operation out of the computing around it: first the wait, then the transfer."""
    around = work.intervals.pop()
    middle = span.start_ns + operation.waits[work.rank]
    other = (
        operation.last if operation.last != work.rank else next(rank for rank in operation.calls if rank != work.rank)
    )
    own, others = stages[work.rank], stages[other]
    kind: Kind = "ranks" if own == others else "before" if others < own else "after"
    parts = (
        Interval("compute", around.start_ns, span.start_ns),
        Interval(kind, span.start_ns, middle),
        Interval("transfer", middle, span.end_ns),
        Interval("compute", span.end_ns, around.end_ns),
    )
    work.intervals += [part for part in parts if part.end_ns > part.start_ns]
    if operation.last != work.rank and operation.waits[work.rank]:
        work.waits[operation.last] += operation.waits[work.rank]


def _with_idle(work: list[RankStep]) -> list[RankStep]:
    """Give each step's work the time without work before it, from the start of the first step on."""
    work = [one for one in work if one.intervals]
    free = work[0].step.span.start_ns if work else 0
    for one in work:
        one.idle_ns = max(0, one.intervals[0].start_ns - free)
        free = one.intervals[-1].end_ns
    return work
