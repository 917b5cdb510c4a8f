"""OTLP JSON to spans: the first step of everything that reads a recording.

A big recording is repetitive: the attributes of a layer's call are those of the layer before. So a `Decoder` keeps the
JSON of attributes that it has read, and gives spans with the same text the same dict. It checks all ids of a line
together. A span takes some microseconds and a few hundred bytes.
"""

import re
from itertools import chain
from sys import intern
from typing import Any

import msgspec

from tracellm.trace.model import AttributeValue, Event, Link, Process, Span
from tracellm.trace.names import EXCEPTION_TYPE, PROCESS_NAME, PROCESS_PID

__all__ = ["Decoder", "OtlpError", "decode"]


class _Record(msgspec.Struct, rename="camel", gc=False):
    pass


class Element(_Record):
    """A value within an array; a nested array or map is kept as JSON."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: str | int | None = None
    double_value: float | str | None = None
    bytes_value: str | None = None
    array_value: msgspec.Raw = msgspec.Raw()
    kvlist_value: msgspec.Raw = msgspec.Raw()


class _ArrayValue(_Record):
    values: list[Element] = []


class AnyValue(_Record):
    """An attribute's value: one of the fields is set."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: str | int | None = None
    double_value: float | str | None = None
    bytes_value: str | None = None
    array_value: _ArrayValue | None = None
    kvlist_value: msgspec.Raw = msgspec.Raw()


class KeyValue(_Record):
    """An attribute."""

    key: str
    value: AnyValue = msgspec.field(default_factory=AnyValue)


class EventRecord(_Record):
    """An event within a span."""

    name: str = ""
    time_unix_nano: int = 0
    attributes: msgspec.Raw = msgspec.Raw(b"[]")


class LinkRecord(_Record):
    """A link to another span."""

    trace_id: str
    span_id: str
    attributes: msgspec.Raw = msgspec.Raw(b"[]")


class _Status(_Record):
    message: str = ""
    code: int = 0


class SpanRecord(_Record):
    """A span."""

    trace_id: str
    span_id: str
    name: str
    start_time_unix_nano: int
    end_time_unix_nano: int
    parent_span_id: str | None = None
    attributes: msgspec.Raw = msgspec.Raw(b"[]")
    events: list[EventRecord] | None = None
    links: list[LinkRecord] | None = None
    status: _Status | None = None


class _ScopeSpans(_Record):
    spans: list[SpanRecord] = []


class Resource(_Record):
    """Attributes of a process."""

    attributes: list[KeyValue] = []


class _ResourceSpans(_Record):
    resource: msgspec.Raw = msgspec.Raw(b"{}")
    scope_spans: list[_ScopeSpans] = []


class Document(_Record):
    """One line of a trace file."""

    resource_spans: list[_ResourceSpans]


_STATUS_ERROR = 2
_ALL_HEX = re.compile("[0-9a-f]*").fullmatch
_INT64 = range(-(2**63), 2**63)
_LAST_MOMENT = 2**64 - 1  # nanoseconds: a time is a fixed64

_MEMORY_LIMIT = 20_000
_LONGEST_REMEMBERED = 2048  # bytes: only the attributes of a step are longer

_NOTHING: Any = ()
"""Links or events of a span without any. One object for all: never add to it."""


class OtlpError(ValueError):
    """A line that is no OTLP JSON document; the message is the reason."""


_documents = msgspec.json.Decoder(Document, strict=False)  # not strict: integers are written as strings
_resources = msgspec.json.Decoder(Resource)
_attribute_lists = msgspec.json.Decoder(list[msgspec.Raw])
_single_attributes = msgspec.json.Decoder(KeyValue)


