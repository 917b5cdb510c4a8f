"""The spans that a program opens with OpenTelemetry's SDK become part of the recording.

A span processor sees them start and end; it is added to each tracer provider from which the program gets a tracer while
something is recorded, and to the global one. They go wherever their program sends them, untouched. A processor cannot
be removed: it does nothing between recordings.

Times are moved to the recording's clock by what that and the wall clock read when the processor was called, so that a
span lies within the calls around it. Spans that are not sampled, and those that began before the recording did, are not
in it.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import time_ns
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace import Span as SdkSpan
from opentelemetry.trace import SpanKind, StatusCode

from tracellm.probes.context.call_context import USER_SPAN, call_and_place, next_call, state
from tracellm.probes.context.exceptions import remember
from tracellm.probes.context.user_attributes import attributes_of, event_attributes, link_data
from tracellm.probes.otel.call_span import STARTED, PlaceOf, is_recorded
from tracellm.probes.wrapping.call_site import Where, caller, caller_attributes
from tracellm.probes.wrapping.probe import Mistake
from tracellm.trace import names

__all__ = ["Started", "UserSpans", "span_data"]

Function = Callable[..., Any]

_OTLP = "opentelemetry.exporter.otlp"

_DROPPED = {
    names.DROPPED_ATTRIBUTES: "dropped_attributes",
    names.DROPPED_EVENTS: "dropped_events",
    names.DROPPED_LINKS: "dropped_links",
}
"""The properties of an SDK's span that count what was beyond its limits."""


@dataclass(frozen=True, slots=True)
class Started:
    """The start of a user's span.

    Attributes:
        number: from the counter of calls.
        recording: the first call of the recording.
        shift_ns: the recording's clock less the wall clock.
        parent: the span id of its parent; None for a root.
        attributes: those that are known from the start: the caller's line, the thread.
    """

    number: int
    recording: int
    shift_ns: int
    parent: str | None
    attributes: Mapping[str, Any]


class _Processor(SpanProcessor):
    """Hands the spans of one provider to the recording that is under way.

    Attributes:
        sent: the program sends the provider's spans by OTLP itself.
        is_added: it is one of the provider's processors.
    """

    recorder: "UserSpans | None" = None
    """Shared by all providers, as there is one recording at a time."""

    def __init__(self, sent: bool) -> None:
        self.sent = sent
        self.is_added = False

    def on_start(self, span: SdkSpan, parent_context: Context | None = None) -> None:
        if self.recorder is not None:
            self.recorder.started(span, parent_context, self)

    def on_end(self, span: ReadableSpan) -> None:
        if self.recorder is not None:
            self.recorder.ended(span, self)


_processors: WeakKeyDictionary[TracerProvider, _Processor] = WeakKeyDictionary()


class UserSpans:
    """Records users' spans in one recording. `place_of` gives the ids of calls (CallIds.place_of)."""

    def __init__(self, text: bool, place_of: PlaceOf, mistakes: list[Mistake]) -> None:
        self._text = text
        self._place_of = place_of
        self._mistakes = mistakes
        self._open: dict[tuple[int, int], Started] = {}
        _Processor.recorder = self

    # -- providers ----------------------------------------------------------------------------------------------------

    def follow(self, provider: Any) -> None:
        """Record the spans of this provider from here on, if it is the SDK's."""
        with self._guarded("provider"):
            if isinstance(provider, TracerProvider) and not (processor := _processor_of(provider)).is_added:
                processor.is_added = True
                TracerProvider.add_span_processor(provider, processor)  # a subclass's may put it in another's place

    def new_provider(self, old: Function) -> Function:
        """`TracerProvider.__init__`: of a provider whose beginning was seen all exporters will be seen."""

        def __init__(provider: Any, *args: Any, **kwargs: Any) -> None:
            old(provider, *args, **kwargs)
            _processors[provider] = _Processor(sent=False)

        return __init__

    def add_span_processor(self, old: Function) -> Function:
        """`TracerProvider.add_span_processor`, which shows whether the program sends the spans by OTLP itself."""

        def add_span_processor(provider: Any, span_processor: Any) -> None:
            old(provider, span_processor)
            exporter = getattr(span_processor, "span_exporter", None)
            if any(kind.__module__.startswith(_OTLP) for kind in type(exporter).__mro__):
                _processor_of(provider).sent = True

        return add_span_processor

    def get_tracer(self, old: Function) -> Function:
        """`TracerProvider.get_tracer`, from which on the provider's spans are recorded."""

        def get_tracer(provider: Any, *args: Any, **kwargs: Any) -> Any:
            self.follow(provider)
            return old(provider, *args, **kwargs)

        return get_tracer

    # -- spans --------------------------------------------------------------------------------------------------------

    def started(self, span: SdkSpan, context: Context | None, processor: _Processor) -> None:
        """Note that a span has begun, with the parent that is in `context`, or is the current one if that is None."""
        ids = _ids(span)
        if state.append is None or ids in self._open or not span.get_span_context().trace_flags.sampled:
            return
        with self._guarded("start"):
            wall = time_ns()
            shift_ns = state.clock() - wall  # read after the wall clock: a span begins after what came before it
            call, place = call_and_place()
            where = caller()
            attributes: dict[str, Any] = {names.LIFELINE: _lifeline(span, where), **caller_attributes(where)}
            if _in_event_loop():
                attributes[names.CALL_KIND] = "coroutine"
            if place.thread_name is not None:
                attributes[names.THREAD_NAME] = place.thread_name
            parent = None
            if span.parent is not None and span.parent.is_valid:
                if not span.parent.trace_flags.sampled:  # it is not recorded: the call around both is the parent
                    parent = self._place_of(call, place)[1]
                else:
                    parent = trace.format_span_id(span.parent.span_id)
                    if not is_recorded(trace.get_current_span(context)):
                        attributes[names.OUTSIDE] = True
            started = Started(next_call(), state.first, shift_ns, parent, attributes)
            setattr(span, STARTED, started)
            self._open[ids] = started
            state.open[started.number] = lambda: span_data(span, started, None, processor.sent, self._text)

    def ended(self, span: ReadableSpan, processor: _Processor) -> None:
        """Record a span that has ended."""
        started, append = self._open.pop(_ids(span), None), state.append
        if started is None or append is None or started.recording != state.first:
            return
        if state.open.pop(started.number, None) is None:  # this process was forked after its start
            return
        with self._guarded("end"):
            wall = time_ns()
            ended = state.clock() - wall + (span.end_time or wall)
            data = span_data(span, started, ended, processor.sent, self._text)
            append((USER_SPAN, started.number, 0, 0, data["start"], data["end"], data, None))

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """List an error that must not disturb the user's program."""
        try:
            yield
        except Exception as error:
            kind, message, _ = remember(error)
            mistake = Mistake(f"spans of the program's own are not recorded: the {what} of one raised {kind}", message)
            if mistake not in self._mistakes:
                self._mistakes.append(mistake)


