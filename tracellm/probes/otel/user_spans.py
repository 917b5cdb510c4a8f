"""Spans that a program opens with OpenTelemetry's SDK, recorded by a span processor.

The processor is added to the global tracer provider, and to each one from which the program gets a tracer during a
recording. It cannot be removed, and does nothing between recordings. The program exports its spans as before.

Span times are moved to the recording's clock by reading it and the wall clock when the processor is called, so a span
lies within the calls around it. Spans that are not sampled, or began before the recording, are not recorded.
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

from tracellm.probes.context.call_context import USER_SPAN, current_call, next_call, state
from tracellm.probes.context.user_attributes import attributes_of, event_attributes, link_data
from tracellm.probes.otel.call_span import STARTED, SpanIds, is_recorded
from tracellm.probes.wrapping.probe import Mistake
from tracellm.probes.wrapping.summary import Where, caller, caller_attributes
from tracellm.trace import names

__all__ = ["Started", "UserSpans", "span_data"]

Function = Callable[..., Any]

_ENGINE_SCOPE = "vllm.llm_engine"
"""Name of the tracer of an engine with `otlp_traces_endpoint`, vLLM's or tracellm's."""

_OTLP = "opentelemetry.exporter.otlp"

_DROPPED = {
    names.DROPPED_ATTRIBUTES: "dropped_attributes",
    names.DROPPED_EVENTS: "dropped_events",
    names.DROPPED_LINKS: "dropped_links",
}
"""Properties of an SDK span that count items dropped at its limits."""


@dataclass(frozen=True, slots=True)
class Started:
    """Start of a user's span.

    Attributes:
        number: from the counter of calls.
        recording: the first call of the recording.
        shift_ns: the recording's clock minus the wall clock.
        parent: span id of the parent; None for a root.
        attributes: attributes known from the start: the caller's line, the thread.
    """

    number: int
    recording: int
    shift_ns: int
    parent: str | None
    attributes: Mapping[str, Any]


class _Processor(SpanProcessor):
    """Passes the spans of one provider to the active recording.

    Attributes:
        sent: whether the program sends the provider's spans by OTLP itself.
        is_added: whether it is one of the provider's processors.
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


def _processor_of(provider: TracerProvider) -> _Processor:
    """Return the provider's processor, added or not.

    The exporters of a provider made before the recording are unknown. It counts as one with OTLP if the program has
    imported such an exporter.
    """
    if provider not in _processors:
        _processors[provider] = _Processor(sent=any(name.startswith(_OTLP) for name in [*sys.modules]))
    return _processors[provider]


