"""Spans to OTLP JSON: what a recording writes while it goes on, in the writer's thread."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from tracellm.trace.model import AttributeValue, Event, Link, Process, Span

__all__ = ["encode"]

_KIND_INTERNAL = 1
_STATUS_ERROR = 2
_INT64 = range(-(2**63), 2**63)

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
