"""OpenTelemetry's current span while something is recorded: whichever is innermost, a probed call or a user's span.

Both sides keep what is current in context variables: OpenTelemetry a `Context` for each `attach`, the probes a spot
(call_context.py). Here the two are tied together, without any cost to the probed calls:

- `get_current` adds the innermost probed call, as a span, to the context that a user attached, unless the user attached
  it within that call. Calls and attached contexts are numbered from one counter; the greater number is the inner one.
- `attach` of a context with a span of the user's own moves on to a new spot, where calls have that span for a parent.
- `detach` goes back to the spot before it. What a coroutine or a generator attaches and leaves, or detaches for others,
  is noticed when it ends or pauses (`settle`).

A span that is not sampled is nobody's parent in the recording, as it is not in it; but it is the current one,
and spans below a call in it are not sampled either.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opentelemetry.context.context import Context

from tracellm.probes.context.call_context import (
    CALL,
    PLACE,
    THREAD,
    CallContext,
    ThreadContext,
    TraceScope,
    get_ident,
    here,
    next_call,
    spot_here,
    state,
)

if TYPE_CHECKING:
    from tracellm.probes.otel.call_span import CallSpans

__all__ = ["Contexts", "was_attached_in"]

Function = Callable[..., Any]

ATTACHED, BACK = 4, 5
"""In a spot that `attach` moved on to: what was attached, and the spot to go back to."""

_DEEPEST = 1000
"""The number of contexts within one another that are kept: a program that never detaches must not keep them all."""


class AttachedContext(Context):
    """A context that was attached while something was recorded.

    Attributes:
        number: from the counter of calls: calls with a greater one began in it.
        recording: the first call of the recording.
        below: what it was attached on top of; None where that was nothing of the same recording.
        depth: how many are below it.
        within: the innermost of it and those below it that has a spot of its own; None for none.
        call, begun: the call, and the trace, that are current at that spot when no other call is under way.
    """

    number = 0
    recording = 0
    depth = 0
    below: "AttachedContext | None" = None
    within: "AttachedContext | None" = None
    call = 0
    begun: TraceScope | None = None


def _of_this_recording(context: Context | None) -> AttachedContext | None:
    """The context, if it was attached in the recording that is under way."""
    return context if isinstance(context, AttachedContext) and context.recording == state.first else None


def _is_innermost(context: Context, spot: CallContext) -> bool:
    """Was this context attached within the call that is under way, or is it the call that is within the context?"""
    if context.__class__ is not AttachedContext or context.recording != state.first:
        return False
    return context.number > spot[CALL] and context.number >= spot[PLACE].since


def _holds(top: AttachedContext | None, attached: AttachedContext) -> bool:
    """Is this one of the contexts that are attached?"""
    while top is not None and top.number > attached.number:
        top = top.below
    return top is attached


def was_attached_in(context: Context, place: ThreadContext) -> bool:
    """Was this context attached since the place came to be?"""
    attached = _of_this_recording(context)
    return attached is not None and attached.number >= place.since


class Contexts:
    """Replacements of `ContextVarsRuntimeContext`'s methods while a recording goes on.

    `spans` is None until `opentelemetry.trace` has been imported: before that no span can be current.
    """

    def __init__(self) -> None:
        self.spans: CallSpans | None = None
        self._read: Callable[[Any], Context] = _nothing
        self._runtime: Any = None
        self._last: tuple[Any, ...] = (None, None, 0, None)

    # -- what is patched ----------------------------------------------------------------------------------------------

    def get_current(self, old: Function) -> Function:
        """The context that was attached, in which the innermost probed call is the current span if it is inside."""
        self._read = old

        def get_current(runtime: Any) -> Context:
            raw: Context = old(runtime)
            if state.append is None or self.spans is None:
                return raw
            spot = spot_here()
            return raw if _is_innermost(raw, spot) else self._with_call(self.spans, raw, spot)

        return get_current

    def attach(self, old: Function) -> Function:
        """Attach, and have the probed calls that follow be called from the context's span."""

        def attach(runtime: Any, context: Context) -> Any:
            if state.append is None or self.spans is None or not isinstance(context, dict):
                return old(runtime, context)
            spot = spot_here()
            attached = self._attached(self.spans, context, self._read(runtime), spot)
            self._runtime, state.settle = runtime, self.settle
            token = old(runtime, attached)
            if attached.within is attached:
                here.set(_spot_within(attached, spot))
            return token

        return attach

    def detach(self, old: Function) -> Function:
        """Detach, and go back to where calls were made from before."""

        def detach(runtime: Any, token: Any) -> None:
            try:
                old(runtime, token)
            finally:
                if state.append is not None and state.settle is not None:
                    state.settle()

        return detach

    # -- inside -------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Be at the spot that fits what is attached, after something may have changed one without the other."""
        spot = here.get()
        if spot is None or spot[THREAD] != get_ident():
            return
        top = _of_this_recording(self._read(self._runtime))
        fitting = spot
        while _is_of_this_recording(fitting) and not _holds(top, fitting[ATTACHED]):
            fitting = fitting[BACK]
        within = None if top is None else top.within
        if within is not None and within.number > fitting[CALL]:
            if _is_of_this_recording(fitting) and fitting[ATTACHED] is within:
                fitting[CALL] = within.call  # a generator goes on, that had attached it
            elif within.number > fitting[PLACE].since:
                fitting = _spot_within(within, fitting)
        if fitting is not spot:
            here.set(fitting)

    def _with_call(self, spans: "CallSpans", raw: Context, spot: CallContext) -> Context:
        known, place, call, context = self._last
        if known is raw and place is spot[PLACE] and call == spot[CALL]:
            return context
        call, place = spot[CALL], spot[PLACE]
        context = spans.with_call(raw, call, place)
        self._last = (raw, place, call, context)
        return context

    def _attached(self, spans: "CallSpans", context: Context, before: Context, spot: CallContext) -> AttachedContext:
        attached = AttachedContext(context)
        attached.number, attached.recording = next_call(), state.first
        below = _of_this_recording(before)
        if below is not None and below.depth < _DEEPEST:
            attached.below, attached.within, attached.depth = below, below.within, below.depth + 1
        goes = spans.leads_to(context, spot)
        if goes is not None and goes != self._current(spans, before, spot):
            attached.call, attached.begun = goes
            attached.within = attached
        return attached

    def _current(self, spans: "CallSpans", before: Context, spot: CallContext) -> tuple[int, TraceScope | None] | None:
        """The call and the trace that what is called now belongs to; None if a span that is not recorded is current."""
        return spans.leads_to(before, spot) if _is_innermost(before, spot) else (spot[CALL], spot[PLACE].whose)


def _nothing(runtime: Any) -> Context:
    return Context()


def _is_of_this_recording(spot: CallContext) -> bool:
    """Did `attach` move on to this spot, in this recording?"""
    return len(spot) > ATTACHED and spot[ATTACHED].recording == state.first


def _spot_within(attached: AttachedContext, back: CallContext) -> CallContext:
    """A spot for what is called while this is attached, in the thread of the spot `back`, to return to."""
    if attached.depth % _DEEPEST == 0:
        while _is_of_this_recording(back):
            back = back[BACK]
    place: ThreadContext = back[PLACE]
    inner = ThreadContext(place.thread, place.thread_name, attached.begun, attached.number)
    return [attached.call, attached.call, place.thread, inner, attached, back]
