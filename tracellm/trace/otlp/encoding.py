"""Spans to OTLP JSON lines, the form of a trace on disk.

`encode` makes a line of spans. The conversion of records, whose spans differ in little more than ids and times, takes
the line's pieces instead: `opening`, `form` and `line` (probes/spans/encoder.py).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import Any, NamedTuple

import msgspec

from tracellm.trace.model import AttributeValue, Event, Link, Process, Span
from tracellm.trace.names import SPAN_KIND

__all__ = [
    "ENDED",
    "LAST",
    "PARENT",
    "SPAN",
    "TRACE",
    "Form",
    "attributes_text",
    "encode",
    "form",
    "kind_number",
    "line",
    "opening",
    "span_text",
    "value_text",
]

_KINDS = {"server": 2, "client": 3, "producer": 4, "consumer": 5}
_KIND_INTERNAL = 1
_STATUS_ERROR = 2
_INT64 = range(-(2**63), 2**63)

_MEMORY_LIMIT = 20_000
_LONGEST_REMEMBERED = 400
_MOST_LISTS = 256
_LONGEST_LIST = 4096
_ALIKE_IF_EQUAL = {str, int, bool}  # 0.0 and -0.0 are equal
_ESCAPED_ZERO = "\\u0000"
_SHORT = 60  # characters of a text in a list, such as `num_tokens=17`
_remembered: dict[tuple[str, type, Any], str] = {}
"""JSON of attributes by name and value: the same few hundred are written again and again."""


def encode(process: Process, spans: Iterable[Span], scope_version: str = "") -> bytes:
    """Return one line, with its newline, that holds `spans` of one `process`."""
    return line(opening(process, scope_version), map(span_text, spans))


def opening(process: Process, scope_version: str = "") -> str:
    """Return the beginning of each line of a process."""
    resource = f'{{"resource":{{"attributes":[{attributes_text(process.attributes)}]}}'
    scope = f'{{"name":"tracellm","version":{_string(scope_version)}}}'
    return f'{{"resourceSpans":[{resource},"scopeSpans":[{{"scope":{scope},"spans":['


def line(begins: str, spans: Iterable[str]) -> bytes:
    """Return a line of a process, with its newline, from its `opening` and the texts of spans."""
    return f"{begins}{','.join(spans)}]}}]}}]}}\n".encode()


TRACE, SPAN, PARENT, ENDED, LAST = '{"traceId":"', '","spanId":"', '","parentSpanId":"', '","endTimeUnixNano":"', "]}"
"""The constant parts of the text of a span."""


class Form(NamedTuple):
    """The common parts of the texts of many spans, for fast assembly.

    The text of a span without links, events and error, as `span_text` makes it, is
    {TRACE}id{SPAN}id{PARENT}id{name}start{ENDED}end{attributes}{more attributes}{LAST}. `{PARENT}id` is left out where
    there is none. A comma precedes each of the more attributes, so the form must have one.
    """

    name: str
    attributes: str


def form(name: str, attributes: Mapping[str, AttributeValue]) -> Form:
    """Return the form of spans with this name, and with these attributes first."""
    return Form(
        f'","name":{_name(name)},"kind":{kind_number(attributes)},"startTimeUnixNano":"',
        f'","attributes":[{attributes_text(attributes)}',
    )


def kind_number(attributes: Mapping[str, AttributeValue]) -> int:
    """Return OTLP's number for the kind of a span with these attributes."""
    kind = attributes.get(SPAN_KIND)
    return _KINDS.get(kind, _KIND_INTERNAL) if isinstance(kind, str) else _KIND_INTERNAL


def span_text(span: Span) -> str:
    """Return the JSON of a span."""
    name, attributes = form(span.name, span.attributes)
    ids = f"{TRACE}{span.trace_id}{SPAN}{span.span_id}"
    if span.parent_span_id:
        ids += f"{PARENT}{span.parent_span_id}"
    text = f"{ids}{name}{span.start_ns}{ENDED}{span.end_ns}{attributes}"
    if not (span.events or span.links or span.error is not None):
        return text + LAST
    rest = "]"
    if span.events:
        rest += f',"events":[{",".join(map(_event, span.events))}]'
    if span.links:
        rest += f',"links":[{_links(span.links)}]'
    if span.error is not None:
        rest += f',"status":{{"message":{_string(span.error)},"code":{_STATUS_ERROR}}}'
    return f"{text}{rest}}}"


def _event(event: Event) -> str:
    name, attributes = _string(event.name), attributes_text(event.attributes)
    return f'{{"timeUnixNano":"{event.time_ns}","name":{name},"attributes":[{attributes}]}}'


