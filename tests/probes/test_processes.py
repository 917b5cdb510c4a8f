"""Child processes join the recording of their parent, and end it with it."""

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.probes.spawned_work import (
    is_killed_at_its_end,
    joins_again,
    lives_on,
    loads,
    looks_for_a_model,
    multiplies,
    waits_to_be_killed,
    works_and_waits,
)
from tests.probes.tracing import outline
from tests.probes.unknowing_work import works
from tracellm import probe
from tracellm.probes.install.selection import Selection
from tracellm.probes.join import find_handle
from tracellm.probes.propagation import processes as processes_module
from tracellm.probes.propagation.processes import VARIABLE, ProcessGroup, Status, recorded_processes
from tracellm.probes.recording import Recording
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import RunFolder

SPAWN = multiprocessing.get_context("spawn")


@probe
def launches(name: str, target: Any, *args: Any, context: Any = SPAWN) -> Any:
    """Start a process."""
    process = context.Process(target=target, args=args, name=name)
    process.start()
    return process


def test_a_spawned_process_joins(tmp_path: Path):
    """A spawned process records into its own file, under its starting call; the live log has each span once."""
    heard: list[Span] = []
    with Recording(tmp_path, catalog=(), listener=heard.append, script="script.py") as recording:
        process = launches("Worker_0", loads)
        process.join()
    assert process.exitcode == 0
    assert VARIABLE not in os.environ
    trace = RunFolder.open(tmp_path).trace
    assert outline(trace, names.THREAD_NAME) == (
        "script.py\n  launches\n    loads\n      multiplies\n      multiplies name=second"
    )
    assert len({span.trace_id for span in trace.spans}) == 1
    assert recording.processes == [{"pid": os.getpid(), "name": "main"}, {"pid": process.pid, "name": "Worker_0"}]
    [child] = [one for one in trace.processes if one.pid == process.pid]
    [main] = [one for one in trace.processes if one.pid == os.getpid()]
    assert child.attributes[names.PROCESS_PARENT_PID] == os.getpid()
    assert child.attributes[names.CLOCK_WALL] == main.attributes[names.CLOCK_WALL]
    assert [span.method for span in heard] == ["launches", "multiplies", "multiplies", "loads", "py"]
    assert recording.stats["calls"] == len(trace.spans)
    assert recording.stats["problems"] == []
    assert sorted(file.suffix for file in (tmp_path / "trace").iterdir()) == [".jsonl", ".jsonl"]


def test_a_process_that_knows_nothing_of_it_joins(tmp_path: Path):
    """A spawned process joins before its work begins, although its work does not import tracellm."""
    with Recording(tmp_path, catalog=(), script="script.py") as recording:
        process = SPAWN.Process(target=works, name="Worker_0")
        process.start()
        assert "_tracellm" not in vars(process)
        process.join()
    assert process.exitcode == 0
    assert outline(RunFolder.open(tmp_path).trace) == "script.py\n  works"
    assert recording.processes == [{"pid": os.getpid(), "name": "main"}, {"pid": process.pid, "name": "Worker_0"}]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_a_server_forks_join(tmp_path: Path):
    """Each process of a `forkserver` joins below its starting call, and hands over everything at its end."""
    from multiprocessing.forkserver import _forkserver

    context = multiprocessing.get_context("forkserver")
    try:
        with Recording(tmp_path, catalog=(), script="script.py") as recording:
            for name, target in (("Worker_0", works), ("Worker_1", loads)):
                process = context.Process(target=target, name=name)
                process.start()
                process.join()
                assert process.exitcode == 0
    finally:
        _forkserver._stop()  # type: ignore[attr-defined]
    assert outline(RunFolder.open(tmp_path).trace) == "script.py\n  works\n  loads\n    multiplies\n    multiplies"
    assert [actual["name"] for actual in recording.processes] == ["main", "Worker_0", "Worker_1"]
    assert recording.stats["problems"] == []
    assert recording.stats["calls"] == 4


def test_a_process_joins_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    """vLLM's plugin does nothing in a process that has already joined."""
    with Recording(tmp_path, catalog=()) as recording:
        launches("Worker_0", joins_again).join()
    assert [actual["name"] for actual in recording.processes] == ["main", "Worker_0"]
    assert capfd.readouterr().err == ""


def test_a_process_finds_replaced_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`--model NAME=PATH` takes effect in a spawned process before its work, as vLLM's servers need it."""
    monkeypatch.setenv("TRACELLM_MODELS", '{"some/model": "/folder"}')
    with Recording(tmp_path, catalog=()):
        process = launches("ApiServer_0", looks_for_a_model)
        process.join()
    assert process.exitcode == 0


