"""What crosses from one thread or process to another: which send belongs to which receive.

A message is recorded twice, where it was encoded and where it was decoded, under an id that both sides make of its
content. Ids may come again, as when a request is aborted twice: the k-th send with an id belongs to the k-th receive.
In a request's life these are its ADD to the engine core, and the OUTPUTS of each step on their way back.

vLLM has no counterpart: it propagates `trace_headers` with a request, and records nothing at the sockets.
"""

from collections import deque
from collections.abc import Iterable

from tracellm.trace import names
from tracellm.trace.model import Link, Message, Span, Trace

__all__ = ["is_receive", "is_send", "link", "pair", "pairs", "sent_at"]

_Place = tuple[str, int, str]


def is_send(span: Span) -> bool:
    """Whether a message was made in this call. A call that failed sent nothing."""
    return _is(span, "send") and span.error is None


def is_receive(span: Span) -> bool:
    """Whether a message was read in this call."""
    return _is(span, "receive")


def _is(span: Span, operation: str) -> bool:
    return span.attributes.get(names.MESSAGE_OPERATION) == operation and names.MESSAGE_ID in span.attributes


def sent_at(send: Span) -> int:
    """The moment before which a message cannot have arrived, in nanoseconds since 1970.

    That is the end of the call that encoded it, since the bytes are handed to the socket after it. Of a call that never
    ended only the start is known.
    """
    return send.start_ns if send.open else send.end_ns


def pair(spans: Iterable[Span]) -> list[Message]:
    """Every send with its receive, in the order of the sends. One that would arrive before it was sent is no pair."""
    made = [
        Message(send, receive if receive is not None and receive.start_ns >= sent_at(send) else None)
        for send, receive in pairs(spans)
    ]
    return sorted(made, key=lambda message: message.send.start_ns)


def pairs(spans: Iterable[Span]) -> list[tuple[Span, Span | None]]:
    """The same whatever the clocks of the processes say: the order within a process counts, and nothing else.

    A receive belongs to a send of another process, or if there is none, to an earlier one of another thread.
    """
    sends: dict[str, list[Span]] = {}
    receives: dict[str, list[Span]] = {}
    outer: set[str] = set()
    told = (span for span in spans if names.MESSAGE_OPERATION in span.attributes)
    ordered = sorted(told, key=lambda span: (span.thread[:2], span.start_ns, -span.end_ns))
    for span in ordered:
        if is_send(span):
            outer.add(span.span_id)
            if span.parent_span_id not in outer:  # `encode` may do its work in `encode_into`
                sends.setdefault(str(span.attributes[names.MESSAGE_ID]), []).append(span)
        elif is_receive(span):
            receives.setdefault(str(span.attributes[names.MESSAGE_ID]), []).append(span)
    found = []
    for message_id, sent in sends.items():
        taken = _match(sent, receives.get(message_id, []))
        found += [(send, taken.get(id(send))) for send in sent]
    return found


def _match(sends: list[Span], receives: list[Span]) -> dict[int, Span]:
    """The receive of each send, by `id(send)`; all have the same message id."""
    untaken: dict[_Place, deque[Span]] = {}
    for send in sends:
        untaken.setdefault(send.thread, deque()).append(send)
    taken: dict[int, Span] = {}
    for receive in receives:
        here = receive.thread
        others = [place for place in untaken if place[:2] != here[:2]] or [
            place for place, waiting in untaken.items() if place != here and sent_at(waiting[0]) <= receive.start_ns
        ]
        if others:
            place = min(others, key=lambda place: (place[:2], untaken[place][0].start_ns))
            taken[id(untaken[place].popleft())] = receive
            if not untaken[place]:
                del untaken[place]
    return taken


def link(trace: Trace) -> None:
    """Give each receive a link to its send, which tells the message's id; those that have it keep it."""
    for message in trace.messages:
        send, receive = message.send, message.receive
        if receive is None or any(known.span_id == send.span_id for known in receive.links):
            continue
        told = Link(send.trace_id, send.span_id, {names.MESSAGE_ID: str(send.attributes[names.MESSAGE_ID])})
        receive.links = [*receive.links, told]
