"""Spans to and from OTLP JSON, the file form of OpenTelemetry's own protocol.

One line of a trace file is one document: `{"resourceSpans": [{"resource", "scopeSpans": [{"scope", "spans"}]}]}`. The
form is https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: names in camelCase, ids in hexadecimal, 64-bit
integers as strings, enumerations as numbers. What reads OTLP JSON elsewhere reads these lines.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from tracellm.trace.model import AttributeValue, Event, Link, Process, Span
from tracellm.trace.names import EXCEPTION_TYPE, PROCESS_NAME, PROCESS_PID

__all__ = ["OtlpError", "decode", "encode"]

_KIND_INTERNAL = 1
_STATUS_ERROR = 2
_INT64 = range(-(2**63), 2**63)
_HEX = frozenset("0123456789abcdef")


class OtlpError(ValueError):
    """A line that is no OTLP JSON document; the message says what is wrong with it."""


# -- writing ----------------------------------------------------------------------------------------------------------

_MEMORY_LIMIT = 20_000
_LONGEST_REMEMBERED = 400
_remembered: dict[tuple[str, type, Any], str] = {}
"""JSON of attributes that came before: the same few hundred are written again and again."""


def encode(process: Process, spans: Iterable[Span], scope_version: str = "") -> bytes:
    """One line, newline included, that holds `spans` of one `process`."""
    head = (
        f'{{"resourceSpans":[{{"resource":{{"attributes":{_attributes(process.attributes)}}},"scopeSpans":[{{"scope":'
    )
    scope = f'{{"name":"tracellm","version":{_string(scope_version)}}}'
    line = f'{head}{scope},"spans":[{",".join(map(_span, spans))}]}}]}}]}}\n'
    return line.encode()


def _span(span: Span) -> str:
    parent = f'"parentSpanId":"{span.parent_span_id}",' if span.parent_span_id else ""
    rest = ""
    if span.events:
        rest = f',"events":[{",".join(map(_event, span.events))}]'
    if span.links:
        rest += f',"links":[{",".join(map(_link, span.links))}]'
    if span.error is not None:
        rest += f',"status":{{"message":{_string(span.error)},"code":{_STATUS_ERROR}}}'
    return (
        f'{{"traceId":"{span.trace_id}","spanId":"{span.span_id}",{parent}"name":{_name(span.name)},"kind":{_KIND_INTERNAL},'
        f'"startTimeUnixNano":"{span.start_ns}","endTimeUnixNano":"{span.end_ns}",'
        f'"attributes":{_attributes(span.attributes)}{rest}}}'
    )


def _event(event: Event) -> str:
    name, attributes = _string(event.name), _attributes(event.attributes)
    return f'{{"timeUnixNano":"{event.time_ns}","name":{name},"attributes":{attributes}}}'


def _link(link: Link) -> str:
    return f'{{"traceId":"{link.trace_id}","spanId":"{link.span_id}","attributes":{_attributes(link.attributes)}}}'


def _attributes(attributes: Mapping[str, AttributeValue]) -> str:
    return f"[{','.join([_attribute(name, value) for name, value in attributes.items()])}]"


def _attribute(name: str, value: AttributeValue) -> str:
    # 1 and True are equal, so the type belongs to the key; 0.0 and -0.0 are, so floats are not remembered.
    key: tuple[str, type, Any]
    if value.__class__ is list:
        items = tuple(value)
        key = (name, items[0].__class__ if items else list, items)
    else:
        key = (name, value.__class__, value)
    text = _remembered.get(key)
    if text is None:
        text = f'{{"key":{_string(name)},"value":{_value(value)}}}'
        if len(_remembered) >= _MEMORY_LIMIT:
            _remembered.clear()
        if len(text) <= _LONGEST_REMEMBERED and key[1] is not float:
            _remembered[key] = text
    return text


def _value(value: Any) -> str:
    if isinstance(value, str):
        return f'{{"stringValue":{_string(value)}}}'
    if isinstance(value, bool):
        return f'{{"boolValue":{"true" if value else "false"}}}'
    if isinstance(value, int):
        if value not in _INT64:
            return f'{{"stringValue":"{value}"}}'
        return f'{{"intValue":"{value}"}}'
    if isinstance(value, float):
        return f'{{"doubleValue":{_number(value)}}}'
    return f'{{"arrayValue":{{"values":[{",".join(map(_value, value))}]}}}}'


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


@lru_cache(maxsize=4096)
def _name(text: str) -> str:
    return _string(text)


def _string(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode()
    except UnicodeEncodeError:  # half of a surrogate pair: no JSON text can hold it
        return msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()


# -- reading ----------------------------------------------------------------------------------------------------------


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
