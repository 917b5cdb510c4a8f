"""Calls as columns for the page: what is written is what the trace has, within a limit of size."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.node import require_node
from tests.report.synthetic import a_run
from tests.report.traces import Calls
from tracellm.report.html.calls_data import calls_data
from tracellm.trace import names
from tracellm.trace.model import Process, Span, Trace

PAGE_TESTS = Path(__file__).parents[1] / "page"

patient = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])

_PROCESSES = (Process(1, "main"), Process(2, "EngineCore_0"))


def decoded(data: bytes) -> list[dict[str, Any]]:
    """Return the calls that `calls_data` wrote, times in units of 0.1 microseconds."""
    length = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + length])
    numbers = iter(_varints(data[4 + length :]))
    columns = [[next(numbers) for _ in range(head["count"])] for _ in range(6)]
    assert next(numbers, None) is None
    calls: list[dict[str, Any]] = []
    start = 0
    for i, (since, ticks, parent, kind, recording, kept) in enumerate(zip(*columns, strict=True)):
        start += since
        name, level, thread, flags = head["kinds"][kind]
        attributes = dict(head["pairs"][pair] for pair in head["sets"][kept - 2]) if kept > 1 else {}
        error = attributes.pop("", "")
        assert error or kept == 1 or not flags & 1
        calls.append(
            {
                "name": head["names"][name],
                "start": start,
                "ticks": ticks,
                "parent": i - ((parent >> 1) ^ -(parent & 1)) if parent else -1,
                **{key: value for key, value in head["threads"][thread].items() if key != "engine"},
                "recording": recording,
                "level": head["levels"][level],
                "open": bool(flags & 2),
                "error": error,
                "attributes": attributes,
            }
        )
    assert head["leftOut"] == columns[5].count(1)
    return calls


def _varints(data: bytes) -> list[int]:
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    return values


def expected(trace: Trace) -> list[dict[str, Any]]:
    """Return the same from the trace."""
    numbers = {span.span_id: number for number, span in enumerate(trace.spans)}
    first = trace.spans[0].start_ns if trace.spans else 0
    calls = []
    for span in trace.spans:
        start, end = (span.start_ns - first) // 100, (span.end_ns - first) // 100
        calls.append(
            {
                "name": span.name,
                "start": start,
                "ticks": max(0, end - start),
                "parent": numbers.get(span.parent_span_id or "", -1),
                "process": span.process.name if span.process else "",
                "pid": span.thread[1],
                "thread": span.thread[2],
                "recording": (span.recording_ns + 50) // 100,
                "level": span.level,
                "open": span.open,
                "error": span.error or "",
                "attributes": {
                    name: value
                    for name, value in span.attributes.items()
                    if name not in (names.LEVEL, names.THREAD_NAME, names.OPEN, names.RECORDING_DURATION)
                    and not name.startswith("tracellm.step.")
                },
            }
        )
    return calls


_VALUES = st.one_of(st.text(), st.integers(-(2**53), 2**53), st.booleans(), st.lists(st.text(), max_size=3))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Spans with any times, callers, threads, errors and attributes."""
    spans: list[Span] = []
    for number in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 10**13))
        span = Span(
            draw(st.sampled_from(("A.f", "A.g", "main.py"))),
            "1" * 32,
            f"{number:016x}",
            draw(st.sampled_from([None, "lost", *(span.span_id for span in spans)])),
            start,
            start + draw(st.integers(0, 10**11)),
            draw(st.dictionaries(st.sampled_from(("a", "b", names.RESULT)), _VALUES)),
        )
        span.attributes |= draw(
            st.fixed_dictionaries(
                {},
                optional={
                    names.LEVEL: st.sampled_from(names.LEVELS),
                    names.THREAD_NAME: st.sampled_from(("pool_0", "pool_1")),
                    names.OPEN: st.just(True),
                    names.RECORDING_DURATION: st.integers(0, 10**9),
                    names.STEP_SAMPLED_IDS: st.just([1, 2]),
                },
            )
        )
        span.error = draw(st.none() | st.text(min_size=1))
        span.process = draw(st.sampled_from(_PROCESSES))
        spans.append(span)
    return Trace(spans, _PROCESSES)


@patient
@given(traces())
def test_calls_are_read_as_they_were_written(trace: Trace):
    """Decoded calls have the trace's names, times, callers, threads, errors and attributes."""
    assert decoded(calls_data(trace)) == expected(trace)


def test_the_page_reads_what_python_wrote(tmp_path: Path):
    """The script's decoder returns the same calls."""
    node = require_node()

    @settings(patient, max_examples=10)
    @given(traces())
    def run(trace: Trace):
        with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            Path(folder, "calls").write_bytes(calls_data(trace))
            Path(folder, "calls.json").write_text(json.dumps(expected(trace)))
            done = subprocess.run(
                [node, "--test", "calls.test.mjs"],
                cwd=PAGE_TESTS,
                env={**os.environ, "CALLS_DATA": folder},
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stdout

    run()


@given(st.integers(0, 3000))
@settings(patient)
def test_attributes_stay_within_their_size(most: int):
    """Attributes are cut to a size, the first calls of each name come first, and the others are counted."""
    calls = Calls()
    with calls("main.py"):
        for number in range(20):
            with calls("A.f", args=[f"x={number}"]):
                calls.leaf("A.g", args=[f"y={number}"])
    data = calls_data(Trace(calls.spans), most)
    kept = [call["attributes"][names.ARGUMENTS][0] for call in decoded(data) if names.ARGUMENTS in call["attributes"]]
    head = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    assert len(json.dumps(head["pairs"], separators=(",", ":"))) <= most + 2 * len(head["pairs"]) + 2
    assert sorted(kept, key=lambda one: int(one[2:])) == kept
    assert len({one[0] for one in kept}) == min(2, len(kept))
    assert head["leftOut"] == 41 - len([call for call in decoded(data) if call["attributes"]])


def test_requests_and_steps_are_named_by_their_calls():
    """Each step and request has the number of its span, and calls below a request's span have its caller."""
    trace = Trace(a_run())
    data = calls_data(trace)
    head = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    steps = [number for number, span in enumerate(trace.spans) if span.name == "EngineCore.step_fn"]
    requests = {number for number, span in enumerate(trace.spans) if span.name == names.REQUEST_SPAN}
    assert head["steps"] == [steps]
    assert set(head["requests"]) == requests
    assert not requests & {call["parent"] for call in decoded(data)}


def test_circles_of_callers_are_cut():
    """Calls that call each other, as in a damaged recording, do not keep the page from a root."""
    spans = [Span("A.f", "1" * 32, f"{i:016x}", f"{(i + 1) % 3:016x}", i, i + 1) for i in range(3)]
    assert sorted(call["parent"] for call in decoded(calls_data(Trace(spans)))) == [-1, 0, 2]
