"""Timelines as files: Trace Event JSON, Perfetto's packets and speedscope's profiles, read by other readers."""

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from tests.export.runs import folder_of, run_of_tasks, run_of_two
from tracellm.report.export import FORMATS, export
from tracellm.trace.model import Process, Span, Trace

SCHEMA = Path(__file__).parent / "speedscope.schema.json"
"""https://www.speedscope.app/file-format-schema.json (MIT) of speedscope 1.25.0."""


def written(trace: Trace, format: str) -> bytes:
    """Return an export in one piece."""
    return b"".join(export(folder_of(trace), format))


def test_chrome_events_have_exact_times_and_everything_known():
    """Each call is a complete event with its attributes; microseconds have three decimals, so nanoseconds are exact."""
    trace = run_of_two()
    begin = trace.spans[0].start_ns
    actual = json.loads(written(trace, "chrome"), parse_float=Decimal)
    assert actual["otherData"]["start_unix_ns"] == str(begin)
    calls = {event["args"]["span_id"]: event for event in actual["traceEvents"] if event["ph"] == "X"}
    assert calls.keys() == {span.span_id for span in trace.spans if span.name != "llm_request"}
    for span_id, event in calls.items():
        span = trace.by_id[span_id]
        assert (event["ts"] * 1000, event["dur"] * 1000) == (span.start_ns - begin, span.duration_ns)
        assert (event["name"], event["cat"]) == (span.name, span.level)
        assert span.process is not None
        assert event["pid"] == span.process.pid
        assert event["args"].items() >= json.loads(json.dumps(span.attributes)).items()
        assert event["args"].get("parent_span_id") == span.parent_span_id


def test_chrome_arrows_begin_and_end_within_calls():
    """Each chain of arrows begins and ends once, and every point of it is at the beginning of a call."""
    actual = json.loads(written(run_of_two(), "chrome"))["traceEvents"]
    begins = {(event["pid"], event["tid"], event["ts"]) for event in actual if event["ph"] == "X"}
    chains: dict[int, list[str]] = {}
    for event in actual:
        if event["ph"] in "stf":
            assert (event["pid"], event["tid"], event["ts"]) in begins
            chains.setdefault(event["id"], []).append(event["ph"])
    assert len(chains) == 5 + 4 + 2  # messages, starts, requests
    assert all(Counter(chain)["s"] == Counter(chain)["f"] == 1 for chain in chains.values())


def test_chrome_lives_are_asynchronous_and_closed():
    """A request's life is an asynchronous event with its own id and its phases within it."""
    actual = json.loads(written(run_of_two(), "chrome"))["traceEvents"]
    events = [event for event in actual if event["ph"] in "be" and event["id2"] == {"local": "1"}]
    assert [(event["ph"], event["name"]) for event in events] == [
        ("b", "request 0"), ("b", "waiting"), ("e", "waiting"), ("b", "prefill"), ("e", "prefill"),
        ("b", "decode"), ("e", "decode"), ("e", "request 0"),
    ]  # fmt: skip
    times = [event["ts"] for event in events]
    assert times == sorted(times)


def packets(data: bytes) -> list[Any]:
    """Return Perfetto's packets, read by its own message classes."""
    return list(perfetto_trace_pb2.Trace.FromString(data).packet)


@pytest.mark.parametrize("make", [run_of_two, run_of_tasks])
def test_perfetto_packets_open_and_close_every_span_once(make: Any):
    """On each track begins and ends match; names are defined before their use, and arrows have known ends."""
    trace = make()
    event_type = perfetto_trace_pb2.TrackEvent
    known: set[int] = set()
    names: dict[int, str] = {}
    depth: Counter[int] = Counter()
    begun: Counter[str] = Counter()
    for packet in packets(written(trace, "perfetto")):
        names |= {entry.iid: entry.name for entry in packet.interned_data.event_names}
        if packet.HasField("track_descriptor"):
            known.add(packet.track_descriptor.uuid)
            assert packet.track_descriptor.parent_uuid in {0, *known}
        elif packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in known
            if event.type == event_type.TYPE_INSTANT:
                assert names[event.name_iid] == "mark"
                continue
            depth[event.track_uuid] += 1 if event.type == event_type.TYPE_SLICE_BEGIN else -1
            assert depth[event.track_uuid] >= 0
            if event.type == event_type.TYPE_SLICE_BEGIN:
                begun[names[event.name_iid]] += 1
    assert not +depth
    expected = Counter(span.name for span in trace.spans if span.name != "llm_request")
    assert begun & expected == expected