def test_a_forked_process_that_ends_at_once(tmp_path: Path):
    """The problems of a process are reported, however short it ran."""

    @probe(attributes=lambda args, kwargs, result: {"found": args["missing"]})
    def fails() -> None: ...

    with Recording(tmp_path, catalog=()) as recording:
        process = multiprocessing.get_context("fork").Process(target=fails)
        process.start()
        process.join()
    [problem] = recording.stats["problems"]
    assert "raised TypeError" in problem


def test_a_process_of_any_name(tmp_path: Path):
    """A process keeps a name that is invalid as a file name, and its recording is in the same folder."""
    name = "/tmp/a/b\\" + "c" * 300
    with Recording(tmp_path, catalog=()) as recording:
        process = launches(name, loads)
        process.join()
    trace = RunFolder.open(tmp_path).trace
    assert {(one.pid, one.name) for one in trace.processes} == {(os.getpid(), "main"), (process.pid, name)}
    assert [len(actual["name"]) for actual in recording.processes] == [4, 60]


def test_a_process_that_lives_on(tmp_path: Path):
    """At the end of the recording all processes stop recording, keep their records, and go on."""
    worked, go_on = SPAWN.Event(), SPAWN.Event()
    with Recording(tmp_path / "a", catalog=(), script="script.py") as recording:
        process = launches("EngineCore_0", lives_on, worked, go_on)
        worked.wait()
    assert recording.stats["problems"] == []
    trace = RunFolder.open(tmp_path / "a").trace
    assert outline(trace) == "script.py\n  launches\n    lives_on\n      multiplies"
    assert [span.name for span in trace.spans if span.open] == ["lives_on"]
    with Recording(tmp_path / "b", catalog=()) as later:
        go_on.set()
        process.join()
    assert process.exitcode == 0
    [problem] = later.stats["problems"]
    assert problem == (
        f"EngineCore_0 (pid {process.pid}) was started before the recording began: what it does is not recorded. "
        "Make the engine while the recording runs"
    )
    assert later.processes == [{"pid": os.getpid(), "name": "main"}]
    assert len(RunFolder.open(tmp_path / "a").trace.spans) == len(trace.spans)


def test_a_process_waits_until_its_recording_has_ended(tmp_path: Path):
    """The end is called once, in a non-daemon thread that Python waits for."""
    met: list[threading.Thread] = []
    status = Status(tmp_path, "Worker_0")
    for is_over in (False, True, True):
        if is_over:
            (tmp_path / ".over").touch()
        writer = threading.Thread(
            target=status.check, args=[lambda: met.append(threading.current_thread()), dict], daemon=True
        )
        writer.start()
        writer.join()
    for thread in threading.enumerate():
        if thread.name == "tracellm-end":
            thread.join()
    status.end({})
    assert [thread.daemon for thread in met] == [False]


def test_a_process_that_is_killed_when_its_work_is_done(tmp_path: Path):
    """A process's recording ends before Python shuts down, so a kill at that moment loses nothing."""
    with Recording(tmp_path, catalog=(), script="script.py") as recording:
        process = launches("Worker_0", is_killed_at_its_end)
        process.join()
    assert process.exitcode == -signal.SIGKILL
    assert outline(RunFolder.open(tmp_path).trace) == "script.py\n  launches\n    multiplies"
    assert recording.stats["problems"] == []


@pytest.mark.parametrize("method", [one for one in ("spawn", "fork") if one in multiprocessing.get_all_start_methods()])
def test_a_process_that_is_terminated_and_killed_at_once(tmp_path: Path, method: str):
    """A process hands over its records before it is terminated, so nothing is lost without a wait."""
    context = multiprocessing.get_context(method)
    with Recording(tmp_path, script="script.py", selection=Selection("request", only=("probe",))) as recording:
        process = launches("Worker_0", works_and_waits, worked := context.Event(), context=context)
        worked.wait()
        process.terminate()
        process.kill()
        process.join()
    assert process.exitcode in (-signal.SIGTERM, -signal.SIGKILL)
    trace = RunFolder.open(tmp_path).trace
    assert outline(trace) == "script.py\n  launches\n    works_and_waits\n      multiplies"
    assert [span.name for span in trace.spans if span.open] == ["works_and_waits"]
    assert recording.stats["calls"] == len(trace.spans) - 1
    assert recording.stats["problems"] == []
    assert sorted(file.suffix for file in (tmp_path / "trace").iterdir()) == [".jsonl", ".jsonl"]


