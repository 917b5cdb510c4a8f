"""Once a step an engine waits until what it recorded has been handed over to the process that writes it."""

import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import HANG_GUARD, wait_until
from tracellm import probe
from tracellm.probes import writer as writer_module
from tracellm.probes.session import Recording
from tracellm.probes.spec import Probe
from tracellm.probes.wrap import wrap
from tracellm.trace.run_folder import RunFolder


@probe
def work(number: int) -> int:
    """Something to record."""
    return number


def step(calls: int) -> None:
    """A step of an engine, in which so much is done."""
    for number in range(calls):
        work(number)


recorded_step = wrap(step, Probe("step", "step", span_name="step", is_step=True))


def quiet(recording: Recording) -> None:
    """From now on records are handed over to nobody but who waits for it."""
    writer, is_quiet = recording._writer, threading.Event()
    next_ask = writer._next_ask

    def wait_for_an_ask(due: float) -> Any:
        is_quiet.set()
        return next_ask(due + HANG_GUARD)

    writer._next_ask = wait_for_an_ask  # type: ignore[method-assign]
    assert is_quiet.wait(HANG_GUARD)
    wait_until(lambda: writer._waits, "the thread that hands over")


def test_an_engine_waits_until_its_step_is_handed_over(tmp_path: Path):
    """When a step has ended, its records leave the process, while the engine waits for that."""
    with Recording(tmp_path, catalog=(), apart=True) as recording:
        quiet(recording)
        recorded_step(300)
        wait_until(lambda: not recording._writer.buffer, "the records, should the machine be too busy")
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 300


def test_few_records_are_not_worth_waiting_for(tmp_path: Path):
    """A step of a few calls goes on at once: they are handed over with those of later steps."""
    with Recording(tmp_path, catalog=(), apart=True) as recording:
        quiet(recording)
        recorded_step(1)
        assert len(recording._writer.buffer) == 2
    assert len(RunFolder.open(tmp_path).trace.named("work")) == 1


def test_who_interrupts_it_sees_the_program_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where Ctrl-C strikes while an engine waits, the traceback has no lines of the probes; the step is recorded."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    def program() -> None:
        with Recording(tmp_path, catalog=(), apart=True) as recording:
            quiet(recording)
            monkeypatch.setattr(writer_module, "allocate_lock", interrupt)
            recorded_step(300)

    with pytest.raises(KeyboardInterrupt) as caught:
        program()
    lines = traceback.extract_tb(caught.value.__traceback__)
    assert [line.name for line in lines[1:]] == ["program", "interrupt"]
    trace = RunFolder.open(tmp_path).trace
    assert len(trace.named("work")) == 300
    assert [span.error for span in trace.named("step")] == [None]
