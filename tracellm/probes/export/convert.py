"""Spans of a recording as those of OpenTelemetry's SDK, which its exporters take.

Everything is sent under the names that the recording has (docs/spans.md); of prompts and generated texts nothing,
unless somebody asked for them.
"""

import socket
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tracellm import __version__
from tracellm.trace import names
from tracellm.trace.model import Process, Span

__all__ = ["Converter", "resource"]

_SCOPE = InstrumentationScope("tracellm", __version__)
_KINDS = {kind.name.lower() for kind in SpanKind}
_ELSEWHERE = {names.SCOPE, names.SCOPE_VERSION, names.SPAN_KIND}
"""Attributes that a span has another place for."""

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_TEXTS = names.PRIVATE - {names.EXCEPTION_MESSAGE, names.EXCEPTION_STACKTRACE}
"""Left out: an error's own text is sent, as by every SDK."""


def resource(process: Process | None) -> Resource:
    """The resource that describes the process, or where it is None this machine.

    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word.
    """
    here = {names.SERVICE_NAME: "tracellm", names.SERVICE_VERSION: __version__, names.HOST_NAME: socket.gethostname()}
    attributes: dict[str, Any] = here if process is None else process.attributes
    return Resource(attributes).merge(OTELResourceDetector().detect())


class _Resource(Resource):
    """A resource that is compared by identity, as each process has one: else it would be made JSON for each span."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Converter:
    """Makes the spans that are sent; with `texts` prompts and generated texts among their attributes."""

    def __init__(self, texts: bool) -> None:
        self._left_out = _ELSEWHERE if texts else _ELSEWHERE | _TEXTS
        self._resources: dict[tuple[int, str], Resource] = {}

    def __call__(self, span: Span) -> ReadableSpan:
        """The SDK's span of the same content."""
        kind = span.attributes.get(names.SPAN_KIND)
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            kind=SpanKind[kind.upper()] if kind in _KINDS else SpanKind.INTERNAL,
            parent=_context(span.trace_id, span.parent_span_id) if span.parent_span_id else None,
            resource=self._resource(span.process),
            attributes=self._public(span.attributes),
            events=[Event(one.name, self._public(one.attributes), one.time_ns) for one in span.events],
            links=[Link(_context(one.trace_id, one.span_id), self._public(one.attributes)) for one in span.links],
            status=Status() if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=_scope(span),
        )

    def _resource(self, process: Process | None) -> Resource:
        key = (0, "") if process is None else (process.pid, process.name)
        if key not in self._resources:
            self._resources[key] = _Resource(resource(process).attributes)
        return self._resources[key]

    def _public(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._left_out.isdisjoint(attributes):
            return attributes
        return {name: value for name, value in attributes.items() if name not in self._left_out}


def _scope(span: Span) -> InstrumentationScope:
    """The scope that made the span: an instrumentation, if it is the program's own, or tracellm."""
    if (name := span.attributes.get(names.SCOPE)) is None:
        return _SCOPE
    return InstrumentationScope(name, span.attributes.get(names.SCOPE_VERSION))


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)
