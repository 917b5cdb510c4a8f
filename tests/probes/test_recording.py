"""A recording from start to end: nothing is lost at any kind of exit, and the overhead is reported."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.probes.tracing import outline, record
from tracellm import probe
from tracellm.probes.context.call_context import state
from tracellm.probes.recording import Recording
from tracellm.probes.spans.converter import convert_folder
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import RunFolder


@probe
def work(x: int = 0) -> int:
    """A function to record."""
    return x


def read(folder: Path) -> RunFolder:
    """Read a run folder without a manifest."""
    run = RunFolder.open(folder)
    assert run.problems == ["run.json is missing: the script and its options are unknown"]
    return run


def test_the_process(tmp_path: Path):
    """The resource has the recording process, its versions, and the relation of its clocks."""
    with Recording(tmp_path, catalog=(), process="EngineCore_0"):
        work()
    [process] = read(tmp_path).trace.processes
    assert (process.pid, process.name) == (os.getpid(), "EngineCore_0")
    assert set(process.attributes) <= set(names.ATTRIBUTES)
    assert (tmp_path / "trace" / f"EngineCore_0-{os.getpid()}.jsonl").exists()


def test_real_clock_and_ids(tmp_path: Path):
    """Times are those of the wall clock, and ids are new each time."""
    before = time.time_ns()
    for run in ("a", "b"):
        with Recording(tmp_path / run, catalog=()):
            work()
    after = time.time_ns()
    first, second = (read(tmp_path / run).trace for run in ("a", "b"))
    slack = 50_000_000  # two clocks are read one after the other
    assert all(before - slack <= span.start_ns <= span.end_ns <= after + slack for span in first.spans)
    assert not {span.span_id for span in first.spans} & {span.span_id for span in second.spans}
    assert first.spans[0].trace_id != second.spans[0].trace_id


def test_one_at_a_time(tmp_path: Path):
    """A second recording is refused during the first, and allowed after it."""
    with Recording(tmp_path / "a", catalog=()), pytest.raises(RuntimeError, match="under way"):
        Recording(tmp_path / "b", catalog=()).start()
    with Recording(tmp_path / "b", catalog=()):
        work()
    assert len(read(tmp_path / "b").trace.spans) == 2


def test_stopping_twice(tmp_path: Path):
    """A second stop does nothing."""
    recording = Recording(tmp_path, catalog=())
    recording.start()
    recording.stop()
    recording.stop()
    assert len(read(tmp_path).trace.spans) == 1


def test_nothing_is_dropped(tmp_path: Path):
    """Threads that record at full speed lose nothing."""
    calls, threads = 3000, 4

    def run() -> None:
        workers = [threading.Thread(target=lambda: [work(i) for i in range(calls)]) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    trace = record(tmp_path, run)
    assert len(trace.named("work")) == calls * threads


def test_the_listener(tmp_path: Path):
    """A listener gets every span in the order of ends; an error in it is reported and costs no span."""
    heard: list[Span] = []
    trace = record(tmp_path / "a", lambda: (work(1), work(2)), listener=heard.append)
    assert [span.name for span in heard] == ["work", "work", "script.py"]
    assert [span.span_id for span in heard] == [span.span_id for span in sorted(trace.spans, key=lambda s: s.end_ns)]

    def broken(span: Span) -> None:
        raise ValueError("deaf")

    with Recording(tmp_path / "b", catalog=(), listener=broken) as recording:
        work()
    assert recording.stats["problems"] == ["the live log stopped: ValueError: deaf"]
    assert len(read(tmp_path / "b").trace.spans) == 2


def test_stats(tmp_path: Path):
    """The stats have calls, time in probes, and its share of the run; they add up."""
    with Recording(tmp_path, catalog=()) as recording:
        for _ in range(100):
            work()
        assert recording.stats["installed"] == 0
    stats = recording.stats
    assert stats["calls"] == 101
    assert stats["per_call_us"] > 0
    assert stats["seconds"] >= 100 * stats["per_call_us"] / 1e6
    assert 0 < stats["share"] <= 1.5
    json.dumps(stats)


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    """An unwritable folder is an error at the start."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Recording(tmp_path / "file" / "run", catalog=()).start()
    with Recording(tmp_path / "run", catalog=()):
        work()


