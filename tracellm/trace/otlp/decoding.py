"""OTLP JSON to spans: what everything that reads a recording begins with."""

from typing import Any

import msgspec

from tracellm.trace.model import AttributeValue, Event, Link, Process, Span
from tracellm.trace.names import EXCEPTION_TYPE, PROCESS_NAME, PROCESS_PID

__all__ = ["OtlpError", "decode"]

_STATUS_ERROR = 2
_HEX = frozenset("0123456789abcdef")


class OtlpError(ValueError):
    """A line that is no OTLP JSON document; the message says what is wrong with it."""


class _Record(msgspec.Struct, rename="camel"):
    pass


class _AnyValue(_Record):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: str | int | None = None
    double_value: float | str | None = None
    array_value: "_ArrayValue | None" = None


class _ArrayValue(_Record):
    values: list[_AnyValue] = []


class _KeyValue(_Record):
    key: str
    value: _AnyValue = msgspec.field(default_factory=_AnyValue)


class _Event(_Record):
    name: str = ""
    time_unix_nano: str | int = 0
    attributes: list[_KeyValue] = []


class _Link(_Record):
    trace_id: str
    span_id: str
    attributes: list[_KeyValue] = []


class _Status(_Record):
    message: str = ""
    code: int = 0


class _Span(_Record):
    trace_id: str
    span_id: str
    name: str
    start_time_unix_nano: str | int
    end_time_unix_nano: str | int
    parent_span_id: str | None = None
    attributes: list[_KeyValue] = []
    events: list[_Event] = []
    links: list[_Link] = []
    status: _Status | None = None


class _ScopeSpans(_Record):
    spans: list[_Span] = []


class _Resource(_Record):
    attributes: list[_KeyValue] = []


class _ResourceSpans(_Record):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_spans: list[_ScopeSpans] = []


class _Document(_Record):
    resource_spans: list[_ResourceSpans]


_decoder = msgspec.json.Decoder(_Document)


def decode(line: bytes) -> list[tuple[Process, list[Span]]]:
    """The processes of one line, each with its spans; the spans' `process` is set.

    Raises:
        OtlpError: the line is no JSON, or no OTLP trace document.
    """
    try:
        document = _decoder.decode(line)
        return [_read_resource(resource) for resource in document.resource_spans]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise OtlpError(str(error)) from None


def _read_resource(record: _ResourceSpans) -> tuple[Process, list[Span]]:
    attributes = _read_attributes(record.resource.attributes)
    pid = attributes.get(PROCESS_PID)
    name = attributes.get(PROCESS_NAME)
    process = Process(pid if isinstance(pid, int) else 0, name if isinstance(name, str) else "main", attributes)
    return process, [_read_span(span, process) for scope in record.scope_spans for span in scope.spans]


def _read_span(record: _Span, process: Process) -> Span:
    start = int(record.start_time_unix_nano)
    events = [
        Event(event.name, int(event.time_unix_nano), _read_attributes(event.attributes)) for event in record.events
    ]
    error = None
    if record.status is not None and record.status.code == _STATUS_ERROR:
        types = (event.attributes.get(EXCEPTION_TYPE) for event in events)
        error = record.status.message or next((kind for kind in types if isinstance(kind, str)), "error")
    return Span(
        name=record.name,
        trace_id=_id(record.trace_id, 32),
        span_id=_id(record.span_id, 16),
        parent_span_id=_id(record.parent_span_id, 16) if record.parent_span_id else None,
        start_ns=start,
        end_ns=max(start, int(record.end_time_unix_nano)),
        attributes=_read_attributes(record.attributes),
        links=[
            Link(_id(link.trace_id, 32), _id(link.span_id, 16), _read_attributes(link.attributes))
            for link in record.links
        ],
        events=events,
        error=error,
        process=process,
    )


def _id(text: str, digits: int) -> str:
    text = text.lower()
    if len(text) != digits or not _HEX.issuperset(text):
        raise ValueError(f"{text[:40]!r} is no id of {digits} hexadecimal digits")
    return text


def _read_attributes(records: list[_KeyValue]) -> dict[str, AttributeValue]:
    return {record.key: _read_value(record.value) for record in records}


def _read_value(record: _AnyValue) -> Any:
    if record.string_value is not None:
        return record.string_value
    if record.int_value is not None:
        return int(record.int_value)
    if record.double_value is not None:
        return float(record.double_value)
    if record.bool_value is not None:
        return record.bool_value
    if record.array_value is not None:
        return [_read_value(value) for value in record.array_value.values]
    return ""
