"""Conversion of a recording's spans to those of OpenTelemetry's SDK, for its exporters.

Attributes keep their names in the recording (docs/spans.md). Prompts and generated texts are sent only on request.
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
_FIELDS = {names.SCOPE, names.SCOPE_VERSION, names.SPAN_KIND}  # attributes that are fields of the SDK's span
_TEXTS = names.PRIVATE - {names.EXCEPTION_MESSAGE, names.EXCEPTION_STACKTRACE}  # as in every SDK, errors are sent
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def resource(process: Process | None) -> Resource:
    """Return the resource of the process, or of this machine if that is None.

    OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    """
    here = {names.SERVICE_NAME: "tracellm", names.SERVICE_VERSION: __version__, names.HOST_NAME: socket.gethostname()}
    attributes: dict[str, Any] = here if process is None else process.attributes
    return Resource(attributes).merge(OTELResourceDetector().detect())


class _Resource(Resource):
    """A resource compared by identity, since the exporter would otherwise compare JSON for every span."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


class Converter:
    """Makes spans for the exporter; with `texts`, prompts and generated texts are among their attributes."""

    def __init__(self, texts: bool) -> None:
        self._left_out = _FIELDS if texts else _FIELDS | _TEXTS
        self._resources: dict[tuple[int, str], Resource] = {}

    def __call__(self, span: Span) -> ReadableSpan:
        """Return the SDK's span with the same content."""
        kind = span.attributes.get(names.SPAN_KIND)
        scope = span.attributes.get(names.SCOPE)  # of the program's own instrumentation
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            kind=SpanKind[kind.upper()] if kind in _KINDS else SpanKind.INTERNAL,
            parent=_context(span.trace_id, span.parent_span_id) if span.parent_span_id else None,
            resource=self._resource(span.process),
            attributes=self._public(span.attributes),
            events=[Event(event.name, self._public(event.attributes), event.time_ns) for event in span.events],
            links=[Link(_context(ln.trace_id, ln.span_id), self._public(ln.attributes)) for ln in span.links],
            status=Status() if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=_SCOPE
            if scope is None
            else InstrumentationScope(scope, span.attributes.get(names.SCOPE_VERSION)),
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


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)
