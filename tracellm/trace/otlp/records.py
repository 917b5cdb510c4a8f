"""The parts of an OTLP JSON document that a trace is read from, as msgspec reads them.

Attributes stay JSON: most of them came before, and are known by their text (`tracellm.trace.otlp.decoding`). What is
not named here is skipped.
"""

import msgspec

__all__ = ["AnyValue", "Document", "Element", "EventRecord", "Key", "KeyValue", "LinkRecord", "Resource", "SpanRecord"]


class _Record(msgspec.Struct, rename="camel", gc=False):
    pass


class Element(_Record):
    """A value within an array: what cannot be within an attribute's array is kept as JSON."""

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
    """An attribute's value: one of these."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: str | int | None = None
    double_value: float | str | None = None
    bytes_value: str | None = None
    array_value: _ArrayValue | None = None
    kvlist_value: msgspec.Raw = msgspec.Raw()


class Key(_Record):
    """An attribute of which only the name is asked for."""

    key: str


class KeyValue(_Record):
    """An attribute."""

    key: str
    value: AnyValue = msgspec.field(default_factory=AnyValue)


class EventRecord(_Record):
    """Something that happened within a span."""

    name: str = ""
    time_unix_nano: int = 0
    attributes: msgspec.Raw = msgspec.Raw(b"[]")


class LinkRecord(_Record):
    """A pointer to another span."""

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
    """The description of a process."""

    attributes: list[KeyValue] = []


class _ResourceSpans(_Record):
    resource: msgspec.Raw = msgspec.Raw(b"{}")
    scope_spans: list[_ScopeSpans] = []


class Document(_Record):
    """One line of a trace file."""

    resource_spans: list[_ResourceSpans]
