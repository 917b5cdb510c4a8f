"""Runs cases in a student's process, and watches it: time, output, number of processes.

A case that ends the process, or does not end, gets an `Ended`; the cases after it run in another process.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tracellm.lab.loader import VARIABLE
from tracellm.lab.sandbox.outcomes import Begun, Ended, Message, NotLoaded, NotRun, Outcome, Raised, Value, Work

__all__ = ["Limits", "Sandboxed", "run_cases"]

_MOST_RESULTS = 64 << 20
_KEPT_OUTPUT = 16 << 10
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Limits:
    """Limits of a student's process."""

    case_seconds: float = 4.0
    """Wall time of one case, beyond the start of the process."""
    total_seconds: float = 12.0
    """Wall time of all cases."""
    start_seconds: float = 15.0
    """Wall time of the start, in which the engine's libraries are imported."""
    memory: int = 4 << 30
    """Bytes of address space."""
    output: int = 1 << 20
    """Bytes that may be printed."""
    processes: int = 48
    """Processes beside the first."""
    restarts: int = 2
    """Processes started anew after a case has ended one."""


@dataclass
class Sandboxed:
    """Outcomes of the cases, and what the code printed."""

    outcomes: list[Outcome] = field(default_factory=list)
    printed: str = ""


def run_cases(
    folder: Path, lab: int, cases: Sequence[tuple[str, Any]], *, processes: bool = False, limits: Limits | None = None
) -> Sandboxed:
    """Run cases, given as (name of the check, case), with the student's files of `folder`.

    Returns as many outcomes as there are cases.
    """
    limits = limits or Limits()
    result, deadline = Sandboxed(), time.monotonic() + limits.total_seconds
    for _ in range(limits.restarts + 1):
        first = len(result.outcomes)
        if first == len(cases) or time.monotonic() >= deadline:
            break
        work = Work(str(folder), lab, list(cases[first:]), limits.memory, int(limits.total_seconds) + 5, processes)
        run = _Process(work, limits, deadline)
        run.watch()
        result.outcomes += run.outcomes
        result.printed = (result.printed + run.printed.decode(errors="replace"))[-_KEPT_OUTPUT:]
        if run.outcomes and isinstance(run.outcomes[-1], NotLoaded):
            result.outcomes += [run.outcomes[-1]] * (len(cases) - len(result.outcomes))
    result.outcomes += [NotRun()] * (len(cases) - len(result.outcomes))
    return result


class _Process:
    """One process: starts it, reads its results and its output, and ends it."""

    def __init__(self, work: Work, limits: Limits, deadline: float) -> None:
        self.outcomes: list[Outcome] = []
        self.printed = b""
        self._limits, self._deadline, self._num_cases = limits, deadline, len(work.cases)
        self._num_printed = 0
        self._data = b""
        self._begun: int | None = None
        self._since = time.monotonic()
        self._processes_before = _count_processes()
        self._results, write_end = os.pipe()
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tracellm.lab.sandbox.worker", str(write_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[write_end],
            env=environment | {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        os.close(write_end)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.msgpack.encode(work))
            self._process.stdin.close()

    def watch(self) -> None:
        """Read until the process has ended or must be ended."""
        assert self._process.stdout is not None
        ended: Ended | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._results, selectors.EVENT_READ)
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while ended is None and len(self.outcomes) < self._num_cases and selector.get_map():
                for key, _ in selector.select(_POLL_SECONDS):
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fd == self._results:
                        ended = ended or self._read(data)
                    else:
                        self._num_printed += len(data)
                        self.printed = (self.printed + data)[-_KEPT_OUTPUT:]
                if self.outcomes and isinstance(self.outcomes[-1], NotLoaded):
                    break
                ended = ended or self._check_limits()
        self._end()
        if ended is None and len(self.outcomes) < self._num_cases and not self._not_loaded():
            code = self._process.returncode
            ended = Ended("signal", signal.Signals(-code).name) if code < 0 else Ended("exit", str(code))
        if ended is not None:
            self.outcomes.append(ended)
        os.close(self._results)
        self._process.stdout.close()

    def _not_loaded(self) -> bool:
        return bool(self.outcomes) and isinstance(self.outcomes[-1], NotLoaded)

    def _read(self, data: bytes) -> Ended | None:
        """Take the messages that are complete."""
        self._data += data
        if len(self._data) > _MOST_RESULTS:
            return Ended("results", str(_MOST_RESULTS))
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if end - 4 > _MOST_RESULTS:
                return Ended("results", str(_MOST_RESULTS))
            if len(self._data) < end:
                return None
            try:
                message: Message = msgspec.msgpack.decode(self._data[4:end], type=Begun | Value | Raised | NotLoaded)
            except (msgspec.MsgspecError, RecursionError):
                return Ended("results", "0")
            self._data = self._data[end:]
            if isinstance(message, Begun):
                self._begun, self._since = message.index, time.monotonic()
            elif len(self.outcomes) < self._num_cases:
                self.outcomes.append(message)
        return None

    def _check_limits(self) -> Ended | None:
        now, limits = time.monotonic(), self._limits
        allowed = limits.start_seconds if self._begun is None else limits.case_seconds
        if now - self._since > allowed or now > self._deadline:
            return Ended("timeout", f"{min(now - self._since, allowed):.0f}")
        if self._num_printed > limits.output:
            return Ended("output", str(limits.output))
        if _count_processes() - self._processes_before > limits.processes and (
            _count_descendants(self._process.pid) > limits.processes
        ):
            return Ended("processes", str(limits.processes))
        return None

    def _end(self) -> None:
        """End the process and all that it started."""
        if len(self.outcomes) == self._num_cases or self._not_loaded():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
        for _ in range(50):
            left = _descendants(self._process.pid)
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            if not left:
                break
        self._process.wait()


def _count_processes() -> int:
    """Return the number of processes of this machine; 0 without /proc."""
    try:
        return sum(name.isdigit() for name in os.listdir("/proc"))
    except OSError:
        return 0


def _count_descendants(pid: int) -> int:
    return len(_descendants(pid))


def _descendants(pid: int) -> list[int]:
    """Return the processes that descend from `pid`, without itself; none without /proc."""
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                status = Path("/proc", name, "stat").read_text()
                children.setdefault(int(status.rpartition(")")[2].split()[1]), []).append(int(name))
    found, pending = [], [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found
