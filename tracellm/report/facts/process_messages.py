"""Messages across the process boundary by type and direction, and the processes on its sides."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from tracellm.trace import names
from tracellm.trace.messages import sent_at
from tracellm.trace.model import Message, Span, Trace
from tracellm.trace.steps import STEP_SPAN

__all__ = ["Crossing", "ProcessFacts", "crossings", "processes"]


@dataclass(frozen=True, slots=True)
class Crossing:
    """All messages of one type from one process to another.

    Attributes:
        type: ADD, ABORT, UTILITY, OUTPUTS, ...
        source: name of the sender's process.
        target: name of the receiver's; None if no receiver was recorded.
        count: number of messages.
        bytes: size of all of them together.
        seconds: median time from the end of encoding to the start of decoding; None if none arrived.
        lost: number without a recorded receiver, if others have one.
    """

    type: str
    source: str
    target: str | None
    count: int
    bytes: int
    seconds: float | None
    lost: int


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A process that recorded: its name and id, its threads besides the main one, its calls, and its engine steps."""

    name: str
    pid: int
    threads: tuple[str, ...]
    calls: int
    steps: int


def crossings(trace: Trace) -> list[Crossing]:
    """Return the messages of a trace, by type, sender and receiver, in the order of the first of each."""
    groups: dict[tuple[str, str, str | None], list[Message]] = {}
    for message in trace.messages:
        kind = str(message.send.attributes.get(names.MESSAGE_TYPE, "?"))
        target = None if message.receive is None else _process(message.receive)
        groups.setdefault((kind, _process(message.send), target), []).append(message)
    for kind, source, target in list(groups):  # a lost message went where the others of its kind went
        found = [key for key in groups if key[:2] == (kind, source) and key[2] is not None]
        if target is None and len(found) == 1:
            groups[found[0]] += groups.pop((kind, source, None))
    return [_crossing(kind, source, group) for (kind, source, _), group in groups.items()]


def _crossing(kind: str, source: str, messages: list[Message]) -> Crossing:
    arrived = [(message.send, message.receive) for message in messages if message.receive is not None]
    times = [max(0, receive.start_ns - sent_at(send)) for send, receive in arrived]
    sizes = (message.send.attributes.get(names.MESSAGE_BYTES) for message in messages)
    return Crossing(
        type=kind,
        source=source,
        target=_process(arrived[0][1]) if arrived else None,
        count=len(messages),
        bytes=sum(size for size in sizes if isinstance(size, int)),
        seconds=median(times) / 1e9 if times else None,
        lost=len(messages) - len(arrived),
    )


def processes(trace: Trace) -> list[ProcessFacts]:
    """Return the processes of a trace, in the order of their first calls."""
    found: dict[int, list[Span]] = {}
    for span in trace.spans:
        if span.process is not None and span.name != names.REQUEST_SPAN:
            found.setdefault(span.process.pid, []).append(span)
    return [
        ProcessFacts(
            _process(spans[0]), pid, _threads(spans), len(spans), sum(span.name == STEP_SPAN for span in spans)
        )
        for pid, spans in found.items()
    ]


def _threads(spans: Iterable[Span]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(span.thread[2] for span in spans if span.thread[2]))


def _process(span: Span) -> str:
    return span.process.name if span.process else "?"