class UserSpans:
    """Records users' spans in one recording."""

    def __init__(self, text: bool, span_ids: SpanIds, mistakes: list[Mistake]) -> None:
        self._text = text
        self._span_ids = span_ids
        self._mistakes = mistakes
        self._open: dict[tuple[int, int], Started] = {}
        _Processor.recorder = self

    # -- providers ----------------------------------------------------------------------------------------------------

    def follow(self, provider: Any) -> None:
        """Record this provider's spans from now on, if it is the SDK's."""
        with self._guarded("provider"):
            if isinstance(provider, TracerProvider) and not (processor := _processor_of(provider)).is_added:
                processor.is_added = True
                TracerProvider.add_span_processor(provider, processor)  # a subclass might put it elsewhere

    def new_provider(self, old: Function) -> Function:
        """Patch `TracerProvider.__init__`: all exporters of a provider made now will be known."""

        def __init__(provider: Any, *args: Any, **kwargs: Any) -> None:
            old(provider, *args, **kwargs)
            _processors[provider] = _Processor(sent=False)

        return __init__

    def add_span_processor(self, old: Function) -> Function:
        """Patch `TracerProvider.add_span_processor`: note whether the program sends spans by OTLP itself."""

        def add_span_processor(provider: Any, span_processor: Any) -> None:
            old(provider, span_processor)
            exporter = getattr(span_processor, "span_exporter", None)
            if any(kind.__module__.startswith(_OTLP) for kind in type(exporter).__mro__):
                _processor_of(provider).sent = True

        return add_span_processor

    def get_tracer(self, old: Function) -> Function:
        """Patch `TracerProvider.get_tracer`: record the provider's spans from now on."""

        def get_tracer(provider: Any, *args: Any, **kwargs: Any) -> Any:
            self.follow(provider)
            return old(provider, *args, **kwargs)

        return get_tracer

    # -- spans --------------------------------------------------------------------------------------------------------

    def started(self, span: SdkSpan, context: Context | None, processor: _Processor) -> None:
        """Track a span that began, with the parent in `context`, or the current one if that is None.

        An engine's own span of a finished request is left out: the recording has one of the request.
        """
        ids = _ids(span)
        if _scope(span)[0] == _ENGINE_SCOPE:
            return
        if state.append is None or ids in self._open or not span.get_span_context().trace_flags.sampled:
            return
        with self._guarded("start"):
            wall = time_ns()
            shift_ns = state.clock() - wall  # read after the wall clock, so a span begins after earlier calls
            call, thread = current_call()
            where = caller()
            attributes: dict[str, Any] = {names.LIFELINE: _lifeline(span, where), **caller_attributes(where)}
            if _in_event_loop():
                attributes[names.CALL_KIND] = "coroutine"
            if thread.thread_name is not None:
                attributes[names.THREAD_NAME] = thread.thread_name
            parent = None
            if span.parent is not None and span.parent.is_valid:
                if not span.parent.trace_flags.sampled:  # not recorded: the call around both is the parent
                    parent = self._span_ids(call, thread)[1]
                else:
                    parent = trace.format_span_id(span.parent.span_id)
                    if not is_recorded(trace.get_current_span(context)):
                        attributes[names.OUTSIDE] = True
            started = Started(next_call(), state.first, shift_ns, parent, attributes)
            setattr(span, STARTED, started)
            self._open[ids] = started
            state.open[started.number] = lambda: span_data(span, started, None, processor.sent, self._text)

    def ended(self, span: ReadableSpan, processor: _Processor) -> None:
        """Record a span that ended."""
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
        """List an error instead of disturbing the user's program."""
        try:
            yield
        except Exception as error:
            mistake = Mistake.of(f"spans of the program's own are not recorded: the {what} of one", error)
            if mistake not in self._mistakes:
                self._mistakes.append(mistake)


def span_data(span: ReadableSpan, started: Started, ended: int | None, sent: bool, text: bool) -> dict[str, Any]:
    """Return a user's span as plain data, with times of the recording's clock.

    `ended` is None while the span is open; `sent` as in `_Processor`; without `text` no user's text is kept.
    """
    trace_id, span_id = _ids(span)
    scope, version = _scope(span)
    start = (span.start_time or 0) + started.shift_ns
    events = [(e.name, e.timestamp + started.shift_ns, event_attributes(e.attributes, text)) for e in span.events]
    attributes = {**attributes_of(_copy(span.attributes), text), names.LEVEL: "request", names.SCOPE: scope}
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
        kinds = [str(event[2][names.EXCEPTION_TYPE]) for event in events if names.EXCEPTION_TYPE in event[2]]
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
        "links": [link_data(link.context, link.attributes, text) for link in span.links],
        "error": error,
    }


def _ids(span: ReadableSpan) -> tuple[int, int]:
    ids = span.get_span_context()
    return (ids.trace_id, ids.span_id) if ids is not None else (0, 0)


def _scope(span: ReadableSpan) -> tuple[str, str]:
    """Return name and version of the tracer."""
    scope = span.instrumentation_scope
    return (scope.name or "", scope.version or "") if scope is not None else ("", "")


def _lifeline(span: ReadableSpan, where: Where | None) -> str:
    """Return the tracer's name; for a script's own tracer, the file that opened the span."""
    scope, file = _scope(span)[0], os.path.basename(where[0]) if where is not None else ""
    return file if scope in ("", "__main__") and file else scope or "opentelemetry"


def _in_event_loop() -> bool:
    """Return whether other tasks may run in this thread during a span."""
    events = sys.modules.get("asyncio.events")  # not imported for a program that does not use it
    with suppress(RuntimeError):
        return events is not None and events.get_running_loop() is not None
    return False


def _copy(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy the attributes of a span, which other threads may be changing."""
    for _ in range(10):
        with suppress(RuntimeError):
            return dict(attributes or {})
    return {}
