"""Processes of the engine: a new Python interpreter that shares no memory with this one, and ends with its parent.

`CoreEngineProcManager` (launch.py) starts the engine core's, `MultiprocExecutor` those of the workers.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import popen_spawn_posix, reduction, resource_tracker, spawn, util
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess, set_spawning_popen
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

__all__ = ["EngineProcess", "describe_exit", "end_with_parent", "exit_silently", "sigint_blocked"]


class _Popen(popen_spawn_posix.Popen):
    """Spawns a process that does not import this program's script.

    The standard library sends the name of the script, and the new process imports it. Scripts that use multiprocessing
    therefore need `if __name__ == "__main__":`. `_launch` is the standard library's, without the script's name; there
    is no option for that.
    """

    def _launch(self, process_obj: BaseProcess) -> None:
        tracker_fd = resource_tracker.getfd()
        assert tracker_fd is not None
        preparation_data = spawn.get_preparation_data(process_obj.name)
        preparation_data.pop("init_main_from_name", None)
        preparation_data.pop("init_main_from_path", None)
        message = io.BytesIO()
        set_spawning_popen(self)
        try:
            reduction.dump(preparation_data, message)
            reduction.dump(process_obj, message)
        finally:
            set_spawning_popen(None)

        # One end of each pipe stays open in each process: the other end becomes readable when that process ends.
        parent_r, child_w = os.pipe()
        child_r, parent_w = os.pipe()
        self.sentinel = parent_r
        self.finalizer = util.Finalize(self, util.close_fds, (parent_r, parent_w))  # type: ignore[attr-defined]
        try:
            command = spawn.get_command_line(tracker_fd=tracker_fd, pipe_handle=child_r)
            executable = os.fsencode(spawn.get_executable())
            self.pid = util.spawnv_passfds(executable, command, [*self._fds, tracker_fd, child_r, child_w])  # type: ignore[attr-defined]
            with open(parent_w, "wb", closefd=False) as file:
                file.write(message.getbuffer())
        finally:
            os.close(child_r)
            os.close(child_w)


class EngineProcess(SpawnProcess):
    """A process of the engine, in a new interpreter."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> _Popen:
        return _Popen(process_obj)

    def kill(self) -> None:
        """Kill this process and its descendants: a Ray that is starting would stay for a minute."""
        descendants = _descendants(self.pid)
        super().kill()
        for pid in descendants:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _descendants(pid: int | None) -> set[int]:
    """Return the processes that a process has started, and those that they have; none on a system without /proc."""
    children: dict[int, set[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, set()).add(int(path.parent.name))
    found: set[int] = set()
    waiting = {pid or 0}
    while waiting:
        started = children.get(waiting.pop(), set())
        found |= started
        waiting |= started
    return found


def describe_exit(process: BaseProcess) -> str:
    """Return how a process ended, as a predicate: `was killed by SIGKILL`, `ended with exit code 1`."""
    code = process.exitcode
    if code == 0:
        return "was ended by SIGTERM"  # nothing else ends it with 0
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Block SIGINT for a process started inside, because Ctrl-C reaches all processes of a terminal.

    A child inherits blocked signals. The new process ignores this one, and unblocks it.
    """
    resource_tracker.ensure_running()  # started on demand, which would unblock the signal
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def exit_silently() -> NoReturn:
    """End this process from a signal handler; in a finalizer, where Python ignores the exception, print nothing.

    Raises:
        SystemExit: always.
    """
    sys.unraisablehook = _ignore_system_exit
    raise SystemExit(0)


def _ignore_system_exit(unraisable: sys.UnraisableHookArgs) -> None:
    if unraisable.exc_type is not SystemExit:
        sys.__unraisablehook__(unraisable)


def end_with_parent(before: Callable[[], object] = lambda: None) -> None:
    """Start a thread that calls `before` and ends this process when the parent dies."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        before()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="EndWithParent", daemon=True).start()
