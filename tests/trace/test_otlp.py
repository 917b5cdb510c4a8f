"""Spans to OTLP JSON and back, with OpenTelemetry's protobuf schema as a second reader."""

import base64
import json
import math
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tracellm.trace import otlp
from tracellm.trace.model import Event, Link, Process, Span
from tracellm.trace.otlp import decoding
from tracellm.trace.otlp.encoding import attributes_text

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
texts = st.text(max_size=20)  # any Unicode text but halves of surrogate pairs
integers = st.integers(-(2**63), 2**63 - 1)
numbers = st.floats(allow_nan=False)
values = st.one_of(
    texts,
    st.booleans(),
    integers,
    numbers,
    *(st.lists(one, max_size=4) for one in (texts, st.booleans(), integers, numbers)),
)
attributes = st.dictionaries(texts, values, max_size=5)
times = st.integers(0, 2**63)


def hex_ids(digits: int) -> st.SearchStrategy[str]:
    """Return ids with this number of hexadecimal digits."""
    return st.integers(1, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """Any span that OTLP can hold."""
    start = draw(times)
    return Span(
        name=draw(texts),
        trace_id=draw(hex_ids(32)),
        span_id=draw(hex_ids(16)),
        parent_span_id=draw(st.none() | hex_ids(16)),
        start_ns=start,
        end_ns=start + draw(st.integers(0, 10**12)),
        attributes=draw(attributes),
        links=draw(st.lists(st.builds(Link, hex_ids(32), hex_ids(16), attributes), max_size=2)),
        events=draw(st.lists(st.builds(Event, texts, times, attributes), max_size=2)),
        error=draw(st.none() | st.text(min_size=1, max_size=20)),
    )


processes = st.builds(lambda attributes: Process(0, "main", attributes), attributes)


def as_tuple(span: Span) -> tuple[Any, ...]:
    """Return a span without its process as a tuple, since spans compare by identity."""
    links = [(link.trace_id, link.span_id, link.attributes) for link in span.links]
    events = [(event.name, event.time_ns, event.attributes) for event in span.events]
    names = "name", "trace_id", "span_id", "parent_span_id", "start_ns", "end_ns", "attributes", "error"
    return (*(getattr(span, name) for name in names), links, events)


@patient
@given(processes, st.lists(spans(), max_size=3))
def test_round_trip(process: Process, written: list[Span]):
    """Spans survive writing and reading, with the types of their attribute values."""
    line = otlp.encode(process, written, "1.0")
    [(read_process, read)] = otlp.decode(line)
    assert line.count(b"\n") == 1
    assert read_process.attributes == process.attributes
    assert [as_tuple(span) for span in read] == [as_tuple(span) for span in written]
    assert repr([span.attributes for span in read]) == repr([span.attributes for span in written])
    assert all(span.process is read_process for span in read)


@patient
@given(processes, st.lists(spans(), min_size=1, max_size=3))
def test_another_reader_understands_it(process: Process, written: list[Span]):
    """OpenTelemetry's protobuf schema reads each line, once its hexadecimal ids are base64."""
    document = json.loads(otlp.encode(process, written, "1.0"))
    [resource] = document["resourceSpans"]
    for span in resource["scopeSpans"][0]["spans"]:
        for holder in (span, *span.get("links", ())):
            for name in {"traceId", "spanId", "parentSpanId"} & holder.keys():
                holder[name] = base64.b64encode(bytes.fromhex(holder[name])).decode()
    message = json_format.ParseDict(document, TracesData())
    read = message.resource_spans[0].scope_spans[0].spans
    assert [span.name for span in read] == [span.name for span in written]
    assert [span.span_id.hex() for span in read] == [span.span_id for span in written]
    assert [span.end_time_unix_nano for span in read] == [span.end_ns for span in written]
    assert [[a.key for a in span.attributes] for span in read] == [[*span.attributes] for span in written]
    assert [(s.status.code, s.status.message) for s in read] == [(2, s.error) if s.error else (0, "") for s in written]


def test_numbers_that_json_lacks():
    """Infinities and NaN survive as in protobuf's JSON, and too large integers become text."""
    span = Span("s", "1" * 32, "2" * 16, None, 1, 2, {"a": math.inf, "b": -math.inf, "c": math.nan, "d": 2**70})
    [(_, [read])] = otlp.decode(otlp.encode(Process(1, "main"), [span]))
    assert read.attributes["a"] == math.inf
    assert read.attributes["b"] == -math.inf
    assert math.isnan(read.attributes["c"])
    assert read.attributes["d"] == str(2**70)


def test_lists_that_are_almost_those_of_the_span_before():
    """The encoding of a list does not depend on the previous list of the same attribute."""
    long = "x" * 70
    lists: list[list[Any]] = [[1, 0], [True, False], [1, False], [1.0, 0.0], [1.0, -0.0], [1, 0], [], [1], [long, "a"]]
    lists += [[long, "a\0b"], [long, "\\u0000"], [f"{long}\\", "u0000"], [long, "a\0b"], [long], [1e308, 1e308]]
    for i, values in enumerate(lists):
        for text in (attributes_text({"key": values}), attributes_text({"key": values})):
            assert text == attributes_text({f"first {i}": values}).replace(f"first {i}", "key")


def test_half_a_surrogate_pair():
    """A lone surrogate is written as a question mark."""
    span = Span("s", "1" * 32, "2" * 16, None, 1, 2, {"a": "x\ud800y"})
    [(_, [read])] = otlp.decode(otlp.encode(Process(1, "main"), [span]))
    assert read.attributes["a"] == "x?y"


def test_what_others_write():
    """Numeric integers, upper-case ids, unknown fields and empty parents are accepted."""
    span = {
        "traceId": "AB" * 16, "spanId": "CD" * 8, "parentSpanId": "", "name": "s", "startTimeUnixNano": 5, "flags": 1,
        "endTimeUnixNano": "7", "attributes": [{"key": "a", "value": {"intValue": 3}}, {"key": "b", "value": {}}],
        "status": {"code": 2},
    }  # fmt: skip
    line = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    [(process, [read])] = otlp.decode(line)
    assert (read.trace_id, read.parent_span_id, read.start_ns, read.end_ns) == ("ab" * 16, None, 5, 7)
    assert read.attributes == {"a": 3, "b": ""}
    assert read.error == "error"
    assert process.name == "main"


def read_value(value: dict[str, Any]) -> Any:
    """Return one attribute's value as read."""
    attributes = [{"key": "a", "value": value}]
    span = {
        "traceId": "a" * 32, "spanId": "b" * 16, "name": "s", "startTimeUnixNano": "1", "endTimeUnixNano": "2",
        "attributes": attributes,
    }  # fmt: skip
    [(_, [read])] = otlp.decode(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode())
    return read.attributes["a"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"bytesValue": "AAE="}, "AAE="),
        ({"kvlistValue": {"values": []}}, '{"values": []}'),
        ({"arrayValue": {"values": [{"arrayValue": {"values": []}}]}}, ['{"values": []}']),
        ({"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "x"}]}}, ["1", "x"]),
        ({"arrayValue": {}}, []),
        ({"intValue": str(2**63)}, str(2**63)),
        ({"doubleValue": "Infinity"}, math.inf),
        ({}, ""),
    ],
)
def test_what_attributes_here_cannot_hold(value: dict[str, Any], read: Any):
    """Values without an OpenTelemetry attribute type are kept as text."""
    assert read_value(value) == read
    assert type(read_value(value)) is type(read)


