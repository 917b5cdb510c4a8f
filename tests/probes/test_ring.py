"""Of a ring the last spans are there, at any moment, and exactly so many at the end."""

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracellm import probe
from tracellm.probes import writer as writer_module
from tracellm.probes.ring import RingFile
from tracellm.probes.session import Recording
from tracellm.probes.trace_file import Line
from tracellm.trace.run_folder import RunFolder


@probe
def work(x: int = 0) -> int:
    """Something to record."""
    return x


@probe
def outer(calls: int) -> None:
    """Something around it."""
    for i in range(calls):
        work(i)


def line(*numbers: int) -> Line:
    """A line with spans of these numbers."""
    document = {"resourceSpans": [{"scopeSpans": [{"spans": list(numbers)}]}]}
    return Line(json.dumps(document).encode() + b"\n", len(numbers))


OPEN = Line(b'"of a call that has not ended"\n', 0)


def numbers_in(file: Path) -> list[int]:
    """The numbers of the spans in a file; -1 for a call that has not ended."""
    if not file.exists():
        return []
    documents = [json.loads(one) for one in file.read_bytes().splitlines()]
    return [
        number
        for one in documents
        for number in ([-1] if isinstance(one, str) else one["resourceSpans"][0]["scopeSpans"][0]["spans"])
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=12), st.integers(1, 12))
def test_the_last_are_kept(tmp_path_factory: pytest.TempPathFactory, writes: list[list[int]], most: int):
    """After each write the last ones are in the two files, in order; at the end in one, and no other."""
    file = tmp_path_factory.mktemp("ring") / "main-1.jsonl"
    begun: list[int] = []
    ring = RingFile(file, most, lambda: begun.append(1))
    written = 0
    for sizes in writes:
        lines = [OPEN]
        for size in sizes:
            lines.append(line(*range(written, written + size)))
            written += size
        ring.write(lines)
        there = numbers_in(file.with_name("main-1.before.jsonl")) + numbers_in(file)
        ended = [number for number in there if number >= 0]
        assert ended == list(range(written - len(ended), written))
        assert len(ended) >= min(most, written)
        assert len(ended) <= 2 * (most + 5)
    ring.settle()
    ring.write([OPEN])
    ring.close()
    there = [number for number in numbers_in(file) if number >= 0]
    assert there == list(range(max(0, written - most), written))
    assert ring.let_go == written - len(there)
    assert numbers_in(file)[-1] == -1
    assert [one.name for one in file.parent.iterdir()] == ["main-1.jsonl"]


def test_a_recorded_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A recording keeps the last spans, what encloses them among them, and tells how many it let go."""
    monkeypatch.setattr(writer_module, "FLUSH_SECONDS", 0.001)
    recording = Recording(tmp_path, catalog=(), ring=100, script="script.py")
    with recording:
        outer(5000)
    trace = RunFolder.open(tmp_path).trace
    assert len(trace.spans) == 100
    assert [root.name for root in trace.roots] == ["script.py"]
    assert recording.stats["let_go"] == 5002 - 100
    work_spans = trace.named("work")
    assert [span.attributes["tracellm.arguments"] for span in work_spans] == [[f"x={i}"] for i in range(4902, 5000)]


def test_a_ring_that_is_never_full(tmp_path: Path):
    """Nothing is let go of a recording that is shorter."""
    recording = Recording(tmp_path, catalog=(), ring=100)
    with recording:
        outer(5)
    assert recording.stats["let_go"] == 0
    assert len(RunFolder.open(tmp_path).trace.spans) == 7
    assert len(list((tmp_path / "trace").iterdir())) == 1


def test_a_file_that_is_there_already(tmp_path: Path):
    """A second recording of a process into one folder keeps its own last spans, whatever the first has left there."""
    for calls in (5, 27, 27):
        with Recording(tmp_path, catalog=(), ring=20) as recording:
            outer(calls)
    assert recording.stats["problems"] == []
    run = RunFolder.open(tmp_path)
    assert {problem.code for problem in run.problems} == {"manifest_missing"}
    work_spans = run.trace.named("work")[-18:]
    assert [span.attributes["tracellm.arguments"] for span in work_spans] == [[f"x={i}"] for i in range(9, 27)]


def test_calls_that_outlive_a_ring_are_told(tmp_path: Path):
    """A call that has not returned when the recording ends is in what is kept, though it was told of long before."""
    entered, leave = threading.Event(), threading.Event()

    @probe
    def waits() -> None:
        outer(1000)
        entered.set()
        leave.wait()

    thread = threading.Thread(target=waits)
    with Recording(tmp_path, catalog=(), ring=10):
        thread.start()
        entered.wait()
    leave.set()
    thread.join()
    trace = RunFolder.open(tmp_path).trace
    waiting = next(span for span in trace.spans if span.method == "waits")
    assert waiting.open
    assert "outer" in [span.method for span in trace.children(waiting)]
    assert len(trace.spans) == 11