def test_speedscope_profiles_follow_its_schema_and_nest():
    """The file follows speedscope's schema; each track is a profile with ordered, matching events."""
    trace = run_of_tasks()
    actual = json.loads(written(trace, "speedscope"))
    jsonschema.validate(actual, json.loads(SCHEMA.read_text()))
    assert actual["name"] == "hello.py"
    assert [profile["name"] for profile in actual["profiles"]][:1] == ["main · MainThread"]
    opened = 0
    for profile in actual["profiles"]:
        stack: list[int] = []
        moment = profile["startValue"]
        for event in profile["events"]:
            assert moment <= event["at"] <= profile["endValue"]
            moment = event["at"]
            if event["type"] == "O":
                stack.append(event["frame"])
                opened += 1
            else:
                assert stack.pop() == event["frame"]
        assert not stack
    assert opened == len(trace.spans) - len(trace.named("llm_request"))
    assert len({json.dumps(frame) for frame in actual["shared"]["frames"]}) == len(actual["shared"]["frames"])


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "mermaid"])
def test_a_run_without_spans_is_an_empty_file_of_its_form(format: str):
    """An empty recording is exported as a valid empty file of its form."""
    data = written(Trace([]), format)
    if FORMATS[format].endswith(".json"):
        assert isinstance(json.loads(data), dict)
    if format == "perfetto":
        assert len(packets(data)) == 1


def many(count: int) -> Trace:
    """A call, and `count` calls made by it in turn."""
    process = Process(1, "main")
    root = Span("root", "1" * 32, "f" * 16, None, 0, 10 * count + 10, process=process)
    calls = (Span("f", "1" * 32, f"{n:016x}", root.span_id, 10 * n, 10 * n + 5, process=process) for n in range(count))
    return Trace([root, *calls])


@pytest.mark.parametrize("format", [format for format in FORMATS if format not in ("mermaid", "dot")])
def test_a_file_is_made_piece_by_piece(format: str):
    """No piece of a file holds more than a few spans, for any number of spans."""

    def largest(pieces: Iterator[bytes]) -> int:
        return max(map(len, pieces))

    folder = folder_of(many(5_000))
    assert largest(export(folder, format)) < sum(map(len, export(folder, format))) / 4


@pytest.mark.parametrize("format", ["chrome", "perfetto"])
def test_a_moment_before_everything_is_at_the_beginning(format: str):
    """The timeline of a damaged recording, with an event without a time, begins at the first call."""
    trace = run_of_two()
    trace.named("EngineCore.step_fn")[0].events[0].time_ns = 0
    data = written(trace, format)
    if format == "chrome":
        [time] = [event["ts"] for event in json.loads(data)["traceEvents"] if event["ph"] == "i"]
    else:
        instant = perfetto_trace_pb2.TrackEvent.TYPE_INSTANT
        [time] = [packet.timestamp for packet in packets(data) if packet.track_event.type == instant]
    assert time == 0


ODD = {"a list": ["x", "y"], "nothing": [], "a truth": True, "a large number": 2**70, "no number": float("nan"),
       "half a character": "\ud800", "a text": "x", "a negative number": -(2**70)}  # fmt: skip


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
@pytest.mark.parametrize("format", [format for format in FORMATS if format != "mermaid"])
def test_attributes_of_any_value_are_exported(format: str, value: Any):
    """Attributes of any value, as in damaged or foreign recordings, are exported."""
    trace = run_of_two()
    for span in trace.spans:
        span.attributes = dict.fromkeys(span.attributes, value) | {"other": value}
        span.error = value if isinstance(value, str) else None
    data = written(trace, format)
    if FORMATS[format].endswith(".json"):
        assert isinstance(json.loads(data), dict)
    if format == "perfetto":
        assert len(packets(data)) > len(trace.spans)
