"""Times of a run, and what its messages between processes cost.

A message is encoded, on its way (through the socket, until the thread on the other side reads it), and decoded. A run
in one process has no messages: all is empty or zero.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from tracellm.trace import names
from tracellm.trace.model import Message, Span, Trace
from tracellm.trace.ranges import covered
from tracellm.trace.steps import Step

__all__ = ["Boundary", "MessageTally", "RunTimes", "Spread", "boundary", "run_times"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, longest and sum of some times in nanoseconds, and the range of their middle half; 0 without times."""

    median_ns: int
    most_ns: int
    total_ns: int
    middle_ns: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, times: Sequence[int]) -> "Spread":
        """Return the spread of these times."""
        if not times:
            return cls(0, 0, 0)
        first, _, third = quantiles(times, n=4, method="inclusive") if len(times) > 1 else [times[0]] * 3
        return cls(round(median(times)), max(times), sum(times), (round(first), round(third)))


@dataclass(frozen=True, slots=True)
class MessageTally:
    """Messages of one type. The `unreceived` ones have no receiver in the recording, and count in `encode` only.

    `way` is from the end of encoding to the start of decoding, `whole` from start to end.
    """

    type: str
    count: int
    bytes: int
    unreceived: int
    encode: Spread
    way: Spread
    decode: Spread
    whole: Spread


@dataclass(frozen=True, slots=True)
class Boundary:
    """Messages of a run: by type, in the order of first use, and all together."""

    types: tuple[MessageTally, ...]
    all: MessageTally


def boundary(trace: Trace) -> Boundary:
    """Return the messages of a trace."""
    types: dict[str, list[Message]] = {}
    for message in trace.messages:
        types.setdefault(str(message.send.attributes.get(names.MESSAGE_TYPE, "")), []).append(message)
    return Boundary(tuple(_tally(type, group) for type, group in types.items()), _tally("", trace.messages))


def _tally(type: str, messages: Sequence[Message]) -> MessageTally:
    pairs = [(message.send, message.receive) for message in messages if message.receive is not None]
    return MessageTally(
        type=type,
        count=len(messages),
        bytes=sum(_size(message.send) for message in messages),
        unreceived=len(messages) - len(pairs),
        encode=Spread.of([message.send.duration_ns for message in messages]),
        way=Spread.of([max(0, receive.start_ns - send.end_ns) for send, receive in pairs]),
        decode=Spread.of([receive.duration_ns for _, receive in pairs]),
        whole=Spread.of([max(0, receive.end_ns - send.start_ns) for send, receive in pairs]),
    )


def _size(send: Span) -> int:
    size = send.attributes.get(names.MESSAGE_BYTES)
    return size if isinstance(size, int) else 0


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Times of a run in nanoseconds, comparable between clients.

    `startup_ns` is the making of engines, `requests_ns` the time with at least one request. `between` is from the end
    of a step to the start of the next, with a request there all along. `recording_ns` is the recording's part of all
    these.

    `work` is the time in which any worker works, for each step until the next; `calls` is the time in which the engine
    core calls the workers, or waits for them, and none of them works.
    """

    startup_ns: int
    requests_ns: int
    steps: Spread
    between: Spread
    recording_ns: int = 0
    work: Spread = Spread(0, 0, 0)
    calls: Spread = Spread(0, 0, 0)


def run_times(trace: Trace, steps: Sequence[Step]) -> RunTimes:
    """Return the times of a run."""
    requests = _intervals(trace.named(names.REQUEST_SPAN))
    gaps, interval = [], 0
    for before, after in pairwise(steps):
        while interval < len(requests) and requests[interval][1] < before.span.end_ns:
            interval += 1
        start, end = before.span.end_ns, after.span.start_ns
        if not requests or (
            interval < len(requests) and requests[interval][0] <= start and end <= requests[interval][1]
        ):
            gaps.append(max(0, end - start))
    work, calls = _workers(trace, steps)
    return RunTimes(
        startup_ns=covered(_intervals(filter(_makes_engine, trace.spans))),
        requests_ns=covered(requests),
        steps=Spread.of([step.span.duration_ns for step in steps]),
        between=Spread.of(gaps),
        recording_ns=sum(span.recording_ns for span in trace.spans),
        work=Spread.of(work),
        calls=Spread.of(calls),
    )


_EXECUTORS = ("UniProcExecutor", "MultiprocExecutor", "RayDistributedExecutor")
_CALLS = (
    *(f"{name}.{method}" for name in _EXECUTORS for method in ("execute_model", "sample_tokens")),
    "Executor.result",
)
_WORK = ("Worker.execute_model", "Worker.sample_tokens")


def _workers(trace: Trace, steps: Sequence[Step]) -> tuple[list[int], list[int]]:
    """Return the times of workers and of calls to them, for each step until the next; none for several machines."""
    if len({process.host for process in trace.processes}) > 1:
        return [], []
    work, calls = _intervals(trace.named(*_WORK)), _intervals(trace.named(*_CALLS))
    both = _intervals(trace.named(*_WORK, *_CALLS))
    starts = [step.span.start_ns for step in steps]
    ends = [*starts[1:], both[-1][1]] if starts and both else []
    works = [_covered(work, start, end) for start, end in zip(starts, ends, strict=False)]
    alls = [_covered(both, start, end) for start, end in zip(starts, ends, strict=False)]
    return works, [whole - part for whole, part in zip(alls, works, strict=True)] if calls else []


def _covered(intervals: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """Return the part of start to end that the intervals, ordered and apart, cover."""
    first = max(0, bisect_right(intervals, start, key=lambda interval: interval[0]) - 1)
    last = bisect_left(intervals, end, key=lambda interval: interval[0])
    return sum(max(0, min(until, end) - max(since, start)) for since, until in intervals[first:last])


def _makes_engine(span: Span) -> bool:
    """Return whether the call makes an engine."""
    return span.attributes.get(names.PHASE) == "startup" or span.name == "AsyncLLM.__init__"


def _intervals(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """Return the intervals that spans, ordered by start, cover."""
    found: list[tuple[int, int]] = []
    for span in spans:
        if found and span.start_ns <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], span.end_ns)
        else:
            found.append((span.start_ns, span.end_ns))
    return found