@pytest.mark.parametrize("time", [-1, "-1", 2**64, str(2**64), "x", 1.5, None, True])
def test_times_that_are_none(time: Any):
    """A time that is not an unsigned 64-bit number is refused."""
    span = {"traceId": "a" * 32, "spanId": "b" * 16, "name": "s", "startTimeUnixNano": 0, "endTimeUnixNano": 1}
    for name in ("startTimeUnixNano", "endTimeUnixNano"):
        document = {"resourceSpans": [{"scopeSpans": [{"spans": [{**span, name: time}]}]}]}
        with pytest.raises(otlp.OtlpError):
            otlp.decode(json.dumps(document).encode())


def test_a_decoder_reads_nothing_twice():
    """Spans with equal attributes share a dict, and those of one process the process, across lines."""
    decoder = otlp.Decoder()
    actual = {"a": 1, "b": ["x", "y"]}, {"a": 1, "b": ["x", "z"]}, {"a": True, "b": ["x", "y"]}
    lines = [
        otlp.encode(Process(1, "main", {"process.pid": 1}), [Span("s", "1" * 32, f"{i:016x}", None, 1, 2, one)])
        for i, one in enumerate([*actual, *actual])
    ]
    found = [one for line in lines for one in decoder.decode(line)]
    read = [span for _, spans in found for span in spans]
    assert repr([span.attributes for span in read]) == repr([*actual, *actual])
    assert [read[i].attributes is read[i + 3].attributes for i in range(3)] == [True] * 3
    assert read[0].attributes["b"] is not read[1].attributes["b"]
    assert len({id(process) for process, _ in found}) == 1


def test_what_a_decoder_remembers_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """The decoder's cache is bounded, and its limit does not change results."""
    monkeypatch.setattr(decoding, "_MEMORY_LIMIT", 3)
    decoder = otlp.Decoder()
    spans = [Span("s", "1" * 32, f"{i:016x}", None, 1, 2, {"a": i % 7, "b": "x" * i * 100}) for i in range(40)]
    [(_, read)] = decoder.decode(otlp.encode(Process(1, "main"), spans))
    assert [span.attributes for span in read] == [span.attributes for span in spans]
    assert len(decoder._remembered) <= 3
    assert len(decoder._single) <= 3
    assert max(map(len, decoder._remembered)) <= decoding._LONGEST_REMEMBERED


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"resourceSpans": 3}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "no ids"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz", "spanId": "12", "name": "", '
        b'"startTimeUnixNano": "1", "endTimeUnixNano": "2"}]}]}]}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
)
def test_what_is_no_trace(line: bytes):
    """A line that is no OTLP JSON document is refused as such."""
    with pytest.raises(otlp.OtlpError):
        otlp.decode(line)


@patient
@given(st.binary(max_size=200) | spans().map(lambda span: otlp.encode(Process(1, "main"), [span])), st.data())
def test_damaged_lines(line: bytes, data: st.DataObject):
    """A damaged line is read or refused, without any other error."""
    if line:
        at = data.draw(st.integers(0, len(line) - 1))
        line = line[:at] + data.draw(st.binary(max_size=3)) + line[at + data.draw(st.integers(0, 5)) :]
    with suppress(otlp.OtlpError):
        otlp.decode(line)
