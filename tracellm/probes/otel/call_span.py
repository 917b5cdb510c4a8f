"""Probed calls as OpenTelemetry's current span, `get_current_span()` within a call.

OpenTelemetry: `opentelemetry.trace.NonRecordingSpan`, a span with nothing but ids, is the nearest counterpart.
"""

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanContext, TraceFlags

from tracellm.probes.context.call_context import (
    CALL,
    THREAD_CONTEXT,
    USER_UPDATE,
    CallContext,
    ThreadContext,
    TraceScope,
    state,
)
from tracellm.probes.context.user_attributes import attributes_of, event_attributes, event_of_exception, link_data
from tracellm.probes.otel.context import attached_now

__all__ = ["STARTED", "CallSpan", "CallSpans", "SpanIds", "is_recorded"]

SpanIds = Callable[[int, ThreadContext], tuple[str, str | None]]
"""Returns trace id and span id of a call (`CallIds.parent_in_thread`)."""

STARTED = "_tracellm_started"
"""Attribute of a user's span: how it started, if it is recorded (user_spans.py)."""


class CallSpan(Span):
    """A probed call as a span; made when a program asks for the current span.

    It has the ids that the call is recorded with, so spans opened and headers sent there have the right parent.
    Attributes, events and links set on it are recorded with the call. They are also passed to `user_span`, the user's
    enclosing span, which would be current without a recording. So the program exports the same as without one.

    Attributes:
        call: the call's number, 0 for the script.
        scope: the trace it belongs to.
        user_span: the user's span that it hides.
        recording: the first call of its recording.
    """

    def __init__(self, context: SpanContext, call: int, scope: TraceScope | None, user_span: Span, text: bool) -> None:
        self.call = call
        self.scope = scope
        self.user_span = user_span
        self.recording = state.first
        self._context = context
        self._text = text

    def get_span_context(self) -> SpanContext:
        """Return the ids that the call is recorded with."""
        return self._context

    def is_recording(self) -> bool:
        """Return True until the recording ends; then the answer of the user's span."""
        return (state.append is not None and state.first == self.recording) or self.user_span.is_recording()

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the call and of the user's span."""
        self._add(attributes=attributes_of(attributes, self._text))
        self.user_span.set_attributes(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set an attribute of the call and of the user's span."""
        self._add(attributes=attributes_of({key: value}, self._text))
        self.user_span.set_attribute(key, value)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Add an event, now or at `timestamp`, nanoseconds since 1970."""
        self._add_event(name, attributes, timestamp)
        self.user_span.add_event(name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Add a link to another span."""
        if context.is_valid:
            self._add(link=link_data(context, attributes, self._text))
        self.user_span.add_link(context, attributes)

    def record_exception(
        self, exception: BaseException, attributes: Any = None, timestamp: int | None = None, escaped: bool = False
    ) -> None:
        """Add an exception as an event."""
        self._add_event(*event_of_exception(exception, attributes, escaped), timestamp)
        self.user_span.record_exception(exception, attributes, timestamp, escaped)

    def update_name(self, name: str) -> None:
        """Rename the user's span; a call keeps its name."""
        self.user_span.update_name(name)

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Set the status of the user's span; a call's depends on its exception."""
        self.user_span.set_status(status, description)

    def end(self, end_time: int | None = None) -> None:
        """End the user's span; a call ends by itself."""
        self.user_span.end(end_time)

    def _add(self, attributes: Mapping[str, Any] | None = None, event: Any = None, link: Any = None) -> None:
        append = state.append
        if append is not None and state.first == self.recording and (self.call or self.scope is None):
            now = state.clock()
            append((USER_UPDATE, self.call, 0, 0, now, now, (attributes or {}, event, link), None))

    def _add_event(self, name: str, attributes: Any, timestamp: int | None) -> None:
        time = state.clock() if timestamp is None else timestamp
        self._add(event=(name, event_attributes(attributes, self._text), time, timestamp is not None))


class CallSpans:
    """Maps between calls and spans in OpenTelemetry's contexts.

    `sampled` is the flag of the parent outside this process; without `text` no user's text is kept.
    """

    def __init__(self, span_ids: SpanIds, sampled: bool, text: bool) -> None:
        self._span_ids = span_ids
        self._sampled = sampled
        self._text = text

    def with_call(self, raw: Context, call: int, thread: ThreadContext) -> Context:
        """Return `raw` with this call as the current span."""
        enclosing = trace.get_current_span(raw)
        trace_id, span_id = self._span_ids(call, thread)
        if span_id is None:  # a trace without any span yet
            return trace.set_span_in_context(INVALID_SPAN, raw)
        ids = int(trace_id, 16), int(span_id, 16)
        parent = enclosing.get_span_context()
        if (parent.trace_id, parent.span_id) == ids:
            return raw
        scope = thread.active_scope
        attached = attached_now(raw)
        if parent.is_valid and (scope is None or (attached is not None and attached.number >= thread.since)):
            sampled = parent.trace_flags.sampled
        else:
            sampled = self._sampled if scope is None else scope.sampled
        context = SpanContext(
            *ids,
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT),
            trace_state=parent.trace_state if parent.trace_id == ids[0] else None,
        )
        user_span = enclosing.user_span if isinstance(enclosing, CallSpan) else enclosing
        return trace.set_span_in_context(CallSpan(context, call, scope, user_span, self._text), raw)

    def parent_in(self, context: Context, current: CallContext) -> tuple[int, TraceScope | None] | None:
        """Return the call and the trace that calls made in this context belong to; None if that is not recorded."""
        span = trace.get_current_span(context)
        ids = span.get_span_context()
        if isinstance(span, CallSpan) and span.recording == state.first:
            return span.call, span.scope
        if not ids.is_valid or not ids.trace_flags.sampled:
            return None
        trace_id, span_id = trace.format_trace_id(ids.trace_id), trace.format_span_id(ids.span_id)
        call, thread = current[CALL], current[THREAD_CONTEXT]
        scope = thread.active_scope
        if (trace_id, span_id) == self._span_ids(call, thread):  # a span of the bare API: only its parent's ids
            return call, scope
        request = scope is not None and scope.request
        return 0, TraceScope(trace_id, span_id, state.first, request, outside=not is_recorded(span))


def is_recorded(span: Span) -> bool:
    """Return whether this is a call or a user's span of the current recording."""
    started = span if isinstance(span, CallSpan) else getattr(span, STARTED, None)
    return started is not None and started.recording == state.first