def span_data(span: ReadableSpan, started: Started, ended: int | None, sent: bool, text: bool) -> dict[str, Any]:
    """A user's span as plain data, with times of the recording's clock; `ended` is None while it is under way.

    `sent`: the program sends it by OTLP itself; without `text` no text of the user's is kept.
    """
    trace_id, span_id = _ids(span)
    scope, version = _scope(span)
    start = (span.start_time or 0) + started.shift_ns
    events = [
        (one.name, one.timestamp + started.shift_ns, event_attributes(one.attributes, text)) for one in span.events
    ]
    attributes = {**attributes_of(_copied(span.attributes), text), names.LEVEL: "request", names.SCOPE: scope}
    if version:
        attributes[names.SCOPE_VERSION] = version
    if span.kind is not SpanKind.INTERNAL:
        attributes[names.SPAN_KIND] = span.kind.name.lower()
    if sent:
        attributes[names.SENT] = True
    for name, what in _DROPPED.items():
        if dropped := getattr(span, what, 0):
            attributes[name] = dropped
    error = None
    if span.status.status_code is StatusCode.ERROR:
        kinds = [str(one[2][names.EXCEPTION_TYPE]) for one in events if names.EXCEPTION_TYPE in one[2]]
        if kinds:
            attributes.setdefault(names.ERROR_TYPE, kinds[-1])
        error = (span.status.description if text else None) or (kinds[-1] if kinds else "ERROR")
    return {
        "name": span.name,
        "trace_id": trace.format_trace_id(trace_id),
        "span_id": trace.format_span_id(span_id),
        "parent_span_id": started.parent,
        "start": start,
        "end": start if ended is None else max(start, ended),
        "attributes": {**attributes, **started.attributes},
        "events": events,
        "links": [link_data(one.context, one.attributes, text) for one in span.links],
        "error": error,
    }


def _processor_of(provider: TracerProvider) -> _Processor:
    """Its processor, added or not. The exporters of a provider whose beginning was not seen are not known: where the
    program has imported one for OTLP, that is taken to be its."""
    if provider not in _processors:
        _processors[provider] = _Processor(sent=any(name.startswith(_OTLP) for name in [*sys.modules]))
    return _processors[provider]


def _ids(span: ReadableSpan) -> tuple[int, int]:
    ids = span.get_span_context()
    return (ids.trace_id, ids.span_id) if ids is not None else (0, 0)


def _scope(span: ReadableSpan) -> tuple[str, str]:
    """Name and version of the tracer."""
    scope = span.instrumentation_scope
    return (scope.name or "", scope.version or "") if scope is not None else ("", "")


def _lifeline(span: ReadableSpan, where: Where | None) -> str:
    """The tracer's name, or for a script's own the file that opened the span."""
    scope, file = _scope(span)[0], os.path.basename(where[0]) if where is not None else ""
    return file if scope in ("", "__main__") and file else scope or "opentelemetry"


def _in_event_loop() -> bool:
    """Whether others may run in this thread while a span goes on."""
    events = sys.modules.get("asyncio.events")  # not to import it for a program that does not use it
    with suppress(RuntimeError):
        return events is not None and events.get_running_loop() is not None
    return False


def _copied(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """The attributes of a span, which may be under way and be given others meanwhile."""
    for _ in range(10):
        with suppress(RuntimeError):
            return dict(attributes or {})
    return {}
