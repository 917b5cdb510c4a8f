"""OTLP, OpenTelemetry's format, for collectors and backends: all processes together, on one clock.

`.json` is one document, for `curl` to a collector's `/v1/traces` or for Jaeger's upload. `.jsonl` has a document per
line, for the collector's `otlpjsonfile` receiver, which takes lines of up to 1 MiB. `.pb` is the body of the same
request as protocol buffers, which every backend takes (Phoenix takes no other); it needs `opentelemetry-proto`. All
three hold the same spans.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Any

from tracellm import __version__
from tracellm.report.export.chosen import Chosen
from tracellm.report.export.values import INT64, clean
from tracellm.trace import otlp as on_disk
from tracellm.trace.model import Process, Span

__all__ = ["as_document", "as_lines", "as_protobuf"]

_SPANS = 256  # spans in a piece: some 250 kB as JSON
_LONGEST_LINE = 2**20  # bytes: the longest line that the collector's receiver reads
_STATUS_ERROR = 2
_HEAD, _TAIL = b'{"resourceSpans":[', b"]}\n"


def as_document(chosen: Chosen) -> Iterator[bytes]:
    """Yield one JSON document, piece by piece."""
    separator = _HEAD
    for line in as_lines(chosen):
        yield separator + line[len(_HEAD) : -len(_TAIL)]
        separator = b",\n"
    yield (b"" if separator == b",\n" else _HEAD) + _TAIL


def as_lines(chosen: Chosen) -> Iterator[bytes]:
    """Yield JSON documents, one per line, none longer than the collector takes unless a single span is."""
    for process, spans in _pieces(chosen.spans()):
        yield from _lines(process, spans)


def _lines(process: Process, spans: list[Span]) -> Iterator[bytes]:
    line = on_disk.encode(process, spans, __version__)
    if len(line) <= _LONGEST_LINE or len(spans) == 1:
        yield line
    else:  # prompts may be long
        half = len(spans) // 2
        yield from _lines(process, spans[:half])
        yield from _lines(process, spans[half:])


def as_protobuf(chosen: Chosen) -> Iterator[bytes]:
    """Yield one `ExportTraceServiceRequest`, piece by piece: pieces of such a message make a message.

    Raises:
        ModuleNotFoundError: the package `opentelemetry-proto` is not installed.
    """
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for process, spans in _pieces(chosen.spans()):
        request = ExportTraceServiceRequest()
        resource_spans = request.resource_spans.add()
        resource_spans.resource.SetInParent()
        _fill(resource_spans.resource.attributes, process.attributes)
        scope_spans = resource_spans.scope_spans.add()
        scope_spans.scope.name, scope_spans.scope.version = "tracellm", __version__
        for span in spans:
            _fill_span(scope_spans.spans.add(), span)
        yield request.SerializeToString()


def _pieces(spans: Iterable[Span]) -> Iterator[tuple[Process, list[Span]]]:
    """Yield a few spans at a time, each batch of one process, the processes one after the other."""
    ordered = sorted(spans, key=lambda span: id(span.process))  # stable: within a process by start
    for _, of_process in groupby(ordered, key=lambda span: id(span.process)):
        while piece := list(islice(of_process, _SPANS)):
            yield piece[0].process or Process(0, "main"), piece


def _fill_span(message: Any, span: Span) -> None:
    message.trace_id, message.span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
    if span.parent_span_id:
        message.parent_span_id = bytes.fromhex(span.parent_span_id)
    message.name, message.kind = clean(span.name), on_disk.kind_number(span.attributes)
    message.start_time_unix_nano, message.end_time_unix_nano = span.start_ns, span.end_ns
    _fill(message.attributes, span.attributes)
    for event in span.events:
        _fill(message.events.add(name=clean(event.name), time_unix_nano=event.time_ns).attributes, event.attributes)
    for link in span.links:
        ids = {"trace_id": bytes.fromhex(link.trace_id), "span_id": bytes.fromhex(link.span_id)}
        _fill(message.links.add(**ids).attributes, link.attributes)
    if span.error is not None:
        message.status.code, message.status.message = _STATUS_ERROR, clean(span.error)


def _fill(messages: Any, attributes: dict[str, Any]) -> None:
    for key, value in attributes.items():
        _set(messages.add(key=clean(key)).value, value)


def _set(message: Any, value: Any) -> None:
    if isinstance(value, list):
        message.array_value.SetInParent()
        for item in value:
            _set(message.array_value.values.add(), item)
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int) and value in INT64:
        message.int_value = value
    elif isinstance(value, float):
        message.double_value = value
    else:
        message.string_value = clean(str(value))
