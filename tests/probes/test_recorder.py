"""The recorder: records are in the file at the end of each step, and the program is never disturbed."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.faults.processes import HANG_GUARD, wait_until
from tracellm import probe
from tracellm.probes.context.call_context import state
from tracellm.probes.record import recorder as recorder_module
from tracellm.probes.record.record_file import RECORDS, RecordFile, RecordReader
from tracellm.probes.recording import Recording
from tracellm.probes.wrapping.probe import Probe
from tracellm.probes.wrapping.wrapper import wrap
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder


@probe
def work(number: int) -> int:
    """A function to record."""
    return number


def step(calls: int) -> None:
    """A step of an engine with so much work."""
    for number in range(calls):
        work(number)


recorded_step = wrap(step, Probe("step", "step", span_name="step", is_step=True))


@probe
def run_steps(count: int, calls: int = 1) -> None:
    """Call the steps."""
    for _ in range(count):
        recorded_step(calls)


@pytest.fixture
def no_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the recorder's thread until the end."""
    monkeypatch.setattr(recorder_module, "FLUSH_SECONDS", HANG_GUARD)


def recorded_calls(folder: Path) -> int:
    """Return the number of records in the files now."""
    count = 0
    for path in (folder / "trace").glob("*.records"):
        reader = RecordReader(path)
        count += sum(len(frame.content.records) for frame in reader.frames() if frame.kind == RECORDS)
        reader.close()
    return count


def numbers(folder: Path) -> list[str]:
    """Return the arguments of the recorded calls of `work`."""
    spans = RunFolder.open(folder).trace.named("work")
    return [span.attributes[names.ARGUMENTS][0] for span in spans]


@pytest.mark.usefixtures("no_rounds")
def test_a_step_is_in_the_file_when_it_has_ended(tmp_path: Path):
    """The end of a step writes all its records."""
    with Recording(tmp_path, catalog=()) as recording:
        recorded_step(300)
        assert recorded_calls(tmp_path) == 301
        assert [record[0] for record in recording._recorder.buffer] == [-4]  # the writing time
    assert len(numbers(tmp_path)) == 300


@pytest.mark.usefixtures("no_rounds")
def test_time_of_writing_is_on_the_caller_of_the_step(tmp_path: Path):
    """The writing time is on the caller of the step, so it does not count as the caller's own time."""
    with Recording(tmp_path, catalog=()):
        run_steps(3, 100)
    trace = RunFolder.open(tmp_path).trace
    [caller] = trace.named("run_steps")
    took = caller.attributes[names.RECORDING_DURATION]
    assert 0 < took < caller.duration_ns - sum(span.duration_ns for span in trace.named("step"))
    assert not [span for span in trace.named("step") if names.RECORDING_DURATION in span.attributes]


