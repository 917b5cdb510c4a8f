"""OTLP files, read back by our own reader and by OpenTelemetry's message classes."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.export.runs import folder_of, run_of_two
from tracellm.report.export import export
from tracellm.trace import otlp
from tracellm.trace.model import Event, Trace
from tracellm.trace.run_folder import RunFolder, write_manifest


def recorded() -> Trace:
    """Return a run with values of every type, an event and an error."""
    trace = run_of_two()
    span = trace.spans[3]
    span.attributes |= {
        "a.bool": True,
        "an.int": -(2**63),
        "a.float": 1.5,
        "a.list": ["x", "y"],
        "none": [],
        "big": 2**70,
    }
    span.events = [Event("exception", span.start_ns + 1, {"exception.type": "ValueError", "n": 3})]
    span.error = "ValueError: 你好"
    return trace


def written(trace: Trace, name: str, **more: Any) -> bytes:
    """Return an export in one piece, in the form given by the file's name."""
    return b"".join(export(folder_of(trace), "otlp", name=name, **more))


def read_spans(line: bytes) -> list[tuple[Any, ...]]:
    """Return all data of the spans in a document."""
    found = []
    for process, spans in otlp.decode(line):
        for span in spans:
            links = [(link.trace_id, link.span_id, link.attributes) for link in span.links]
            events = [(event.name, event.time_ns, event.attributes) for event in span.events]
            found.append((process.pid, process.name, span.name, span.trace_id, span.span_id, span.parent_span_id,
                          span.start_ns, span.end_ns, span.attributes, links, events, span.error))  # fmt: skip
    return sorted(found, key=lambda one: one[4])


def test_a_document_holds_everything():
    """One JSON document of all processes reads back as recorded."""
    trace = recorded()
    document = written(trace, "x.json")
    assert len(json.loads(document)["resourceSpans"]) >= 2
    lines = b"".join(
        otlp.encode(process, [span for span in trace.spans if span.process is process])
        for process in {id(span.process): span.process for span in trace.spans if span.process}.values()
    )
    expected = sorted((one for line in lines.splitlines() for one in read_spans(line)), key=lambda one: one[4])
    assert read_spans(document) == expected


def test_lines_are_documents_that_a_collector_takes():
    """Each line is a document below the 1 MiB that the collector's receiver reads per line."""
    trace = recorded()
    lines = written(trace, "x.jsonl").splitlines(keepends=True)
    assert all(len(line) < 2**20 and line.endswith(b"\n") for line in lines)
    assert sorted((one for line in lines for one in read_spans(line)), key=lambda one: one[4]) == read_spans(
        written(trace, "x.json")
    )


def test_long_texts_are_spread_over_lines():
    """Prompts that fit alone are spread over lines; a longer one has its own line, and none is lost."""
    trace = run_of_two()
    for span in trace.spans:
        span.attributes = span.attributes | {"text": "x" * 300_000}
    trace.spans[7].attributes["text"] *= 4
    lines = written(trace, "x.jsonl").splitlines(keepends=True)
    ids = [[one[4] for one in read_spans(line)] for line in lines if len(line) > 2**20]
    assert ids == [[trace.spans[7].span_id]]
    assert sorted(one[4] for line in lines for one in read_spans(line)) == sorted(trace.by_id)


def test_protocol_buffers_say_the_same():
    """The binary form equals the JSON document, read by OpenTelemetry's own classes."""
    trace = recorded()
    document = json.loads(written(trace, "x.json"), object_hook=_ids_as_protobuf_has_them)
    from_json = ParseDict(document, ExportTraceServiceRequest())
    binary = ExportTraceServiceRequest.FromString(written(trace, "x.pb"))
    spans = sum(len(scope.spans) for one in binary.resource_spans for scope in one.scope_spans)
    assert spans == len(trace.spans)
    assert binary == from_json


def _ids_as_protobuf_has_them(record: dict[str, Any]) -> dict[str, Any]:
    """Return hexadecimal ids as base64, the only difference between OTLP JSON and protobuf's JSON."""
    return {
        key: base64.b64encode(bytes.fromhex(value)).decode() if key in ("traceId", "spanId", "parentSpanId") else value
        for key, value in record.items()
    }


def test_what_is_left_out_leaves_no_hole():
    """Down to a level, each span's parent is in the file."""
    spans = read_spans(written(recorded(), "x.json", detail="request"))
    ids = {one[4] for one in spans}
    assert all(one[5] is None or one[5] in ids for one in spans)
    assert 0 < len(spans) < len(run_of_two().spans)


@pytest.mark.parametrize("name", ["x.jsonl", "x.json"])
def test_an_export_is_a_recording_again(name: str, tmp_path: Path):
    """Either JSON form in a run folder is read as its original run; the document also on one line."""
    trace = run_of_two()
    (tmp_path / "trace").mkdir()
    write_manifest(tmp_path, {"schema": 1, "tracellm": "0"})
    (tmp_path / "trace" / "all.jsonl").write_bytes(written(trace, name).replace(b",\n{", b",{"))
    again = RunFolder.open(tmp_path)
    assert again.problems == []
    assert again.trace.by_id.keys() == trace.by_id.keys()
    assert all(again.trace.by_id[span.span_id].start_ns == span.start_ns for span in trace.spans)
