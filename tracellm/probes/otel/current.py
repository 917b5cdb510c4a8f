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

from tracellm.probes.otel.attached import was_attached_in
from tracellm.probes.otel.told import event_of_exception
from tracellm.probes.state import Begun, Place, Told, state

__all__ = ["STARTED", "CurrentCall", "PlaceOf", "Spans", "is_recorded"]

PlaceOf = Callable[[int, Place], tuple[str, str | None]]

STARTED = "_tracellm_started"
"""The attribute of a user's span that holds what is known of its start, if it is to be recorded (user_spans.py)."""


class CurrentCall(Span):
    """The call number `call`, 0 for the script; `under` is the user's span that it stands in front of.

    `begun` is the trace the call belongs to, `recording` the first call of the recording.
    """

    def __init__(self, context: SpanContext, call: int, begun: Begun | None, under: Span) -> None:
        self.call = call
        self.begun = begun
        self.under = under
        self.recording = state.first
        self._context = context

    def get_span_context(self) -> SpanContext:
        """The ids that the call is recorded with."""
        return self._context

    def is_recording(self) -> bool:
        """Until the recording ends; then it is for the user's own span to say."""
        return self._tells() or self.under.is_recording()

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Of the call and of the user's span, as all that follows."""
        self._tell(Told(self.call, attributes=dict(attributes)))
        self.under.set_attributes(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """One attribute."""
        self._tell(Told(self.call, attributes={key: value}))
        self.under.set_attribute(key, value)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Something that happened now, or at `timestamp`, nanoseconds since 1970."""
        self._tell_event(name, dict(attributes or {}), timestamp)
        self.under.add_event(name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Another span that this is about."""
        if context.is_valid:
            self._tell(Told(self.call, link=(context.trace_id, context.span_id, dict(attributes or {}))))
        self.under.add_link(context, attributes)

    def record_exception(
        self, exception: BaseException, attributes: Any = None, timestamp: int | None = None, escaped: bool = False
    ) -> None:
        """An exception, as an event."""
        self._tell_event(*event_of_exception(exception, attributes, escaped), timestamp)
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

    def _tells(self) -> bool:
        return state.append is not None and state.first == self.recording

    def _tell(self, told: Told) -> None:
        append = state.append
        if append is not None and state.first == self.recording and (self.call or self.begun is None):
            append(told)

    def _tell_event(self, name: str, attributes: dict[str, Any], timestamp: int | None) -> None:
        time = state.clock() if timestamp is None else timestamp
        self._tell(Told(self.call, event=(name, attributes, time, timestamp is not None)))


class Spans:
    """What contexts have to do with spans.

    `place_of` gives the ids of a call (Builder.place_of); `sampled` is what a parent from outside the process said.
    """

    def __init__(self, place_of: PlaceOf, sampled: bool) -> None:
        self._place_of = place_of
        self._sampled = sampled

    def with_call(self, raw: Context, call: int, place: Place) -> Context:
        """The context in which this call, in this place, is the current span, with all else that `raw` holds."""
        around = trace.get_current_span(raw)
        trace_id, span_id = self._place_of(call, place)
        if span_id is None:  # a trace that has no span yet
            return trace.set_span_in_context(INVALID_SPAN, raw)
        ids = int(trace_id, 16), int(span_id, 16)
        told = around.get_span_context()
        if (told.trace_id, told.span_id) == ids:
            return raw
        begun = place.whose
        if told.is_valid and (begun is None or was_attached_in(raw, place)):
            sampled = told.trace_flags.sampled
        else:
            sampled = self._sampled if begun is None else begun.sampled
        context = SpanContext(
            *ids,
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT),
            trace_state=told.trace_state if told.trace_id == ids[0] else None,
        )
        under = around.under if isinstance(around, CurrentCall) else around
        return trace.set_span_in_context(CurrentCall(context, call, begun, under), raw)

    def leads_to(self, context: Context, around: Begun | None) -> tuple[int, Begun | None] | None:
        """The call, and the trace, that what is called in this context belongs to; None where that is not recorded.

        `around` is the trace it belongs to otherwise.
        """
        span = trace.get_current_span(context)
        told = span.get_span_context()
        if isinstance(span, CurrentCall) and span.recording == state.first:
            return span.call, span.begun
        if not told.is_valid or not told.trace_flags.sampled:
            return None
        trace_id, span_id = trace.format_trace_id(told.trace_id), trace.format_span_id(told.span_id)
        request = around is not None and around.request
        return 0, Begun(trace_id, span_id, state.first, request, outside=not is_recorded(span))


def is_recorded(span: Span) -> bool:
    """Whether this is a call, or a span of the user's, of this recording."""
    if isinstance(span, CurrentCall):
        return span.recording == state.first
    started = getattr(span, STARTED, None)
    return started is not None and started.recording == state.first