_last_links: tuple[list[Link], str] = [], ""


def _links(links: list[Link]) -> str:
    """Return the JSON of links; cached, as a step often has the links of the step before."""
    global _last_links
    last, text = _last_links
    if len(last) != len(links) or not all(map(is_, last, links)):
        text = ",".join(map(_link, links))
        _last_links = links.copy(), text
    return text


def _link(link: Link) -> str:
    attributes = link.attributes
    if len(attributes) == 1:
        [(name, value)] = attributes.items()
        if value.__class__ is str:  # the links of a step are to the same requests as those of the one before
            return _link_of_one(link.trace_id, link.span_id, name, value)
    return f'{{"traceId":"{link.trace_id}","spanId":"{link.span_id}","attributes":[{attributes_text(attributes)}]}}'


@lru_cache(maxsize=4096)
def _link_of_one(trace_id: str, span_id: str, name: str, value: str) -> str:
    return f'{{"traceId":"{trace_id}","spanId":"{span_id}","attributes":[{attributes_text({name: value})}]}}'


def attributes_text(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the JSON of a list of attributes."""
    return ",".join([_attribute(name, value) for name, value in attributes.items()])


def _attribute(name: str, value: AttributeValue) -> str:
    if value.__class__ is list:
        return _list(name, value)
    key = (name, value.__class__, value)  # 1 and True are equal, so the type belongs to it
    text = _remembered.get(key)
    if text is None:
        text = f'{{"key":{_name(name)},"value":{value_text(value)}}}'
        if len(_remembered) >= _MEMORY_LIMIT:
            _remembered.clear()
        if len(text) <= _LONGEST_REMEMBERED and value.__class__ is not float:  # 0.0 and -0.0 are equal
            _remembered[key] = text
    return text


_lists: dict[tuple[str, *tuple[type, ...]], tuple[list[Any], str]] = {}
"""The last list and its JSON, by name and type of values; a step repeats many lists of the step before."""


def _list(name: str, values: list[Any]) -> str:
    kinds = set(map(type, values))
    if len(kinds) > 1 or not kinds <= _ALIKE_IF_EQUAL or len(values) > _LONGEST_LIST:
        return f'{{"key":{_name(name)},"value":{value_text(values)}}}'
    last, text = _lists.get((name, *kinds)) or ((), "")
    if last != values:
        text = f'{{"key":{_name(name)},"value":{value_text(values)}}}'
        if len(_lists) >= _MOST_LISTS:
            _lists.clear()
        _lists[name, *kinds] = values.copy(), text
    return text


def value_text(value: Any) -> str:
    """Return the JSON of a value of an attribute, or in a list."""
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
    return f'{{"arrayValue":{{"values":[{_values(value)}]}}}}'


def _values(values: Sequence[Any]) -> str:
    """Return the JSON of an array's values. A step's arrays are long, so the common types are written in one call."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return '{"stringValue":' + _strings(values, '},{"stringValue":') + "}"
    if kinds == {int} and min(values) in _INT64 and max(values) in _INT64:
        return '{"intValue":"' + _numbers(values).replace(",", '"},{"intValue":"') + '"}'
    if kinds == {float}:
        # a finite sum has finite parts; if the sum overflows, the parts are written one by one
        numbers = _numbers(values) if math.isfinite(sum(values)) else ",".join(map(_number, values))
        return '{"doubleValue":' + numbers.replace(",", '},{"doubleValue":') + "}"
    return ",".join(map(value_text, values))


def _strings(values: Sequence[str], between: str) -> str:
    """Return the JSON of texts, joined by `between`; many are encoded at once, by a separator that none contains."""
    if max(map(len, values)) > _SHORT:
        text = "\0".join(values)
        if text.count("\0") == len(values) - 1 and _ESCAPED_ZERO not in text:
            return _string(text).replace(_ESCAPED_ZERO, f'"{between}"')
    return between.join(map(_short, values))


def _numbers(values: Sequence[float]) -> str:
    return msgspec.json.encode(values).decode()[1:-1]


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


@lru_cache(maxsize=4096)
def _name(text: str) -> str:
    return _string(text)


def _short(text: str) -> str:
    return _short_string(text) if len(text) <= _SHORT else _string(text)


@lru_cache(maxsize=16_384)
def _short_string(text: str) -> str:
    return _string(text)


def _string(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode()
    except UnicodeEncodeError:  # half of a surrogate pair cannot be written in JSON
        return msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()