def interrupted(after: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, interrupted by Ctrl-C after its first call."""
    struck: list[int] = []

    def outer(*args: Any) -> Any:
        result = after(*args)
        if not struck:
            struck.append(1)
            raise KeyboardInterrupt
        return result

    return outer


@pytest.mark.usefixtures("no_rounds")
@pytest.mark.parametrize("target", ["append", "_write"])
def test_an_interrupt_while_a_step_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str):
    """Ctrl-C between any two calls of the writing loses and repeats no record."""
    with Recording(tmp_path, catalog=()) as recording:
        recorded_step(5)
        monkeypatch.setattr(RecordFile, target, interrupted(getattr(RecordFile, target)))
        with pytest.raises(KeyboardInterrupt):
            recorded_step(5)
        assert not recording._recorder._writing.locked()
        recorded_step(5)
    assert numbers(tmp_path) == [f"number={number}" for number in range(5)] * 3
    assert len(RunFolder.open(tmp_path).trace.named("step")) == 3
    assert recording.stats["spans"] == 15 + 3 + 1


def test_an_interrupt_in_a_capture(tmp_path: Path):
    """If Ctrl-C interrupts the capture of arguments, the call is recorded as ended."""

    def capture(*call: Any) -> Any:
        raise KeyboardInterrupt

    for is_generator in (False, True):
        function = (lambda: (yield)) if is_generator else (lambda: None)
        call = wrap(function, Probe("call", "request", span_name="call", capture=capture, attributes=dict))
        folder = tmp_path / str(is_generator)
        with Recording(folder, catalog=()):
            with pytest.raises(KeyboardInterrupt):
                list(call() or ())
            assert len(state.open) == 1  # the script's
        [span] = RunFolder.open(folder).trace.named("call")
        assert not span.open


@pytest.mark.usefixtures("no_rounds")
def test_a_disk_that_was_full_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Records that could not be written are kept and written later; the problem is noted."""

    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    with Recording(tmp_path, catalog=()) as recording:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            recorded_step(10)
            assert len(recording._recorder.buffer) >= 11
        recorded_step(10)
    assert len(numbers(tmp_path)) == 20
    [problem] = recording.stats["problems"]
    assert problem.startswith("the recording cannot be written (No space left on device)")
    assert recording.stats["writer"]["lost"] == 0


def test_rounds_go_on_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The other work of the recorder's thread is done while calls end and none can be written."""

    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    rounds = list[int]()
    with Recording(tmp_path, catalog=()) as recording:
        recording._recorder._each_round = lambda: rounds.append(1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            wait_until(lambda: run_steps(1) or len(rounds) > 2, "three rounds")
    [problem] = recording.stats["problems"]
    assert problem.startswith("the recording cannot be written")


@pytest.mark.usefixtures("no_rounds")
def test_a_disk_that_stays_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If the disk stays full, memory is bounded and lost records are counted."""
    monkeypatch.setattr(recorder_module, "_MOST_WAITING", 100)

    def full(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    with Recording(tmp_path, catalog=()) as recording:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            for _ in range(5):
                recorded_step(50)
                assert len(recording._recorder.buffer) <= 152
        assert recording._recorder.lost > 100
    assert recording.stats["writer"]["lost"] == recording._recorder.lost
    assert 0 < len(numbers(tmp_path)) <= 152


@pytest.mark.usefixtures("no_rounds")
def test_a_disk_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An unresponsive disk delays the end of the program by a bounded time, and missing records are noted."""
    monkeypatch.setattr(recorder_module, "_LONGEST_END_SECONDS", 0.1)
    answers = threading.Event()
    pwrite = os.pwrite

    def hangs(*args: Any) -> int:
        answers.wait()
        return pwrite(*args)

    recording = Recording(tmp_path, catalog=())
    recording.start()
    work(1)
    monkeypatch.setattr(os, "pwrite", hangs)
    recording.stop()
    answers.set()
    assert "the end of the recording could not be written" in recording.stats["problems"][0]
    assert state.append is None


@pytest.mark.usefixtures("no_rounds")
@pytest.mark.parametrize("written", [1, 2])
def test_a_call_that_ends_while_the_end_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int):
    """A call of a thread that outlives the recording is recorded, and is no problem, whenever it ends."""
    begun, may_end = threading.Event(), threading.Event()

    @probe(name="outlive")
    def outlive() -> None:
        begun.set()
        may_end.wait()

    append, writes = RecordFile.append, []

    def end_the_call(file: RecordFile, *frames: bytes) -> None:
        append(file, *frames)
        writes.append(frames)
        if len(writes) == written:
            may_end.set()
            thread.join()

    thread = threading.Thread(target=outlive)
    with Recording(tmp_path, catalog=()) as recording:
        thread.start()
        begun.wait()
        work(1)
        monkeypatch.setattr(RecordFile, "append", end_the_call)
    assert len(RunFolder.open(tmp_path).trace.named("outlive")) == 1
    assert (recording.stats["problems"], recording.stats["writer"]["lost"]) == ([], 0)


@pytest.mark.usefixtures("no_rounds")
def test_a_slow_disk_does_not_hold_up_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """After a slow write, steps leave writing to the recorder's thread until the disk is fast again."""
    monkeypatch.setattr(recorder_module, "_SLOW_SECONDS", 0.0)
    with Recording(tmp_path, catalog=()) as recording:
        recorded_step(1)
        before = recorded_calls(tmp_path)
        recorded_step(1)
        assert recorded_calls(tmp_path) == before
        monkeypatch.setattr(recorder_module, "_SLOW_SECONDS", HANG_GUARD)
        recording._recorder.flush()
        recorded_step(1)
        assert recorded_calls(tmp_path) > before + 4
    assert len(numbers(tmp_path)) == 3


@pytest.mark.usefixtures("no_rounds")
def test_a_disk_is_slow_if_records_take_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A fast write of calls under way does not end the slowness of a disk."""
    pwrite, now = os.pwrite, [0.0]

    def slow(descriptor: int, content: bytes, offset: int) -> int:
        if len(content) > 3000:  # the records
            now[0] += 2 * recorder_module._SLOW_SECONDS
        return pwrite(descriptor, content, offset)

    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=time.thread_time)
    monkeypatch.setattr(recorder_module, "time", clock)
    with Recording(tmp_path, catalog=()) as recording:
        monkeypatch.setattr(os, "pwrite", slow)
        for number in range(300):
            work(number)
        recording._recorder.write_all()
        assert recording._recorder._is_slow


def test_while_nothing_is_written_calls_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """While a write hangs, calls beyond the bound are lost and counted, and the program goes on."""
    monkeypatch.setattr(recorder_module, "_MOST_WAITING", 10)
    hangs, answers = threading.Event(), threading.Event()
    pwrite = os.pwrite

    def slow(*args: Any) -> int:
        hangs.set()
        answers.wait(HANG_GUARD)
        return pwrite(*args)

    with Recording(tmp_path, catalog=()) as recording:
        monkeypatch.setattr(os, "pwrite", slow)
        work(0)
        assert hangs.wait(HANG_GUARD)
        for number in range(100):
            work(number)
        answers.set()
    assert recording.stats["writer"]["lost"] >= 90


def test_what_cannot_be_encoded_is_recorded_in_words(tmp_path: Path):
    """Integers over 64 bits, lone surrogates and endless lists do not affect other records."""
    endless: list[Any] = []
    endless.append(endless)
    values = [1 << 70, "\ud800", endless, object(), {1: {2: 1 << 99}}, {"\ud800": 1}]
    call = wrap(
        lambda value: None,
        Probe(
            "call",
            "layer",
            span_name="call",
            capture=lambda a, k, r: list(a),
            attributes=lambda facts: {names.RESULT: str(facts)},
        ),
    )
    with Recording(tmp_path, catalog=()) as recording:
        for value in values:
            call(value)
        work(1)
    trace = RunFolder.open(tmp_path).trace
    assert len(trace.named("call")) == len(values)
    assert len(trace.named("work")) == 1
    assert recording.stats["problems"] == []


@pytest.mark.usefixtures("no_rounds")
def test_a_fault_of_the_recorder_does_not_disturb_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A batch that cannot be encoded is lost and counted; the steps before and after it are recorded."""

    def fail(*args: Any) -> None:
        raise ZeroDivisionError("no")

    with Recording(tmp_path, catalog=()) as recording:
        recorded_step(1)
        with monkeypatch.context() as patch:
            patch.setattr(recorder_module, "encode", fail)
            recorded_step(2)
        recorded_step(3)
    assert len(numbers(tmp_path)) == 4
    assert recording.stats["writer"]["lost"] >= 3
    assert "calls are not recorded: ZeroDivisionError: no" in recording.stats["problems"][0]


def test_a_recording_that_cannot_begin_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If a part of the start fails, everything before is undone, and the next recording begins."""

    def fail(*args: Any) -> None:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr("tracellm.probes.install.patcher.Patcher.start", fail)
        with pytest.raises(RuntimeError, match="no"):
            Recording(tmp_path).start()
    assert state.append is None
    assert list((tmp_path / "trace").iterdir()) == []
    with Recording(tmp_path, catalog=()):
        work(1)
    assert len(numbers(tmp_path)) == 1


def test_a_killed_process_has_every_step(tmp_path: Path):
    """A process killed right after a step loses nothing of it."""
    child = os.fork()
    if not child:
        Recording(tmp_path, catalog=()).start()
        for _ in range(7):
            recorded_step(10)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(HANG_GUARD)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    wait_until(lambda: recorded_calls(tmp_path) >= 77, "the records of 7 steps")
