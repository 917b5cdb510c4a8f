"""The calls of a recording as an expectation sees them: in the order in which they began, each with who made it.

A diagram leaves most calls out. So a call's caller is not always the one just around it:

- Lifelines that the expectation does not have are seen through: the caller is the nearest call around it whose lifeline
  the expectation has. Nor need a call around it be the caller when the expectation draws no such call: then the nearest
  one that it does draw may be. The outermost calls of a process or thread count as made by their own lifeline.
- A loop (`tracellm.call.kind`) goes on for as long as the engine does, and a diagram draws each turn. It counts as
  beginning again just before each call that it makes itself.
- A message between processes is something that the sender's lifeline asks of the receiver's, by the message's type. It
  may stand where it was sent or where it arrived.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tracellm.trace import names
from tracellm.trace.expect.arrows import plain
from tracellm.trace.model import Span, Trace

__all__ = ["ANYONE", "Call", "calls"]

ANYONE = ""
"""Among the callers of an HTTP request: whoever sent it is not recorded."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, or one turn of a loop, or one end of a message.

    Attributes:
        time_ns: when it began.
        span: the span of it.
        names: what the method is called.
        owner: the class that defines it; empty for a function and for a message.
        callers: the lifelines that may count as the one that made it.
        targets: the lifelines that may count as the one that was called.
        begun_by: the span with which it began: of a loop's turn the call that it makes, else `span`.
    """

    time_ns: int
    span: Span
    names: tuple[str, ...]
    owner: str
    callers: frozenset[str]
    targets: frozenset[str]
    begun_by: Span


def calls(
    trace: Trace, known: frozenset[str], drawn: Callable[[str, tuple[str, ...]], bool], partial: bool = False
) -> list[Call]:
    """All calls of a trace, in order. Takes time in proportion to their number.

    Args:
        trace: the recording.
        known: the lifelines that the expectation has.
        drawn: whether it has a call on this lifeline by one of these names.
        partial: whether it leaves out some calls that it draws elsewhere: then every call around one may be its caller.
    """
    return list(_Reader(trace, known, drawn, partial).read())


class _Around(NamedTuple):
    """The lifelines of the nearest call around one that is known, and of the nearest that is drawn.

    `outermost`: there is none on a known lifeline.
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
        self._callers: dict[str, _Around] = {}
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
        """The loops that take a turn with this call, the innermost first."""
        found: list[Span] = []
        around = self._trace.parent(span)
        while around is not None and around.attributes.get(names.CALL_KIND) == "loop":
            found.append(around)
            around = self._trace.parent(around)
        return found

    def _call(self, span: Span) -> Call:
        call = self._calls.get(span.span_id)
        if call is None:
            lifeline = plain(span.lifeline)
            on_known, drawn, outermost = self._around(span)
            callers = {name for name in (on_known, drawn) if name is not None}
            if self._partial:
                callers |= self._all_around(span)
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
        """The lifelines that may count as the sender, or the receiver, of the message that this span is of."""
        return self._call(span).callers | {plain(span.lifeline)}

    def _all_around(self, span: Span) -> set[str]:
        found: set[str] = set()
        above = self._trace.parent(span)
        while above is not None:
            found.add(plain(above.lifeline))
            above = self._trace.parent(above)
        return found

    def _around(self, span: Span) -> _Around:
        """The calls around a call."""
        path: list[Span] = []
        here: Span | None = span
        while here is not None and here.span_id not in self._callers:
            path.append(here)
            here = self._trace.parent(here)
        for one in reversed(path):
            parent = self._trace.parent(one)
            if parent is None or names.HTTP_METHOD in one.attributes:  # nobody in the server asked for a request
                self._callers[one.span_id] = _Around(None, None, True)
                continue
            around = self._callers[parent.span_id]
            lifeline = plain(parent.lifeline)
            if parent.name != names.REQUEST_SPAN and lifeline in self._known:
                drawn = lifeline if self._drawn(lifeline, _names(parent)) else around.drawn
                # That an HTTP request was served is seldom drawn; what it calls first is the outermost call then.
                outermost = names.HTTP_METHOD in parent.attributes and not drawn
                around = _Around(lifeline, drawn, outermost)
            self._callers[one.span_id] = around
        return self._callers[span.span_id]


def _names(span: Span) -> tuple[str, ...]:
    also = span.attributes.get(names.ALSO_CALLED)
    return (span.method, also) if isinstance(also, str) and also else (span.method,)


def _owner(span: Span) -> str:
    """The class that defines the method, where the span has it."""
    defined = str(span.attributes.get(names.CODE_FUNCTION, "")) or span.name
    return defined.rpartition(".")[0].rpartition(".")[2]
