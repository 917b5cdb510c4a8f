"""Messages between threads and processes: each send paired with its receive.

A message is recorded twice, where it was encoded and where it was decoded, under an id that both sides derive from its
content. Ids may repeat, as when a request is aborted twice: the k-th send with an id belongs to the k-th receive. A
single send may have a receive in each of several other processes, as that of the coordinator of engine cores. A
request's messages are its ADD to the engine core, and the OUTPUTS of each step in return.

vLLM has no counterpart: it propagates `trace_headers` with a request, and records nothing at the sockets.
"""

import heapq
from collections import deque
from collections.abc import Iterable

from tracellm.trace import names
from tracellm.trace.model import Link, Message, Span, Trace

__all__ = ["is_receive", "is_send", "link", "pair", "sent_at"]


def is_send(span: Span) -> bool:
    """Return whether the call encoded a message. A call that failed sent nothing."""
    return _is(span, "send") and span.error is None


def is_receive(span: Span) -> bool:
    """Return whether the call decoded a message."""
    return _is(span, "receive")


def _is(span: Span, operation: str) -> bool:
    return span.attributes.get(names.MESSAGE_OPERATION) == operation and names.MESSAGE_ID in span.attributes


def sent_at(send: Span) -> int:
    """Return the earliest possible arrival of a message, in nanoseconds since 1970.

    It is the end of the call that encoded it, after which the bytes go to the socket; the start, if the call never
    ended.
    """
    return send.start_ns if send.open else send.end_ns


def pair(spans: Iterable[Span]) -> list[Message]:
    """Return the messages in the order of their sends: one for each receive of a send, or one without a receive.

    Only the order within a process counts, so the clocks of two machines may differ by any amount. A receive is paired
    with a send of another process, or else with an earlier send of another thread.
    """
    sends: dict[str, list[Span]] = {}
    receives: dict[str, list[Span]] = {}
    outer: set[str] = set()
    involved = (span for span in spans if names.MESSAGE_OPERATION in span.attributes)
    ordered = sorted(involved, key=lambda span: (span.thread[:2], span.start_ns, -span.end_ns))
    for span in ordered:
        if is_send(span):
            outer.add(span.span_id)
            if span.parent_span_id not in outer:  # `encode` may call `encode_into`
                sends.setdefault(str(span.attributes[names.MESSAGE_ID]), []).append(span)
        elif is_receive(span):
            receives.setdefault(str(span.attributes[names.MESSAGE_ID]), []).append(span)
    found: list[Message] = []
    for message_id, sent in sends.items():
        received = receives.get(message_id, [])
        taken = _match(sent, received)
        found += [Message(send, taken.get(id(send))) for send in sent]
        if len(sent) == 1 < len(received):
            seen = {span.thread[:2] for span in (sent[0], *taken.values())}
            for receive in received:
                if receive.thread[:2] not in seen:
                    seen.add(receive.thread[:2])
                    found.append(Message(sent[0], receive))
    return sorted(found, key=lambda message: message.send.start_ns)


def _match(sends: list[Span], receives: list[Span]) -> dict[int, Span]:
    """Return the receive of each send, by `id(send)`. All have one message id and are in their processes' order."""
    by_process: dict[tuple[str, int], _Unmatched] = {}
    for send in sends:
        by_process.setdefault(send.thread[:2], _Unmatched()).add(send)
    left = sorted(by_process, reverse=True)  # processes with unmatched sends; the last of the list is the first by name
    taken: dict[int, Span] = {}
    for receive in receives:
        if not left:
            break
        here = receive.thread[:2]
        elsewhere = [process for process in left[-2:] if process != here]
        sender = elsewhere[-1] if elsewhere else here
        found = by_process[sender].take(None if elsewhere else receive)
        if found is not None:
            taken[id(found)] = receive
            if not by_process[sender]:
                del left[-1 if left[-1] == sender else -2]
    return taken


class _Unmatched:
    """The sends of one process that have no receive yet."""

    def __init__(self) -> None:
        self._threads: dict[str, deque[Span]] = {}
        self._heads: list[
            tuple[int, int, str]
        ] = []  # a heap of the next send of each thread: start, tie-breaker, thread

    def __bool__(self) -> bool:
        return bool(self._heads)

    def add(self, send: Span) -> None:
        thread = send.thread[2]
        if thread not in self._threads:
            heapq.heappush(self._heads, (send.start_ns, len(self._threads), thread))
        self._threads.setdefault(thread, deque()).append(send)

    def take(self, receive: Span | None) -> Span | None:
        """Remove and return the earliest send.

        For a `receive` in the same process: the earliest one of another thread before it.
        """
        passed = []
        found = None
        while found is None and self._heads and (receive is None or self._heads[0][0] <= receive.start_ns):
            head = heapq.heappop(self._heads)
            waiting = self._threads[head[2]]
            if receive is None or (head[2] != receive.thread[2] and sent_at(waiting[0]) <= receive.start_ns):
                found = waiting.popleft()
                if waiting:
                    heapq.heappush(self._heads, (waiting[0].start_ns, *head[1:]))
            else:
                passed.append(head)
        for head in passed:
            heapq.heappush(self._heads, head)
        return found


def link(trace: Trace) -> None:
    """Give each receive a link to its send, with the message's id, unless it has one."""
    for message in trace.messages:
        send, receive = message.send, message.receive
        if receive is None or any(known.span_id == send.span_id for known in receive.links):
            continue
        new = Link(send.trace_id, send.span_id, {names.MESSAGE_ID: str(send.attributes[names.MESSAGE_ID])})
        receive.links = [*receive.links, new]