def test_a_process_that_is_killed(tmp_path: Path):
    """A killed process keeps its records and open calls, and is reported as killed and perhaps limited in depth."""
    with Recording(tmp_path, catalog=(), script="script.py", selection=Selection(depth_limit=20_000)) as recording:
        process = launches("Worker_0", waits_to_be_killed, str(tmp_path / "trace" / "Worker_0"))
        process.join()
    run = RunFolder.open(tmp_path)
    assert outline(run.trace) == "script.py\n  launches\n    waits_to_be_killed\n      multiplies"
    assert [span.name for span in run.trace.spans if span.open] == ["waits_to_be_killed"]
    [problem] = recording.stats["problems"]
    assert problem == (f"Worker_0 (pid {process.pid}) was killed: what it did in its last moment is not recorded")
    assert recording.stats["deep_steps"] == 0


def test_only_spawned_children_find_a_handle():
    """Only multiprocessing's own child of the recording process joins; a child's subprocesses do not."""
    actual = json.dumps({"pid": 7})
    fork = ["python", "-c", "...", "--multiprocessing-fork"]
    assert find_handle({VARIABLE: actual}, fork, 7) == {"pid": 7}
    assert find_handle({VARIABLE: actual}, ["python", "script.py"], 7) is None
    assert find_handle({VARIABLE: actual}, fork, 8) is None
    assert find_handle({VARIABLE: "{"}, fork, 7) is None
    assert find_handle({VARIABLE: "[]"}, fork, 7) is None
    assert find_handle({}, fork, 7) is None


def test_a_users_subprocess_is_left_alone(tmp_path: Path):
    """A recorded process can run a program that records itself, as without a recording."""
    program = (
        "import sys, os\nfrom tracellm.probes.recording import Recording\n"
        "from tests.probes.spawned_work import multiplies\n"
        f"with Recording(sys.argv[1], catalog=()): multiplies(1)\nassert {VARIABLE!r} not in os.environ"
    )
    with Recording(tmp_path / "a", catalog=(), script="script.py"):
        multiplies(1)
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "b")], check=True, timeout=120)
    assert outline(RunFolder.open(tmp_path / "a").trace) == "script.py\n  multiplies"
    assert outline(RunFolder.open(tmp_path / "b").trace) == "python\n  multiplies"


@pytest.mark.parametrize(("heard", "seconds"), [(False, 10), (True, 30)])
def test_how_long_the_end_of_others_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: bool, seconds: int
):
    """An unresponsive process is soon given up at the end; one still writing gets more time."""
    clock = itertools.count()
    monkeypatch.setattr(processes_module, "time", SimpleNamespace(monotonic=clock.__next__, sleep=lambda seconds: None))
    others = ProcessGroup(tmp_path)
    status = Status(tmp_path, "Worker_0")
    if heard:
        status.set_ending()
    _, [problem] = others.end()
    [waited] = [int(word) for word in problem.split() if word.isdecimal()]
    assert waited in range(seconds, seconds + 5)
    assert problem == f"Worker_0 (pid {os.getpid()}) did not end its recording in {waited} s: its end is missing"
    status.end({})


def test_dead_processes_are_not_waited_for(tmp_path: Path):
    """Status files of dead processes cause no wait, and are removed."""
    together = ProcessGroup(tmp_path)
    (tmp_path / "Worker_0-1.process").write_text('{"pid": 1, "name": "Worker_0", "stats": {"calls": 3}}')
    (tmp_path / "Worker_1-2.process").write_text('{"pid": 2, "name":')
    assert together.any()
    actual, problems = together.end()
    assert [status.get("stats") for status in actual] == [{"calls": 3}, None]
    assert problems == ["Worker_1-2 (pid ?) was killed: what it did in its last moment is not recorded"]
    assert list(tmp_path.iterdir()) == []


def test_processes_are_listed_by_their_files(tmp_path: Path):
    """Processes are listed from converted and unconverted files and all segments, without earlier recordings."""
    for name in ("main-1.records", "Worker-2.before.records", "Worker-2.records", "child-3.jsonl", "old-4.jsonl"):
        (tmp_path / name).touch()
    found = recorded_processes(tmp_path / "main-1.jsonl", ["old-4.jsonl"])
    assert [(one["name"], one["pid"]) for one in found] == [("main", 1), ("Worker", 2), ("child", 3)]
    assert recorded_processes(tmp_path / "gone" / "main-1.jsonl", []) == [{"pid": 1, "name": "main"}]
