"""Runs cases in a student's process, and watches it: time, output, memory, number of processes.

A case that ends the process, or does not end, gets an `Ended`; the cases after it run in another process.
"""

import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tracellm.lab.lab import LabFile, find_lab
from tracellm.lab.sandbox.jail import ISOLATIONS, Isolation, Usage, descendants, usage
from tracellm.lab.sandbox.limits import Limits
from tracellm.lab.sandbox.outcomes import (
    Begun,
    Ended,
    Message,
    NotLoaded,
    NotRun,
    Outcome,
    Started,
    Tampered,
    Work,
)

__all__ = ["Sandboxed", "run_cases"]

_MOST_RESULTS = 16 << 20
_KEPT_OUTPUT = 16 << 10
_END_SECONDS = 5.0
_POLL_SECONDS = 0.02
_PAGE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

_PACKAGE_FOLDER = str(Path(__file__).parents[3])

_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "VIRTUAL_ENV", "SYSTEMROOT")
"""Environment variables of the grader that the student's process has; others may be secrets."""

_TOKEN = "TRACELLM_SANDBOX"
"""Environment variable by which processes of a run are found that nothing else connects with it."""

_weakest_needed: list[Isolation] = [ISOLATIONS[0]]
"""Kind of isolation that worked in this process before; only here does a weaker one replace it."""


@dataclass
class Sandboxed:
    """Outcomes of the cases, what the code printed, and how it was isolated (empty if no process ran)."""

    outcomes: list[Outcome] = field(default_factory=list)
    printed: str = ""
    isolation: Isolation = ""


def run_cases(
    folder: Path,
    lab: int,
    cases: Sequence[tuple[str, Any]],
    *,
    processes: bool = False,
    limits: Limits | None = None,
    checks: str = "",
    files: Sequence[LabFile] | None = None,
) -> Sandboxed:
    """Run cases, given as (name of the check, case), with the lab's files of `folder`.

    Returns as many outcomes as there are cases.

    Args:
        folder: the folder; which of its files count, and for what, follows from the lab alone.
        lab: number of the lab.
        cases: the cases.
        processes: the cases start processes of the engine.
        limits: limits of the process.
        checks: source text of further checks.
        files: the modules whose files the folder has; by default those of the lab.
    """
    if files is None:
        known = find_lab(lab)
        files = () if known is None else known.files
    modules = {file.module: file.name for file in files}
    limits = limits or Limits()
    left = limits.total_seconds * (3 if processes else 1)
    result, restarts = Sandboxed(), 0
    while len(result.outcomes) < len(cases) and restarts <= limits.restarts and left > 0:
        strongest = max(_weakest_needed[0], limits.isolation, key=ISOLATIONS.index)
        work = Work(
            str(folder.resolve()),
            lab,
            list(cases[len(result.outcomes) :]),
            limits.memory,
            int(limits.start_seconds + left) + 5,
            secrets.token_bytes(16),
            strongest,
            modules,
            _kernels_folder(),
            checks,
        )
        run = _Process(work, limits, left)
        run.watch()
        left -= run.seconds
        if run.isolation is None and strongest != ISOLATIONS[-1] and not run.timed_out:
            _weakest_needed[0] = ISOLATIONS[ISOLATIONS.index(strongest) + 1]
            continue  # no code of the student has run
        result.isolation = run.isolation or result.isolation
        result.outcomes += run.outcomes
        result.printed = (result.printed + run.printed.decode(errors="replace"))[-_KEPT_OUTPUT:]
        if run.outcomes and _is_for_all(run.outcomes[-1]):
            result.outcomes += [run.outcomes[-1]] * (len(cases) - len(result.outcomes))
        restarts += 1
    result.outcomes += [NotRun()] * (len(cases) - len(result.outcomes))
    return result


