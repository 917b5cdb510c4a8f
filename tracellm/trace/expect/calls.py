"""The calls of a recording as an expectation sees them, with their callers, and which calls came before which.

A diagram leaves most calls out. So the caller of a call is not always the directly enclosing one:

- Lifelines that the expectation lacks are skipped. The caller is the nearest enclosing call that the expectation draws,
  or whose lifeline it has. The outermost calls of a process or thread count as made by their own lifeline.
- A loop (`tracellm.call.kind`) lasts as long as the engine, and a diagram draws each iteration. It counts as beginning
  again just before each call that it makes.
- A message between processes is a call by the sender's lifeline on the receiver's, named by the message's type. It may
  stand where it was sent or where it arrived.

Within a process, calls are ordered by their start. Two processes run side by side, so between them only causes count: a
message's sending before what follows its arrival; a call before what it made in another process; and what that process
did until the call returned before what its caller did afterwards.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tracellm.trace import names
from tracellm.trace.expect.read import plain
from tracellm.trace.model import Span, Trace

__all__ = ["ANYONE", "Call", "Causes", "calls"]


ANYONE = ""
"""Caller of an HTTP request, whose sender is not recorded."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, or one iteration of a loop, or one end of a message.

    Attributes:
        time_ns: start.
        span: its span.
        names: names of the method.
        owner: the class that defines it; empty for a function and for a message.
        callers: the lifelines that count as its caller.
        targets: the lifelines that count as called.
        started_by: the span whose start it shares: for an iteration of a loop the call that it makes, else `span`.
    """

    time_ns: int
    span: Span
    names: tuple[str, ...]
    owner: str
    callers: frozenset[str]
    targets: frozenset[str]
    started_by: Span


def calls(
    trace: Trace, known: frozenset[str], drawn: Callable[[str, tuple[str, ...]], bool], partial: bool = False
) -> list[Call]:
    """Return all calls of a trace, in order, in linear time.

    Args:
        trace: the recording.
        known: the lifelines of the expectation.
        drawn: whether the expectation has a call on this lifeline by one of these names.
        partial: whether it leaves out some calls that it draws elsewhere. Then every enclosing call may be the caller.
    """
    return list(_Reader(trace, known, drawn, partial).read())


class _Enclosing(NamedTuple):
    """Lifelines of the nearest enclosing call that is known, and of the nearest that is drawn.

    `outermost`: no enclosing call is on a known lifeline.
    """

    known: str | None
    drawn: str | None
    outermost: bool


class _Reader:
    def __init__(
        self, trace: Trace, known: frozenset[str], drawn: Callable[[str, tuple[str, ...]], bool], partial: bool
    ) -> None:
        self._partial = partial
        self._trace = trace
        self._known = known
        self._drawn = drawn
        self._callers: dict[str, _Enclosing] = {}
        self._calls: dict[str, Call] = {}
        self._sent = {message.send.span_id: message for message in trace.messages}
        self._received = {message.receive.span_id: message for message in trace.messages if message.receive}

    def read(self) -> Iterator[Call]:
        depths: dict[str, int] = {}
        for root in self._trace.roots:
            for depth, span in self._trace.walk(root):
                depths[span.span_id] = depth
        for span in sorted(self._trace.spans, key=lambda span: (span.start_ns, depths.get(span.span_id, 0))):
            if span.name == names.REQUEST_SPAN:
                continue
            for loop in reversed(self._loops(span)):
                again = self._call(loop)
                yield Call(span.start_ns, loop, again.names, again.owner, again.callers, again.targets, span)
            yield self._call(span)
            message = self._sent.get(span.span_id) or self._received.get(span.span_id)
            if message is not None and message.receive is not None:
                kind = str(message.send.attributes.get(names.MESSAGE_TYPE, ""))
                yield Call(
                    span.start_ns, span, (kind,), "", self._ends(message.send), self._ends(message.receive), span
                )

    def _loops(self, span: Span) -> list[Span]:
        """Return the loops that begin an iteration with this call, the innermost first."""
        found: list[Span] = []
        enclosing = self._trace.parent(span)
        while enclosing is not None and enclosing.attributes.get(names.CALL_KIND) == "loop":
            found.append(enclosing)
            enclosing = self._trace.parent(enclosing)
        return found

    def _call(self, span: Span) -> Call:
        call = self._calls.get(span.span_id)
        if call is None:
            lifeline = plain(span.lifeline)
            on_known, drawn, outermost = self._enclosing(span)
            callers = {name for name in (on_known, drawn) if name is not None}
            if self._partial:
                callers |= self._all_enclosing(span)
            if names.HTTP_METHOD in span.attributes:
                callers.add(ANYONE)
            if outermost:
                callers |= {lifeline, plain(span.process.name) if span.process else lifeline}
            call = Call(
                span.start_ns, span, _names(span), _owner(span), frozenset(callers), frozenset({lifeline}), span
            )
            self._calls[span.span_id] = call
        return call

    def _ends(self, span: Span) -> frozenset[str]:
        """Return the lifelines that count as sender, or receiver, of the message of this span."""
        return self._call(span).callers | {plain(span.lifeline)}

    def _all_enclosing(self, span: Span) -> set[str]:
        found: set[str] = set()
        above = self._trace.parent(span)
        while above is not None:
            found.add(plain(above.lifeline))
            above = self._trace.parent(above)
        return found

    def _enclosing(self, span: Span) -> _Enclosing:
        """Return the lifelines of the enclosing calls."""
        path: list[Span] = []
        here: Span | None = span
        while here is not None and here.span_id not in self._callers:
            path.append(here)
            here = self._trace.parent(here)
        for ancestor in reversed(path):
            parent = self._trace.parent(ancestor)
            if (
                parent is None or names.HTTP_METHOD in ancestor.attributes
            ):  # the server did not send the request to itself
                self._callers[ancestor.span_id] = _Enclosing(None, None, True)
                continue
            enclosing = self._callers[parent.span_id]
            lifeline = plain(parent.lifeline)
            if parent.name != names.REQUEST_SPAN and lifeline in self._known:
                drawn = lifeline if self._drawn(lifeline, _names(parent)) else enclosing.drawn
                # the handling of an HTTP request is seldom drawn: what it calls first is then an outermost call
                outermost = names.HTTP_METHOD in parent.attributes and not drawn
                enclosing = _Enclosing(lifeline, drawn, outermost)
            self._callers[ancestor.span_id] = enclosing
        return self._callers[span.span_id]


def _names(span: Span) -> tuple[str, ...]:
    also = span.attributes.get(names.ALSO_CALLED)
    return (span.method, also) if isinstance(also, str) and also else (span.method,)


def _owner(span: Span) -> str:
    """Return the class that defines the method, if recorded."""
    defined = str(span.attributes.get(names.CODE_FUNCTION, "")) or span.name
    return defined.rpartition(".")[0].rpartition(".")[2]


class Causes:
    """The calls of a recording, and for each the last call of every process that came before it."""

    def __init__(self, trace: Trace, calls: Sequence[Call]) -> None:
        self._process: list[int] = []
        self._before: list[tuple[int, ...]] = []
        numbers: dict[tuple[str, int], int] = {}
        for call in calls:
            numbers.setdefault(call.span.thread[:2], len(numbers))
        self.processes = len(numbers)
        first: dict[str, int] = {}
        sends = {message.receive.span_id: message.send.span_id for message in trace.messages if message.receive}
        returns = _returns(trace, numbers)
        at = 0
        now = [(-1,) * self.processes for _ in numbers]
        for i, call in enumerate(calls):
            while at < len(returns) and returns[at][0] <= call.time_ns:
                _, caller, other = returns[at]
                now[caller] = _later(now[caller], now[other])
                at += 1
            here = numbers[call.span.thread[:2]]
            for cause in (sends.get(call.started_by.span_id), call.started_by.parent_span_id):
                if cause in first and self._process[first[cause]] != here:
                    now[here] = _later(now[here], self._before[first[cause]])
            now[here] = (*now[here][:here], i, *now[here][here + 1 :])
            self._process.append(here)
            self._before.append(now[here])
            first.setdefault(call.span.span_id, i)

    def in_turn(self, candidates: Sequence[Sequence[int]]) -> dict[int, int]:
        """Return the earliest possible call for each arrow that did not come before a call found already."""
        found: dict[int, int] = {}
        done: tuple[int, ...] = (-1,) * self.processes
        for i, matching in enumerate(self._by_process(candidates)):
            free = [
                at[index] for process, at in matching.items() if (index := bisect_right(at, done[process])) < len(at)
            ]
            if free:
                found[i] = min(free)
                done = _later(done, self._before[found[i]])
        return found

    def _by_process(self, candidates: Sequence[Sequence[int]]) -> list[dict[int, list[int]]]:
        split_calls: dict[int, dict[int, list[int]]] = {}  # arrows of one kind share their list of calls
        for matching in candidates:
            if id(matching) not in split_calls:
                split: dict[int, list[int]] = {}
                for index in matching:
                    split.setdefault(self._process[index], []).append(index)
                split_calls[id(matching)] = split
        return [split_calls[id(matching)] for matching in candidates]


def _later(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(max, before, after))


def _returns(trace: Trace, numbers: dict[tuple[str, int], int]) -> list[tuple[int, int, int]]:
    """List the returns of calls that made a call in another process, in order: time, own process, other process."""
    found: set[tuple[int, int, int]] = set()
    for span in trace.spans:
        parent: Span | None = trace.parent(span)
        if parent is None or parent.open or parent.thread[:2] == span.thread[:2]:
            continue
        if parent.thread[:2] in numbers and span.thread[:2] in numbers:
            found.add((parent.end_ns, numbers[parent.thread[:2]], numbers[span.thread[:2]]))
    return sorted(found)
