"""Records that come faster than they can be written are waited for: none is dropped, and memory stays bounded."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tracellm import probe
from tracellm.probes import writer as writer_module
from tracellm.probes.gate import Gate
from tracellm.probes.session import Recording
from tracellm.probes.state import state
from tracellm.trace.run_folder import RunFolder

CALL: Any = "a record"


@probe
def work(x: int = 0) -> int:
    """Something to record."""
    return x


def test_the_buffer_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """However many calls, from however many threads, the buffer holds few more than it may, and every call is there."""
    monkeypatch.setattr(writer_module, "_FULL", 300)
    monkeypatch.setattr(writer_module, "FLUSH_SECONDS", 0.001)
    calls, threads, most = 5_000, 3, 0
    closed = threading.Event()
    recording = Recording(tmp_path, catalog=())
    close = Gate.close

    def closes(gate: Gate) -> None:
        nonlocal most
        most = max(most, len(recording._writer.buffer))
        close(gate)
        closed.set()

    monkeypatch.setattr(Gate, "close", closes)
    with recording:
        workers = [threading.Thread(target=lambda: [work(i) for i in range(calls)]) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert closed.is_set()
    assert recording.stats["writer"]["held_up_s"] > 0
    assert len(RunFolder.open(tmp_path).trace.named("work")) == calls * threads
    assert state.append is None


def test_a_gate_that_is_open_costs_nothing():
    """Only while it is closed a call appends by way of the gate."""
    buffer: list[Any] = []
    gate = Gate(buffer, threading.current_thread())
    state.append = buffer.append
    try:
        gate.open()
        assert state.append == buffer.append
        gate.close()
        assert state.append == gate.append
        state.append(CALL)  # in the writer's own thread: it cannot wait for itself
        gate.open()
        assert state.append == buffer.append
        gate.append(CALL)  # a call that began while it was closed
    finally:
        state.append = None
    assert buffer == [CALL, CALL]
    assert gate.held_up_ns == 0


def test_nobody_waits_for_a_writer_that_is_gone():
    """As in a process that was forked while the gate was closed."""
    buffer: list[Any] = []
    gone = threading.Thread(target=lambda: None)
    gone.start()
    gone.join()
    gate = Gate(buffer, gone)
    gate.close()
    gate.append(CALL)
    assert buffer == [CALL]


def test_a_recording_that_is_over_stays_over():
    """Closing and opening the gate late does not make a recording go on that has ended."""
    buffer: list[Any] = []
    gate = Gate(buffer, threading.current_thread())
    assert state.append is None
    gate.close()
    gate.open()
    assert state.append is None
