"""Cost of crossing from process to process: a run's messages by type, their bytes, and the time each part took.

A message's way has three parts: it is encoded, it is on its way (through the socket, and until the thread on the other
side gets to it), and it is decoded. A run in one process has no messages, and all is empty or zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from tracellm.trace import names
from tracellm.trace.model import Span, Trace

__all__ = ["Boundary", "MessageTally", "Spread", "boundary"]


_Message = tuple[Span, Span | None]


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
        first, _, third = quantiles(times, n=4, method="inclusive") if len(times) > 1 else times * 3
        return cls(round(median(times)), max(times), sum(times), (round(first), round(third)))


@dataclass(frozen=True, slots=True)
class MessageTally:
    """Messages of one type; `unreceived` of them have no receiver in the recording, and count in no time but `encode`.

    `way` is from the end of the encoding to the beginning of the decoding, `whole` from beginning to end.
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
    """A run's messages: by type, in the order in which the types first came, and all together."""

    types: tuple[MessageTally, ...]
    all: MessageTally


def boundary(trace: Trace) -> Boundary:
    """The messages of a trace."""
    everything = [(message.send, message.receive) for message in trace.messages]
    types: dict[str, list[_Message]] = {}
    for message in everything:
        types.setdefault(str(message[0].attributes.get(names.MESSAGE_TYPE, "")), []).append(message)
    return Boundary(tuple(_tally(type, group) for type, group in types.items()), _tally("", everything))


def _tally(type: str, messages: Sequence[_Message]) -> MessageTally:
    pairs = [(send, receive) for send, receive in messages if receive is not None]
    return MessageTally(
        type=type,
        count=len(messages),
        bytes=sum(_size(send) for send, _ in messages),
        unreceived=len(messages) - len(pairs),
        encode=Spread.of([send.duration_ns for send, _ in messages]),
        way=Spread.of([max(0, receive.start_ns - send.end_ns) for send, receive in pairs]),
        decode=Spread.of([receive.duration_ns for _, receive in pairs]),
        whole=Spread.of([max(0, receive.end_ns - send.start_ns) for send, receive in pairs]),
    )


def _size(send: Span) -> int:
    size = send.attributes.get(names.MESSAGE_BYTES)
    return size if isinstance(size, int) else 0
