"""OpenTelemetry's current span during a recording: the innermost probed call or user's span.

Both sides keep what is current in context variables: OpenTelemetry a `Context` for each `attach`, the probes a call
context (call_context.py). This module keeps the two consistent, at no cost to probed calls:

- `get_current` adds the innermost probed call, as a span, to the attached context, unless that was attached within the
  call. Calls and attached contexts are numbered from one counter; the greater number is the inner one.
- `attach` of a context with a user's span sets a new call context, in which calls have that span as parent.
- `detach` restores the call context before it. `reconcile` finds contexts that a coroutine or generator left attached,
  or detached for others, when it ends or pauses.

A span that is not sampled is not in the recording and parents nothing there. It is still the current span, and spans
below a call in it are not sampled either.
"""

from _thread import get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opentelemetry.context.context import Context

from tracellm.probes.context.call_context import (
    CALL,
    THREAD_CONTEXT,
    THREAD_ID,
    CallContext,
    ThreadContext,
    TraceScope,
    context_var,
    current_context,
    next_call,
    state,
)

if TYPE_CHECKING:  # call_span.py imports opentelemetry.trace, which is not there yet when this is imported
    from tracellm.probes.otel.call_span import CallSpans

__all__ = ["AttachedContext", "Contexts", "attached_now"]

Function = Callable[..., Any]
ATTACHED, BACK = 4, 5
"""Further items of a call context that `attach` made: what was attached, and the call context before it."""

_MAX_DEPTH = 1000
"""Number of nested contexts kept, for programs that never detach."""


class AttachedContext(Context):
    """A context that was attached during a recording.

    Attributes:
        number: from the counter of calls; calls with a greater one began within it.
        recording: the first call of the recording.
        below: the context it was attached on top of; None if that is not of this recording.
        depth: number of contexts below it.
        within: the innermost of it and those below that has a call context of its own, or None.
        call, scope: call and trace that are current in that call context while no other call is under way.
    """

    number = 0
    recording = 0
    depth = 0
    below: "AttachedContext | None" = None
    within: "AttachedContext | None" = None
    call = 0
    scope: TraceScope | None = None


def attached_now(context: Context | None) -> AttachedContext | None:
    """Return the context if it was attached during the current recording."""
    return context if isinstance(context, AttachedContext) and context.recording == state.first else None


def _is_innermost(context: Context, current: CallContext) -> bool:
    """Return whether the context was attached within the call under way, rather than before it."""
    if context.__class__ is not AttachedContext or context.recording != state.first:
        return False
    return context.number > current[CALL] and context.number >= current[THREAD_CONTEXT].since


def _is_attached(attached: AttachedContext, top: AttachedContext | None) -> bool:
    """Return whether this is `top` or one of those below it."""
    while top is not None and top.number > attached.number:
        top = top.below
    return top is attached


def _is_from_attach(context: CallContext) -> bool:
    """Return whether `attach` made this call context, in this recording."""
    return len(context) > ATTACHED and context[ATTACHED].recording == state.first


def _context_within(attached: AttachedContext, back: CallContext) -> CallContext:
    """Return a call context for calls made while this is attached; `back` is the one to return to."""
    if attached.depth % _MAX_DEPTH == 0:
        while _is_from_attach(back):
            back = back[BACK]
    thread: ThreadContext = back[THREAD_CONTEXT]
    inner = ThreadContext(thread.thread, thread.thread_name, attached.scope, attached.number)
    return [attached.call, attached.call, thread.thread, inner, attached, back]


class Contexts:
    """Replacements of `ContextVarsRuntimeContext`'s methods during a recording.

    `spans` is None until `opentelemetry.trace` is imported: before that no span can be current.
    """

    def __init__(self) -> None:
        self.spans: CallSpans | None = None
        self._read: Callable[[Any], Context] = lambda runtime: Context()
        self._runtime: Any = None
        self._last: tuple[Any, ...] = (None, None, 0, None)  # cached arguments and result of `_with_call`

    def get_current(self, old: Function) -> Function:
        """Patch `get_current`: the innermost probed call is the current span if it is inside the attached one."""
        self._read = old

        def get_current(runtime: Any) -> Context:
            raw: Context = old(runtime)
            if state.append is None or self.spans is None:
                return raw
            current = current_context()
            return raw if _is_innermost(raw, current) else self._with_call(self.spans, raw, current)

        return get_current

    def attach(self, old: Function) -> Function:
        """Patch `attach`: make the context's span the parent of the probed calls that follow."""

        def attach(runtime: Any, context: Context) -> Any:
            if state.append is None or self.spans is None or not isinstance(context, dict):
                return old(runtime, context)
            current = current_context()
            attached = self._attached(self.spans, context, self._read(runtime), current)
            self._runtime, state.reconcile = runtime, self.reconcile
            token = old(runtime, attached)
            if attached.within is attached:
                context_var.set(_context_within(attached, current))
            return token

        return attach

    def detach(self, old: Function) -> Function:
        """Patch `detach`: restore the parent of calls from before."""

        def detach(runtime: Any, token: Any) -> None:
            try:
                old(runtime, token)
            finally:
                if state.append is not None and state.reconcile is not None:
                    state.reconcile()

        return detach

    def reconcile(self) -> None:
        """Set the call context that fits the attached context, after either may have changed alone."""
        current = context_var.get()
        if current is None or current[THREAD_ID] != get_ident():
            return
        top = attached_now(self._read(self._runtime))
        fitting = current
        while _is_from_attach(fitting) and not _is_attached(fitting[ATTACHED], top):
            fitting = fitting[BACK]
        within = None if top is None else top.within
        if within is not None and within.number > fitting[CALL]:
            if _is_from_attach(fitting) and fitting[ATTACHED] is within:
                fitting[CALL] = within.call  # the generator that attached it continues
            elif within.number > fitting[THREAD_CONTEXT].since:
                fitting = _context_within(within, fitting)
        if fitting is not current:
            context_var.set(fitting)

    def _with_call(self, spans: "CallSpans", raw: Context, current: CallContext) -> Context:
        call, thread = current[CALL], current[THREAD_CONTEXT]
        last_raw, last_thread, last_call, context = self._last
        if last_raw is not raw or last_thread is not thread or last_call != call:
            context = spans.with_call(raw, call, thread)
            self._last = (raw, thread, call, context)
        return context

    def _attached(self, spans: "CallSpans", context: Context, before: Context, current: CallContext) -> AttachedContext:
        attached = AttachedContext(context)
        attached.number, attached.recording = next_call(), state.first
        below = attached_now(before)
        if below is not None and below.depth < _MAX_DEPTH:
            attached.below, attached.within, attached.depth = below, below.within, below.depth + 1
        parent = spans.parent_in(context, current)
        in_front = _is_innermost(before, current)
        call_now = current[CALL], current[THREAD_CONTEXT].active_scope
        if parent is not None and parent != (spans.parent_in(before, current) if in_front else call_now):
            attached.call, attached.scope = parent
            attached.within = attached
        return attached
