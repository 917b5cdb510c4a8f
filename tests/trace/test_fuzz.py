"""The reader of traces on twenty thousand damaged recordings: it reports faults, reads the rest, and always ends.

The damage is seeded (`tests.trace.damage`), so the number in a failure reproduces it.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import tracellm
from benchmarks.big_traces import played
from tests.trace.damage import damaged, damaged_file
from tracellm.probes.recording import Recording
from tracellm.report.calltree import calltree
from tracellm.report.diagram.sequence import sequence_diagram
from tracellm.report.steps_table import steps_table
from tracellm.trace import names, otlp
from tracellm.trace.model import Trace
from tracellm.trace.problems import Problem
from tracellm.trace.run_folder import RunFolder, write_manifest
from tracellm.trace.steps import steps

LINES, FOLDERS, PER_TEST = 17_000, 4_000, 1000

_SPANS_A_LINE = 5


@tracellm.probe
def outer(number: int) -> int:
    """A call that calls another."""
    return inner(str(number)) + 1


@tracellm.probe
def inner(text: str) -> int:
    """A call that may fail."""
    return int(text)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Lines of recordings: the recorder's own, with failed calls, and an engine's in one and two processes."""
    folder = tmp_path_factory.mktemp("recorded")
    with Recording(folder, script="script.py"):
        for number in range(6):
            outer(number)
        with pytest.raises(ValueError):
            inner("x")
    files = sorted((folder / "trace").iterdir())
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    for processes in (1, 2):
        for process, spans in played(250, processes, batch=2, layers=1):
            some = [spans[at : at + _SPANS_A_LINE] for at in range(0, len(spans), _SPANS_A_LINE)]
            lines += [otlp.encode(process, few, "1").rstrip(b"\n") for few in some]
    assert len(lines) > 80
    return lines


def examine(trace: Trace) -> None:
    """Check that a trace is a forest of spans with unique ids and ordered times, and that every query works."""
    below = [span for root in trace.roots for _, span in trace.walk(root)]
    assert sorted(map(id, below)) == sorted(map(id, trace.spans)), "not a forest"
    assert len(trace.by_id) == len(trace.spans)
    assert [span.start_ns for span in trace.spans] == sorted(span.start_ns for span in trace.spans)
    for span in trace.spans:
        assert span.duration_ns >= 0
        assert trace.by_id[span.span_id] is span
        assert (len(span.trace_id), len(span.span_id)) == (32, 16)
        assert span.level in names.LEVELS
        assert isinstance(span.lifeline + span.method + span.thread[2], str)
    assert all(message.receive is None or message.receive.start_ns >= 0 for message in trace.messages)
    assert len(trace.unsent) + len(trace.orphans) <= 2 * len(trace.spans)
    assert len(steps(trace)) <= len(trace.spans)


@pytest.mark.parametrize("seed", range(LINES // PER_TEST))
def test_damaged_lines(recorded: Sequence[bytes], seed: int):
    """A damaged line is read or refused with a reason, even after others, and its spans are valid."""
    draw = random.Random(seed)
    decoder = otlp.Decoder()
    refused = 0
    for number in range(PER_TEST):
        line = damaged(draw, draw.choice(recorded))
        try:
            found = decoder.decode(line)
        except otlp.OtlpError:
            refused += 1
            continue
        for process, spans in found:
            assert all(span.process is process and 0 <= span.start_ns <= span.end_ns < 2**64 for span in spans), number
            assert otlp.encode(process, spans)
    assert 0 < refused < PER_TEST


@pytest.mark.parametrize("seed", range(FOLDERS // PER_TEST))
def test_damaged_folders(recorded: Sequence[bytes], seed: int, tmp_path: Path):
    """The intact lines of a damaged folder are read, and the problems count the lost ones."""
    draw = random.Random(1000 + seed)
    (tmp_path / "trace").mkdir()
    write_manifest(tmp_path, {"schema": 1})
    files = [tmp_path / "trace" / name for name in ("main-1.jsonl", "other-2.jsonl")]
    ids = {line: [span.span_id for _, spans in otlp.decode(line) for span in spans] for line in recorded}
    manifest = (tmp_path / "run.json").read_bytes()
    for number in range(PER_TEST):
        chosen = draw.sample(recorded, 4)
        broken = [damaged(draw, line) if draw.random() < 0.4 else line for line in chosen]
        content = b"\n".join(broken) + (b"\n" if draw.random() < 0.8 else b"")
        anything = draw.random() < 0.2
        files[0].write_bytes(damaged_file(draw, content) if anything else content)
        files[1].write_bytes(draw.choice(recorded) + b"\n")
        if number % 10 == 0:
            (tmp_path / "run.json").write_bytes(damaged(draw, manifest))
        run = RunFolder.open(tmp_path)
        examine(run.trace)
        if not anything:
            whole = {
                span_id for line, after in zip(chosen, broken, strict=True) if line == after for span_id in ids[line]
            }
            assert whole <= run.trace.by_id.keys(), number
        assert all(isinstance(problem, Problem) and problem for problem in run.problems)


def test_reports_of_damaged_folders(recorded: Sequence[bytes], tmp_path: Path):
    """Every trace that is read has a call tree, a diagram and a table of steps."""
    draw = random.Random(2000)
    (tmp_path / "trace").mkdir()
    write_manifest(tmp_path, {"schema": 1})
    for _ in range(60):
        lines = [damaged(draw, line) if draw.random() < 0.3 else line for line in draw.sample(recorded, 40)]
        (tmp_path / "trace" / "main-1.jsonl").write_bytes(b"\n".join(lines))
        trace = RunFolder.open(tmp_path).trace
        assert calltree(trace)
        assert sequence_diagram(trace)
        assert steps_table(trace)
