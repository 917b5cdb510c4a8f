"""Spans of OpenTelemetry's bare API: without an SDK they do nothing, so while something is recorded they are ours.

The API's `NoOpTracer` hands out its caller's span again. Ours has ids, keeps what it is told, and is recorded when it
ends. Nothing of it goes anywhere else: whoever wants that installs the SDK.

vLLM traces itself, too, as soon as the API can be imported. Unless its user has asked for that, and so the SDK is
there, those spans stay what they are, nothing: they would tell of calls that have probes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from time import time_ns
from types import TracebackType
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util._decorator import _agnosticcontextmanager

from tracellm.probes.otel.limits import LimitedAttributes, LimitedList, most
from tracellm.probes.otel.told import event_of_exception
from tracellm.probes.otel.user_spans import UserSpans
from tracellm.probes.state import next_call, state

__all__ = ["ApiSpan", "ApiSpans"]

Function = Callable[..., Any]

_SCOPE = "_tracellm_scope"
"""The attribute of a tracer that does nothing which holds the Scope it was made for."""


class Scope(NamedTuple):
    """Name and version of what opens spans."""

    name: str = ""
    version: str = ""


_ENGINE = "vllm"
"""What vLLM's tracers are called, with a module's name after it."""


def _is_an_engines(scope: Scope) -> bool:
    return scope.name.partition(".")[0] == _ENGINE


class _Event(NamedTuple):
    name: str
    attributes: Mapping[str, Any]
    timestamp: int


class ApiSpan(Span):
    """A span that is recorded by `spans`; names and meanings are the SDK's. `number` is from the counter of calls."""

    under = trace.INVALID_SPAN
    """What would be in its place if nothing were recorded."""

    def __init__(
        self,
        spans: UserSpans,
        number: int,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        kind: SpanKind,
        scope: Scope,
    ) -> None:
        self.number = number
        self.name = name
        self.parent = parent
        self.kind = kind
        self.instrumentation_scope = scope
        self.status = Status()
        self.start_time = 0
        self.end_time: int | None = None
        self.records_exception = self.exception_is_error = True
        self._spans = spans
        self._context = context
        self._attributes = LimitedAttributes(most("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"))
        self._events = LimitedList[_Event](most("OTEL_SPAN_EVENT_COUNT_LIMIT"))
        self._links = LimitedList[Link](most("OTEL_SPAN_LINK_COUNT_LIMIT"))

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Those that it has been told of last."""
        return self._attributes.kept

    @property
    def events(self) -> Iterable[_Event]:
        """The last of them."""
        return self._events.kept

    @property
    def links(self) -> Iterable[Link]:
        """The last of them."""
        return self._links.kept

    @property
    def dropped_attributes(self) -> int:
        """How many gave way to others."""
        return self._attributes.dropped

    @property
    def dropped_events(self) -> int:
        """How many gave way to others."""
        return self._events.dropped

    @property
    def dropped_links(self) -> int:
        """How many gave way to others."""
        return self._links.dropped

    def get_span_context(self) -> SpanContext:
        """Its ids."""
        return self._context

    def is_recording(self) -> bool:
        """Until it ends."""
        return self.end_time is None

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set several attributes."""
        if self.is_recording():
            self._attributes.update(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute."""
        if self.is_recording():
            self._attributes.update({key: value})

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Something that happened now, or at `timestamp`, nanoseconds since 1970."""
        if self.is_recording():
            self._events.append(_Event(name, dict(attributes or {}), time_ns() if timestamp is None else timestamp))

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Another span that this one is about."""
        if self.is_recording() and context is not None and context.is_valid:
            self._links.append(Link(context, attributes))

    def update_name(self, name: str) -> None:
        """Another name."""
        if self.is_recording():
            self.name = name

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """How it ended: OK is final, UNSET changes nothing."""
        new = status if isinstance(status, Status) else Status(status, description)
        if self.is_recording() and self.status.status_code is not StatusCode.OK and not new.is_unset:
            self.status = new

    def record_exception(
        self, exception: BaseException, attributes: Any = None, timestamp: int | None = None, escaped: bool = False
    ) -> None:
        """An exception, as an event."""
        name, told = event_of_exception(exception, attributes, escaped)
        self.add_event(name, told, timestamp)

    def end(self, end_time: int | None = None) -> None:
        """The end, now or at `end_time`, nanoseconds since 1970; only the first counts."""
        ended = state.clock() if end_time is None else None
        if self.is_recording():
            self.end_time = time_ns() if end_time is None else end_time
            self._spans.ended(self, ended)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            if self.records_exception:
                self.record_exception(error, escaped=True)
            if self.exception_is_error:
                self.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        self.end()


class ApiSpans:
    """What takes the place of functions of `opentelemetry.trace` that do nothing. `span_id` is Builder.span_id."""

    def __init__(self, spans: UserSpans, span_id: Callable[[int], str]) -> None:
        self._spans = spans
        self._span_id = span_id

    def start_span(self, old: Function) -> Function:
        """`NoOpTracer.start_span`, with a span of ours."""

        def start_span(
            tracer: Any,
            name: str,
            context: Any = None,
            kind: SpanKind = SpanKind.INTERNAL,
            attributes: Any = None,
            links: Any = None,
            start_time: int | None = None,
            record_exception: bool = True,
            set_status_on_exception: bool = True,
        ) -> Span:
            around = trace.get_current_span(context).get_span_context()
            scope = getattr(tracer, _SCOPE, Scope())
            unsampled = around.is_valid and not around.trace_flags.sampled
            if state.append is None or unsampled or _is_an_engines(scope):
                return old(tracer, name, context)
            span = self._new(name, around if around.is_valid else None, kind, scope)
            span.records_exception, span.exception_is_error = record_exception, set_status_on_exception
            span.set_attributes(attributes or {})
            for link in links or ():
                span.add_link(link.context, link.attributes)
            span.start_time = time_ns() if start_time is None else start_time
            clock = state.clock() if start_time is None else None
            self._spans.started(span, span.number, clock, context)
            return span

        return start_span

    def start_as_current_span(self, old: Function) -> Function:
        """`NoOpTracer.start_as_current_span`, which in some versions does not even ask for a span."""

        @_agnosticcontextmanager
        def start_as_current_span(
            tracer: Any,
            name: str,
            context: Any = None,
            kind: SpanKind = SpanKind.INTERNAL,
            attributes: Any = None,
            links: Any = None,
            start_time: int | None = None,
            record_exception: bool = True,
            set_status_on_exception: bool = True,
            end_on_exit: bool = True,
        ) -> Iterator[Span]:
            told = name, context, kind, attributes, links, start_time, record_exception, set_status_on_exception
            if state.append is None:
                with old(tracer, *told, end_on_exit) as span:
                    yield span
                return
            if _is_an_engines(getattr(tracer, _SCOPE, Scope())):
                yield trace.get_current_span(context)
                return
            with trace.use_span(
                tracer.start_span(*told), end_on_exit, record_exception, set_status_on_exception
            ) as span:
                yield span

        return start_as_current_span

    def name_proxy(self, old: Function) -> Function:
        """`ProxyTracer.__init__`: the tracer that does nothing, which it has, learns for whom it stands in."""

        def init(proxy: Any, name: str, version: str | None = None, *args: Any, **kwargs: Any) -> None:
            old(proxy, name, version, *args, **kwargs)
            _name(getattr(proxy, "_noop_tracer", None), name, version)

        return init

    def name_tracer(self, old: Function) -> Function:
        """`NoOpTracerProvider.get_tracer`: so do its tracers."""

        def get_tracer(provider: Any, name: str, version: str | None = None, *args: Any, **kwargs: Any) -> Any:
            tracer = old(provider, name, version, *args, **kwargs)
            _name(tracer, name, version)
            return tracer

        return get_tracer

    def _new(self, name: str, parent: SpanContext | None, kind: SpanKind, scope: Scope) -> ApiSpan:
        number = next_call()
        trace_id = int(state.ids.trace(), 16) if parent is None else parent.trace_id
        context = SpanContext(
            trace_id,
            int(self._span_id(number), 16),
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),
            trace_state=None if parent is None else parent.trace_state,
        )
        return ApiSpan(self._spans, number, name, context, parent, kind, scope)


def _name(tracer: Any, name: str, version: str | None) -> None:
    if isinstance(tracer, trace.NoOpTracer):
        setattr(tracer, _SCOPE, Scope(name or "", version or ""))
