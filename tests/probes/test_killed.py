"""A killed process loses at most its last second of records."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tracellm import probe
from tracellm.probes.context.call_context import state
from tracellm.probes.record.recorder import FLUSH_SECONDS
from tracellm.probes.recording import Recording
from tracellm.probes.spans.converter import convert_folder
from tracellm.trace.run_folder import RunFolder

PROGRAM = """
import os, sys, time
from tracellm import probe
from tracellm.probes.recording import Recording

@probe(attributes=lambda args, kwargs, result: {"number": args[0]})
def inner(number): pass

@probe
def middle(number):
    for one in range(number, number + 20): inner(one)

@probe
def outer(number):  # lasts: its calls are reported before it ends
    while True:
        middle(number)
        number += 20
        os.write(1, b"%d %d\\n" % (number, len(rounds)))
        if number % 200 == 0: time.sleep(0.01)

recording, rounds = Recording(sys.argv[1], catalog=(), ring=int(sys.argv[2]) or None), []
recording.start()
recording._recorder._each_round = lambda: rounds.append(1)
outer(0)
"""

ROUNDS = 4
"""Minimum rounds of the recorder's thread in a second."""


def killed(folder: Path, rounds: int, ring: int = 0) -> int:
    """Return the number of calls that a program reported a second before it was killed.

    The recorder's thread had so many rounds in that time.
    """
    said = [(0, 0)]
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), str(ring)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith(b"\n"):
                calls, done = line.split()
                said.append((int(calls), int(done)))
            if said[-1][1] >= rounds:
                process.kill()
    assert process.returncode == -signal.SIGKILL
    end = said[-1][1]
    return max(calls for calls, done in said if done < end - ROUNDS)


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the ended calls in order; all are within their caller."""
    assert convert_folder(folder) == []
    run = RunFolder.open(folder)
    assert {problem.code for problem in run.problems} <= {"manifest_missing", "trace_torn"}
    assert [root.name for root in run.trace.roots] in (["python"], [])
    return sorted(int(span.attributes["number"]) for span in run.trace.named("inner") if not span.open)


@pytest.mark.parametrize("rounds", [6, 9])
def test_a_killed_process_loses_its_last_second_at_most(tmp_path: Path, rounds: int):
    """All calls reported more than a second before the kill are recorded, without gaps."""
    due = killed(tmp_path, rounds)
    there = numbers(tmp_path)
    assert there == list(range(len(there)))
    assert len(there) >= due > 0
    assert (ROUNDS + 0.5) * FLUSH_SECONDS <= 1


def test_a_killed_process_keeps_its_ring(tmp_path: Path):
    """The ring has the last spans up to a second before the kill, with their callers."""
    due = killed(tmp_path, 7, ring=500)
    there = numbers(tmp_path)
    assert there == list(range(there[0], there[-1] + 1))
    assert there[-1] + 1 >= due
    assert there[0] > 0
    assert len(there) >= 400  # 500 spans include some of `middle`


def test_a_written_call_has_its_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A written call has its callers, which have not ended, as open calls, though a span cannot be written."""

    @probe
    def inner() -> None:
        """End before its caller."""

    def fail() -> None:
        """Fail as an attribute of a user's span can."""
        raise ValueError("no such attribute")

    @probe
    def outer() -> None:
        """Copy the folder as a kill would leave it."""
        monkeypatch.setitem(state.open, 0, fail)  # no call has this number
        inner()
        recording._recorder.write_all()
        shutil.copytree(tmp_path / "run", tmp_path / "killed")

    with Recording(tmp_path / "run", catalog=()) as recording:
        outer()
    assert convert_folder(tmp_path / "killed") == []
    trace = RunFolder.open(tmp_path / "killed").trace
    calls = [(depth, span.method, span.open) for depth, span in trace.walk(trace.roots[0])]
    assert len(trace.roots) == 1
    assert calls == [(0, "python", True), (1, "outer", True), (2, "inner", False)]