def _kernels_folder() -> str:
    """Return the folder in which the engine keeps its compiled kernels."""
    own = os.environ.get("TRACELLM_KERNEL_CACHE")
    return os.path.expanduser(own or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tracellm/kernels"))


def _is_for_all(outcome: Outcome) -> bool:
    """Return whether an outcome holds for all further cases, too."""
    return isinstance(outcome, NotLoaded | Tampered) or (isinstance(outcome, Ended) and outcome.loading)


class _Process:
    """One process: starts it, reads its results and its output, and ends it."""

    def __init__(self, work: Work, limits: Limits, total_seconds: float) -> None:
        self.outcomes: list[Outcome] = []
        self.printed = b""
        self.isolation: Isolation | None = None
        self.timed_out = False
        self.seconds = 0.0
        """Time of the cases: CPU time, or the wall time divided by `Limits.patience` if that is longer."""
        self._limits, self._total_seconds = limits, total_seconds
        self._num_cases, self._word = len(work.cases), work.word
        self._num_printed = 0
        self._data = b""
        self._begun: int | None = None
        self._wall_before, self._cpu_before = time.monotonic(), 0.0
        self._token = f"{_TOKEN}={os.getpid()}-{secrets.token_hex(16)}"
        data = msgspec.msgpack.encode(work)
        self._results, write_end = os.pipe()
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        search = [_PACKAGE_FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"PYTHONPATH": os.pathsep.join(search), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}
        own |= {"OMP_NUM_THREADS": "1", "HOME": "/tmp", "TRACELLM_KERNEL_CACHE": work.kernels}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tracellm.lab.sandbox.worker", str(write_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[write_end],
            env=environment | own | dict([self._token.split("=")]),
            start_new_session=True,
        )
        os.close(write_end)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(data)
            self._process.stdin.close()

    def watch(self) -> None:
        """Read until the process has ended or must be ended."""
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        ended, checked = None, 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(self._results, selectors.EVENT_READ)
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while ended is None and not self._complete() and selector.get_map():
                for key, _ in selector.select(_POLL_SECONDS):
                    if key.fd != self._results:
                        if not self._read_printed(key.fd):
                            selector.unregister(key.fileobj)
                    elif data := os.read(key.fd, 1 << 16):
                        ended = ended or self._read(data)
                    else:
                        selector.unregister(key.fileobj)
                if self._num_printed > self._limits.output or time.monotonic() - checked > _POLL_SECONDS:
                    ended, checked = ended or self._check_limits(), time.monotonic()
        self.timed_out = ended is not None and ended.how == "timeout"
        complete = self._complete()
        self._read_printed(self._process.stdout.fileno())
        self._end(ends_alone=ended is None)
        if ended is None and not complete:
            code = self._process.returncode
            if 128 < code < 128 + signal.NSIG:
                code = 128 - code
            known = code < 0 and -code in signal.valid_signals()
            ended = Ended("signal", signal.Signals(-code).name) if known else Ended("exit", str(code))
        if ended is not None and not complete:
            ended.loading = self._begun is None
            self.outcomes.append(ended)
        os.close(self._results)
        self._process.stdout.close()

    def _read_printed(self, descriptor: int) -> bool:
        """Read what was printed, up to the limit; return False at its end."""
        with suppress(BlockingIOError):
            while self._num_printed <= self._limits.output:
                data = os.read(descriptor, 1 << 16)
                if not data:
                    return False
                self._num_printed += len(data)
                self.printed = (self.printed + data)[-_KEPT_OUTPUT:]
        return True

    def _complete(self) -> bool:
        return len(self.outcomes) >= self._num_cases or bool(self.outcomes and _is_for_all(self.outcomes[-1]))

    def _read(self, data: bytes) -> Ended | None:
        """Take the messages that are complete."""
        self._data += data
        head = len(self._word)
        while len(self._data) >= head + 4 and not self._complete():
            start = head + 4
            end = start + int.from_bytes(self._data[head:start], "big")
            if self._data[:head] != self._word:
                return Ended("results", "damaged")
            if end - start > _MOST_RESULTS:
                return Ended("results", str(_MOST_RESULTS))
            if len(self._data) < end:
                return None
            try:
                message = msgspec.msgpack.decode(self._data[start:end], type=Message)
            except (msgspec.MsgspecError, RecursionError, UnicodeError):
                return Ended("results", "damaged")
            self._data = self._data[end:]
            if isinstance(message, Started):
                self.isolation = message.isolation
                self._restart_clock()
            elif isinstance(message, Begun):
                if self._begun is not None:
                    self.seconds += self._spent(descendants(self._process.pid))
                self._begun = message.index
                self._restart_clock()
            elif self._begun == len(self.outcomes) or isinstance(message, NotLoaded | Tampered):
                self.outcomes.append(message)
            else:
                return Ended("results", "damaged")
        return None

    def _restart_clock(self) -> None:
        self._wall_before, self._cpu_before = time.monotonic(), self._cpu_seconds(descendants(self._process.pid))

    def _cpu_seconds(self, children: Mapping[int, Usage]) -> float:
        """Return the CPU time of the process and its descendants so far."""
        return sum(one.ticks for one in (usage(self._process.pid), *children.values())) / _TICKS

    def _spent(self, children: Mapping[int, Usage]) -> float:
        """Return the time of the current case, or of the start, against its limit."""
        wall = (time.monotonic() - self._wall_before) / self._limits.patience
        return max(wall, self._cpu_seconds(children) - self._cpu_before)

    def _check_limits(self) -> Ended | None:
        limits, loading, children = self._limits, self._begun is None, descendants(self._process.pid)
        if self._num_printed > limits.output:
            return Ended("output", str(limits.output))
        spent = self._spent(children)
        allowed = limits.start_seconds if loading else min(limits.case_seconds, self._total_seconds - self.seconds)
        if spent > allowed:
            self.seconds += 0 if loading else spent
            return Ended("timeout", f"{time.monotonic() - self._wall_before:.0f}")
        if len(children) > limits.processes:
            return Ended("processes", str(limits.processes))
        if sum(one.pages for one in children.values()) * _PAGE > limits.memory:
            return Ended("memory", str(limits.memory))
        return None

    def _end(self, ends_alone: bool) -> None:
        """End the process and all that it started; wait for one that ends by itself, to get its exit status."""
        if ends_alone:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
        while left := [*descendants(self._process.pid), *self._strays()]:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _strays(self) -> list[int]:
        """Return processes of this run that have lost their parents."""
        token, found = self._token.encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            pid = int(path.parent.name)
            with suppress(OSError):
                if pid != self._process.pid and token in path.read_bytes():
                    found.append(pid)
        return found