class Decoder:
    """Reads the lines of a recording, one after the other.

    Spans share equal attributes and strings: never change them in place.
    """

    def __init__(self) -> None:
        self._processes: dict[bytes, Process] = {}
        self._by_content: dict[str, Process] = {}
        self._remembered: dict[bytes, dict[str, AttributeValue]] = {}
        self._single: dict[bytes, tuple[str, AttributeValue]] = {}
        self._trace_ids: dict[str, str] = {}

    def decode(self, line: bytes) -> list[tuple[Process, list[Span]]]:
        """Return the processes of one line, each with its spans. A process of several lines is one object.

        Raises:
            OtlpError: the line is no JSON, or no OTLP trace document.
        """
        try:
            found = []
            for resource in _documents.decode(line).resource_spans:
                process = self._process(bytes(resource.resource))
                records = list(chain.from_iterable([scope.spans for scope in resource.scope_spans]))
                found.append((process, self._spans(records, process)))
            return found
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise OtlpError(str(error)) from None

    def _process(self, resource: bytes) -> Process:
        process = self._processes.get(resource)
        if process is None:
            attributes = dict(map(_read_attribute, _resources.decode(resource).attributes))
            pid, name = attributes.get(PROCESS_PID), attributes.get(PROCESS_NAME)
            process = Process(pid if isinstance(pid, int) else 0, name if isinstance(name, str) else "main", attributes)
            process = self._processes[resource] = self._by_content.setdefault(repr(process), process)
        return process

    def _spans(self, records: list[SpanRecord], process: Process) -> list[Span]:
        _check_ids(records)
        spans = []
        remembered, trace_ids = self._remembered.get, self._trace_ids.get
        for record in records:
            attributes = bytes(record.attributes)
            start, end = record.start_time_unix_nano, record.end_time_unix_nano
            if not 0 <= start <= end <= _LAST_MOMENT:
                start, end = _moment(start), max(start, _moment(end))
            links = events = _NOTHING
            error = None
            if record.links:
                links = [self._link(link) for link in record.links]
            if record.events:
                events = [self._event(event) for event in record.events]
            if record.status is not None and record.status.code == _STATUS_ERROR:
                types = (event.attributes.get(EXCEPTION_TYPE) for event in events)
                error = record.status.message or next((kind for kind in types if isinstance(kind, str)), "error")
            spans.append(
                Span(
                    intern(record.name),
                    trace_ids(record.trace_id) or self._trace_id(record.trace_id),
                    record.span_id,
                    record.parent_span_id or None,
                    start,
                    end,
                    remembered(attributes) or self._attributes(attributes),
                    links,
                    events,
                    error,
                    process,
                )
            )
        return spans

    def _trace_id(self, text: str) -> str:
        known = self._trace_ids[text] = _id(text, 32)
        return known

    def _event(self, record: EventRecord) -> Event:
        return Event(record.name, _moment(record.time_unix_nano), self._attributes(bytes(record.attributes)))

    def _link(self, record: LinkRecord) -> Link:
        trace_id = self._trace_ids.get(record.trace_id) or self._trace_id(record.trace_id)
        return Link(trace_id, _id(record.span_id, 16), self._attributes(bytes(record.attributes)))

    def _attributes(self, text: bytes) -> dict[str, AttributeValue]:
        """Return the attributes of this JSON array; the same text gives the same dict."""
        known = self._remembered.get(text)
        if known is None:
            single = self._single.get
            items = [bytes(item) for item in _attribute_lists.decode(text)]
            known = dict([single(item) or self._attribute(item) for item in items])
            _remember(self._remembered, text, known)
        return known

    def _attribute(self, text: bytes) -> tuple[str, AttributeValue]:
        known = _read_attribute(_single_attributes.decode(text))
        _remember(self._single, text, known)
        return known


def decode(line: bytes) -> list[tuple[Process, list[Span]]]:
    """Decode one line by itself; see `Decoder.decode`.

    Raises:
        OtlpError: the line is no JSON, or no OTLP trace document.
    """
    return Decoder().decode(line)


def _remember(memory: dict[bytes, Any], text: bytes, value: Any) -> None:
    if len(text) <= _LONGEST_REMEMBERED:
        if len(memory) >= _MEMORY_LIMIT:  # common attributes soon come again
            memory.clear()
        memory[text] = value


def _check_ids(records: list[SpanRecord]) -> None:
    """Check that ids of spans and parents are 16 hexadecimal digits, and make them lower case.

    Raises:
        ValueError: one is not.
    """
    ids = [record.span_id for record in records]
    ids += [record.parent_span_id for record in records if record.parent_span_id]
    if not _are_ids(ids):
        for record in records:
            record.span_id = _id(record.span_id, 16)
            record.parent_span_id = _id(record.parent_span_id, 16) if record.parent_span_id else None


def _are_ids(texts: list[str]) -> bool:
    """Return whether each id is 16 hexadecimal digits in lower case. One check for all takes a third of the time."""
    text = " ".join(texts)
    try:
        count = len(bytes.fromhex(text))  # it accepts blanks
    except ValueError:
        return False
    blanks = len(texts) - 1
    each = len(text) == 16 * len(texts) + blanks and text[16::17] == " " * blanks
    return each and count == 8 * len(texts) and text == text.lower()


def _id(text: str, digits: int) -> str:
    lower = text.lower()
    if len(lower) != digits or not _ALL_HEX(lower):
        raise ValueError(f"{text[:40]!r} is no id of {digits} hexadecimal digits")
    return lower


def _moment(time: int) -> int:
    if not 0 <= time <= _LAST_MOMENT:
        raise ValueError("a time is no number of 64 bits")
    return time


def _read_attribute(record: KeyValue) -> tuple[str, AttributeValue]:
    value = record.value
    if value.array_value is None:
        return intern(record.key), _read_value(value)
    return intern(record.key), _read_list(value.array_value.values)


def _read_list(elements: list[Element]) -> Any:
    """Return values of one type; nearly always texts, or integers of 64 bits."""
    texts = [element.string_value for element in elements]
    if None not in texts:
        return texts
    numbers = [
        int(element.int_value) for element in elements if element.string_value is None and element.int_value is not None
    ]
    if len(numbers) == len(elements) and _INT64[0] <= min(numbers) and max(numbers) <= _INT64[-1]:
        return numbers
    values = [_read_value(element) for element in elements]
    if len({*map(type, values)}) > 1:
        values = [str(value) for value in values]
    return values


def _read_value(record: AnyValue | Element) -> Any:
    """Return one value.

    A value that OTLP can hold and an attribute here cannot, such as a list of lists, becomes its JSON.
    """
    if record.string_value is not None:
        return record.string_value
    if record.int_value is not None:
        value = int(record.int_value)
        return value if value in _INT64 else str(value)
    if record.double_value is not None:
        return float(record.double_value)
    if record.bool_value is not None:
        return record.bool_value
    if record.bytes_value is not None:
        return record.bytes_value
    nested = bytes(record.kvlist_value) or (bytes(record.array_value) if isinstance(record, Element) else b"")
    return nested.decode()
