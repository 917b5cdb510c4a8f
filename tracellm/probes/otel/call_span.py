"""A probed call as OpenTelemetry's current span: what `get_current_span()` gives inside it.

Its ids are those that the call is recorded with, so that spans opened there, and headers sent from there, have the
right parent. What is set on it is recorded with the call; and it is set on the user's own span around the call, too,
which would be the current one if nothing were recorded: so whatever the program exports by itself stays as it is.
"""

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanContext, TraceFlags

from tracellm.probes.context.call_context import CALL, PLACE, USER_UPDATE, CallContext, ThreadContext, TraceScope, state
from tracellm.probes.context.user_attributes import attributes_of, event_attributes, event_of_exception
from tracellm.probes.otel.context import was_attached_in

__all__ = ["STARTED", "CallSpan", "CallSpans", "PlaceOf", "is_recorded"]

PlaceOf = Callable[[int, ThreadContext], tuple[str, str | None]]

STARTED = "_tracellm_started"
"""The attribute of a user's span that holds what is known of its start, if it is to be recorded (user_spans.py)."""


class CallSpan(Span):
    """The call number `call`, 0 for the script; `under` is the user's span that it stands in front of.

    `begun` is the trace it belongs to, `recording` the first call of the recording, `text` whether texts are kept.
    """

    def __init__(self, context: SpanContext, call: int, begun: TraceScope | None, under: Span, text: bool) -> None:
        self.call = call
        self.begun = begun
        self.under = under
        self.recording = state.first
        self._context = context
        self._text = text

    def get_span_context(self) -> SpanContext:
        """The ids that the call is recorded with."""
        return self._context

    def is_recording(self) -> bool:
        """True until the recording ends; then the answer of the user's own span."""
        return (state.append is not None and state.first == self.recording) or self.under.is_recording()

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the call and of the user's span; so do all that follow."""
        self._add(attributes=attributes_of(attributes, self._text))
        self.under.set_attributes(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute."""
        self._add(attributes=attributes_of({key: value}, self._text))
        self.under.set_attribute(key, value)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Something that happened now, or at `timestamp`, nanoseconds since 1970."""
        self._add_event(name, attributes, timestamp)
        self.under.add_event(name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Another span that this is about."""
        if context.is_valid:
            ids = f"{context.trace_id:032x}", f"{context.span_id:016x}"
            self._add(link=(*ids, attributes_of(attributes, self._text)))
        self.under.add_link(context, attributes)

    def record_exception(
        self, exception: BaseException, attributes: Any = None, timestamp: int | None = None, escaped: bool = False
    ) -> None:
        """An exception, as an event."""
        self._add_event(*event_of_exception(exception, attributes, escaped), timestamp)
        self.under.record_exception(exception, attributes, timestamp, escaped)

    def update_name(self, name: str) -> None:
        """The name of the user's span; a call keeps its own."""
        self.under.update_name(name)

    def set_status(self, status: Any, description: str | None = None) -> None:
        """The status of the user's span; a call's is whether an exception left it."""
        self.under.set_status(status, description)

    def end(self, end_time: int | None = None) -> None:
        """End the user's span; a call ends by itself."""
        self.under.end(end_time)

    def _add(self, attributes: Mapping[str, Any] | None = None, event: Any = None, link: Any = None) -> None:
        append = state.append
        if append is not None and state.first == self.recording and (self.call or self.begun is None):
            now = state.clock()
            append((USER_UPDATE, self.call, 0, 0, now, now, (attributes or {}, event, link), None))

    def _add_event(self, name: str, attributes: Any, timestamp: int | None) -> None:
        time = state.clock() if timestamp is None else timestamp
        self._add(event=(name, event_attributes(attributes, self._text), time, timestamp is not None))


class CallSpans:
    """Calls as spans in OpenTelemetry's contexts.

    `place_of` gives the ids of a call (Builder.place_of); `sampled` is the flag of the parent from outside the process;
    without `text` no text of the user's is kept.
    """

    def __init__(self, place_of: PlaceOf, sampled: bool, text: bool) -> None:
        self._place_of = place_of
        self._sampled = sampled
        self._text = text

    def with_call(self, raw: Context, call: int, place: ThreadContext) -> Context:
        """The context in which this call, in this place, is the current span, with all else that `raw` holds."""
        around = trace.get_current_span(raw)
        trace_id, span_id = self._place_of(call, place)
        if span_id is None:  # a trace that has no span yet
            return trace.set_span_in_context(INVALID_SPAN, raw)
        ids = int(trace_id, 16), int(span_id, 16)
        parent = around.get_span_context()
        if (parent.trace_id, parent.span_id) == ids:
            return raw
        begun = place.whose
        if parent.is_valid and (begun is None or was_attached_in(raw, place)):
            sampled = parent.trace_flags.sampled
        else:
            sampled = self._sampled if begun is None else begun.sampled
        context = SpanContext(
            *ids,
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT),
            trace_state=parent.trace_state if parent.trace_id == ids[0] else None,
        )
        under = around.under if isinstance(around, CallSpan) else around
        return trace.set_span_in_context(CallSpan(context, call, begun, under, self._text), raw)

    def leads_to(self, context: Context, spot: CallContext) -> tuple[int, TraceScope | None] | None:
        """The call, and the trace, that what is called in this context belongs to; None where that is not recorded.

        `spot` is where the program is now.
        """
        span = trace.get_current_span(context)
        ids = span.get_span_context()
        if isinstance(span, CallSpan) and span.recording == state.first:
            return span.call, span.begun
        if not ids.is_valid or not ids.trace_flags.sampled:
            return None
        trace_id, span_id = trace.format_trace_id(ids.trace_id), trace.format_span_id(ids.span_id)
        call, place = spot[CALL], spot[PLACE]
        around = place.whose
        if (trace_id, span_id) == self._place_of(call, place):  # a span of the bare API: its parent's ids, and no more
            return call, around
        request = around is not None and around.request
        return 0, TraceScope(trace_id, span_id, state.first, request, outside=not is_recorded(span))


def is_recorded(span: Span) -> bool:
    """Whether this is a call, or a span of the user's, of this recording."""
    started = span if isinstance(span, CallSpan) else getattr(span, STARTED, None)
    return started is not None and started.recording == state.first