def test_a_call_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A call with an unencodable attribute is reported; all other calls are written."""

    @probe
    def wrong() -> None: ...

    monkeypatch.setattr(
        "tracellm.trace.otlp.encoding._name", lambda name: 1 / 0 if name.endswith("wrong") else f'"{name}"'
    )
    with Recording(tmp_path, catalog=()) as recording:
        work()
        wrong()
        work()
    assert recording.stats["problems"] == [
        "a call of test_a_call_that_cannot_be_written.wrong cannot be written: ZeroDivisionError"
    ]
    assert [span.name for span in read(tmp_path).trace.spans] == ["python", "work", "work"]


def test_the_script_failed(tmp_path: Path):
    """The script's span has the exception that ended it; exit status 0 is no failure."""

    def fails() -> None:
        raise ValueError("bad")

    assert outline(record(tmp_path / "a", fails)) == "script.py !ValueError: bad"
    assert outline(record(tmp_path / "b", lambda: sys.exit(0))) == "script.py"
    assert outline(record(tmp_path / "c", lambda: sys.exit(2))) == "script.py !SystemExit: 2"


# -- programs that end in other ways ----------------------------------------------------------------------------------

PROGRAM = """
import os, sys, threading, time, signal, multiprocessing
from tracellm import probe
from tracellm.probes.recording import Recording
from tracellm.probes.context.call_context import state

@probe
def work(x=0): return x

recording = Recording(sys.argv[1], catalog=())
recording.start()
for i in range(5): work(i)
"""


def program(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a program that records and then executes `code`."""
    source = PROGRAM + code
    return subprocess.run([sys.executable, "-c", source, str(folder)], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise ValueError('end')", 1),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", 0),
    ],
)
def test_programs_that_end(tmp_path: Path, code: str, status: int):
    """All records are written at the interpreter's exit, after success or failure, with and without threads."""
    ended = program(tmp_path, code)
    assert ended.returncode == status, ended.stderr
    assert "tracellm" not in ended.stderr
    assert len(read(tmp_path).trace.named("work")) == 5


def test_a_program_that_is_killed(tmp_path: Path):
    """A killed program's records up to the last moment are whole."""
    wait = "while not recording._recorder.calls: time.sleep(0.01)\n"
    ended = program(tmp_path, wait + "os.kill(os.getpid(), signal.SIGKILL)")
    assert ended.returncode == -signal.SIGKILL
    assert convert_folder(tmp_path) == []
    assert len(read(tmp_path).trace.named("work")) == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("name", "fork"),
    [
        ("child", "if os.fork() == 0:\n    work(9)\n    sys.exit()\nos.wait()"),
        (
            "Its own",
            "p = multiprocessing.get_context('fork').Process(target=work, args=(9,), name='Its own')\n"
            "p.start(); p.join()",
        ),
    ],
)
def test_programs_that_fork(tmp_path: Path, name: str, fork: str):
    """A forked child writes its calls to its own file with its own ids; the parent loses nothing."""
    ended = program(tmp_path, fork)
    assert ended.returncode == 0, ended.stderr
    run = read(tmp_path)
    assert len(run.trace.processes) == 2
    [root] = run.trace.roots
    assert root.name == "python"
    by_process: dict[str, list[Any]] = {process.name: [] for process in run.trace.processes}
    for span in run.trace.named("work"):
        assert span.process is not None
        assert span.parent_span_id == root.span_id
        by_process[span.process.name].append(span.attributes[names.ARGUMENTS])
    assert by_process.pop("main") == [[f"x={i}"] for i in range(5)]
    assert by_process == {name: [["x=9"]]}


def test_calls_that_outlive_the_recording_are_told(tmp_path: Path):
    """A thread's call still open at the end of the recording is recorded as open."""
    entered, leave = threading.Event(), threading.Event()

    @probe
    def waits() -> None:
        work()
        entered.set()
        leave.wait()

    thread = threading.Thread(target=waits)
    with Recording(tmp_path, catalog=()):
        thread.start()
        entered.wait()
    leave.set()
    thread.join()
    trace = read(tmp_path).trace
    waiting = next(span for span in trace.spans if span.method == "waits")
    assert waiting.open
    assert [span.method for span in trace.children(waiting)] == ["work"]
    assert not any(span.open for span in trace.spans if span is not waiting)


def test_calls_that_have_ended_are_not_told_as_open(tmp_path: Path):
    """A call that has ended in any way is not recorded as open."""

    @probe
    def fails() -> None:
        raise ValueError

    @probe
    def yields() -> Iterator[int]:
        yield 1

    @probe
    async def waits() -> None:
        return None

    with Recording(tmp_path, catalog=()):
        work()
        assert list(yields()) == [1]
        asyncio.run(waits())
        with pytest.raises(ValueError):
            fails()
        assert len(state.open) == 1  # the script itself
    assert state.open == {}
