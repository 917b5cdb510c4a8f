"""Processes of one recording: how a child joins its parent's, and how all of them end together.

A process made with multiprocessing's `spawn` has none of its parent's memory. It finds the recording, and the call that
started it, in the environment variable TRACELLM_RECORDING, and records into a file of its own. Other processes inherit
the variable too, a user's `subprocess` for instance, and ignore it. A `forkserver` does not pass it on: such a process
finds the same in the process object that it is sent.

In the folder `trace/`, each process locks a status file for as long as it records. The main process creates a file that
marks the end of the recording, and waits, within bounds, until no status file is locked: every other process has then
written its last records, or was killed. A process may be killed right after it is terminated, as vLLM's are, so
before that another file makes all processes flush.
"""

import fcntl
import json
import os
import platform
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracellm import __version__
from tracellm.probes.context.clock import Clock
from tracellm.probes.install.selection import Selection
from tracellm.trace import names

__all__ = [
    "VARIABLE", "ProcessGroup", "RecordingHandle", "Status", "earlier_engines", "file_stem", "flush_all",
    "name_of_fork", "process_attributes", "process_patches", "recorded_processes", "recording_handle",
]  # fmt: skip

VARIABLE = "TRACELLM_RECORDING"
"""The environment variable: a RecordingHandle as JSON."""

Function = Callable[..., Any]
RecordingHandle = dict[str, Any]
"""Description of a recording to join.

`folder`, `selection`, `ring` and `text` as in Recording; `name` of the process, unless multiprocessing has it;
`traceparent` of the call that starts the process; `pid` of that call's process; `clock`, the readings that make its
times wall-clock times, or null.
"""

LONGEST_WAIT_SECONDS = 10.0
"""Maximum time that the main process waits for others to notice the end."""

LONGEST_END_SECONDS = 30.0
"""Maximum time that it waits for those that are writing their last records."""

_LONGEST_FLUSH_SECONDS = 5.0
"""Maximum time that a process waits for others to flush before it terminates them; usually 0.2 s suffice."""

_FLUSHED_SECONDS = 30.0
"""Time for which a process counts as flushed; if it still runs then, it was not terminated."""

_MAX_NAME = 60  # characters, of up to four bytes each; a file name may have 255 bytes
_STATUS = ".process"
_OVER = ".over"
_FLUSH = ".flush"


def process_attributes(name: str, clock: Clock, parent_pid: int | None) -> dict[str, Any]:
    """Return this process's OTLP resource; `parent_pid` is the parent's if it records too."""
    attributes: dict[str, Any] = {
        names.SERVICE_NAME: "tracellm",
        names.SERVICE_VERSION: __version__,
        names.PROCESS_PID: os.getpid(),
        names.PROCESS_NAME: name,
        names.PROCESS_RUNTIME: platform.python_version(),
        names.HOST_NAME: socket.gethostname(),
        names.CLOCK_WALL: clock.wall_ns,
        names.CLOCK_MONOTONIC: clock.monotonic_ns,
    }
    if parent_pid is not None:
        attributes[names.PROCESS_PARENT_PID] = parent_pid
    return attributes


# -- starting processes -----------------------------------------------------------------------------------------------


def recording_handle(
    folder: Path, selection: Selection, ring: int | None, text: bool, traceparent: str, clock: Clock
) -> RecordingHandle:
    """Return the handle for a process that the call `traceparent` is starting."""
    return {
        "folder": str(folder.absolute()),
        "selection": selection.as_dict(),
        "ring": ring,
        "text": text,
        "traceparent": traceparent,
        "pid": os.getpid(),
        "clock": clock.readings,
    }


_starting = threading.RLock()  # reentrant: a fork within `start` may start processes too
_started_name: str | None = None  # name of the process being started


def process_patches(
    get_handle: Callable[[], RecordingHandle | None], on_run_end: Callable[[], None], flush: Callable[[], None]
) -> dict[str, Callable[[Function], Function]]:
    """Return the patches of multiprocessing.

    The variable is set while a process is being started. `on_run_end` is called when a process and its threads have
    done their work: Python still cleans up after that, and an impatient parent may kill it. `flush` is called before a
    process is terminated. Ray's processes are not multiprocessing's: there the executor's calls are patched.
    """

    def _start(start: Function) -> Function:
        def outer(self: Any) -> Any:
            global _started_name
            handle = get_handle()
            if handle is None:
                return start(self)
            with _starting:
                before = os.environ.get(VARIABLE)
                os.environ[VARIABLE] = json.dumps(handle)
                _started_name = self.name
                attributes = dict(vars(self))
                vars(self).clear()
                vars(self).update({"_tracellm": _Joiner(handle), **attributes})  # unpickled before all others
                try:
                    return start(self)
                finally:
                    del self._tracellm
                    _started_name = None
                    if before is None:
                        os.environ.pop(VARIABLE, None)
                    else:
                        os.environ[VARIABLE] = before

        return outer

    def _init_worker(init_worker: Function) -> Function:
        def outer(self: Any, rank: int, *args: Any) -> Any:
            handle = get_handle()
            name = self.vllm_config.parallel_config.worker_name(rank)
            return init_worker(self, rank, *args, *([] if handle is None else [_Joiner({**handle, "name": name})]))

        return outer

    def _run(run: Function) -> Function:
        def outer(self: Any) -> Any:
            try:
                return run(self)
            finally:
                if self is sys.modules["multiprocessing.process"].current_process() and not _has_other_threads():
                    on_run_end()

        return outer

    def _terminate(terminate: Function) -> Function:
        def outer(self: Any) -> Any:
            with suppress(OSError):  # the folder may be gone
                flush()
            return terminate(self)

        return outer

    def _shutdown(shutdown: Function) -> Function:
        def outer(self: Any) -> Any:
            try:
                return shutdown(self)
            finally:
                on_run_end()

        return outer

    process, ray = "multiprocessing.process:BaseProcess", "tracellm.engine.executor.ray_executor:"
    return {
        f"{process}.start": _start,
        f"{process}.run": _run,
        f"{process}.terminate": _terminate,
        f"{ray}RayDistributedExecutor._init_worker": _init_worker,
        f"{ray}RayDistributedExecutor.shutdown": _terminate,
        f"{ray}RayWorkerProc.shutdown": _shutdown,
    }


def _has_other_threads() -> bool:
    """Return whether Python will wait for other threads before this process ends."""
    own = threading.current_thread()
    return any(thread is not own and not thread.daemon for thread in threading.enumerate())


class _Joiner:
    """Makes a new process join the recording when it unpickles its process object.

    It comes first there, so all that the process unpickles later finds functions with probes.
    """

    def __init__(self, handle: RecordingHandle) -> None:
        self._handle = handle

    def __reduce__(self) -> tuple[Function, tuple[str]]:
        join = f"from tracellm.probes.join import join\nexcept ImportError: pass\nelse: join({self._handle!r})"
        return exec, (f"try: {join}",)


def name_of_fork() -> str:
    """Return the name of this process, a new fork; multiprocessing sets it only later."""
    global _started_name
    name, _started_name = _started_name, None
    return name or "child"


def earlier_engines() -> list[str]:
    """Return a problem for each engine process that was started before the recording, and is not in it."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None:
        return []
    return [
        f"{child.name} (pid {child.pid}) was started before the recording began: what it does is not recorded. "
        "Make the engine while the recording runs"
        for child in multiprocessing.active_children()
        if child.name.startswith("EngineCore")
    ]


# -- ending together --------------------------------------------------------------------------------------------------


class Status:
    """Status file of this process in the folder `traces`, locked until `end`.

    A process that `is_idle` has recorded nothing yet; it is not missed if it is killed.
    """

    def __init__(self, traces: Path, process: str, is_idle: bool = False) -> None:
        self.is_idle = is_idle
        self._over = traces / _OVER
        self._flush = traces / _FLUSH
        self._flushed = (0, 0.0)  # number of the last flush request, and when it was done
        self._ending = False
        self._length = 0
        self._process = {"pid": os.getpid(), "name": process}
        self._file = traces / f"{file_stem(process, os.getpid())}{_STATUS}"
        self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _lock(self._descriptor)
        self._write({})

    def check(self, stop: Callable[[], None], flush: Callable[[], dict[str, Any]]) -> None:
        """Flush if that is requested, and `stop` once, in a thread, when the main process ends the recording.

        `flush` writes all records and returns the stats so far.
        """
        requested, now = _number_in(self._flush), time.monotonic()
        if requested > self._flushed[0] and not self._ending:
            self._write({"stats": flush(), "flushed": requested})
            self._flushed = requested, now
        elif self._flushed[1] and now > self._flushed[1] + _FLUSHED_SECONDS:
            self._write({})
            self._flushed = requested, 0.0
        if not self._ending and self._over.exists():
            self._ending = True
            with suppress(RuntimeError):  # this process is ending already, and will stop by itself
                # Not daemon: Python must wait for it.
                threading.Thread(target=stop, name="tracellm-end", daemon=False).start()

    def set_ending(self) -> None:
        """Mark that this process is writing its last records, and is to be waited for."""
        self._write({**self._more, "ending": True})

    def end(self, stats: dict[str, Any]) -> None:
        """Mark that everything is written, with the recording's stats in this process."""
        self._write({"stats": stats})
        os.close(self._descriptor)

    def set_busy(self) -> None:
        """Mark that this process is not idle any more."""
        self.is_idle = False
        self._write({})

    def remove(self) -> None:
        """Remove the file: this process recorded nothing."""
        self._file.unlink(missing_ok=True)
        os.close(self._descriptor)

    def leave(self) -> None:
        """Close the file in a fork of its process."""
        os.close(self._descriptor)

    def _write(self, more: dict[str, Any]) -> None:
        self._more = more
        content = json.dumps({**self._process, "idle": self.is_idle, **more}).encode().ljust(self._length)
        self._length = len(content)  # written at once and never shorter, so a reader has all of it
        with suppress(OSError):
            os.pwrite(self._descriptor, content, 0)


class ProcessGroup:
    """The other processes of a recording, for its main process."""

    def __init__(self, traces: Path) -> None:
        self._traces = traces
        self._over = traces / _OVER
        self.clean()

    def any(self) -> bool:
        """Return whether any process has joined."""
        return next(self._traces.glob(f"*{_STATUS}"), None) is not None

    def end(self) -> tuple[list[dict[str, Any]], list[str]]:
        """End the recording in all processes, and wait for them.

        Returns:
            The status of each process, and the problems.
        """
        files = sorted(self._traces.glob(f"*{_STATUS}"))
        if not files:
            return [], []
        self._over.touch()
        begin = time.monotonic()
        left = files
        with suppress(KeyboardInterrupt):  # Ctrl-C ends the waiting
            while left := [file for file in left if _is_locked(file)]:
                is_noticed = any(_read(file).get("ending") for file in left)
                if time.monotonic() > begin + (LONGEST_END_SECONDS if is_noticed else LONGEST_WAIT_SECONDS):
                    break
                time.sleep(0.02)
        waited = time.monotonic() - begin
        statuses, problems = [], []
        for file in filter(Path.exists, files):  # a process that recorded nothing has removed its own
            status = _read(file)
            name = f"{status.get('name', file.stem)} (pid {status.get('pid', '?')})"
            if file in left:
                problems.append(f"{name} did not end its recording in {waited:.0f} s: its end is missing")
            elif "stats" not in status and not status.get("idle"):
                problems.append(f"{name} was killed: what it did in its last moment is not recorded")
            statuses.append(status)
        self.clean()
        return statuses, problems

    def clean(self) -> None:
        """Remove all files of this module."""
        for file in (self._over, self._traces / _FLUSH, *self._traces.glob(f"*{_STATUS}")):
            with suppress(OSError):
                file.unlink()


def flush_all(traces: Path) -> None:
    """Make all other processes that record into `traces` write their records, and wait for that.

    Raises:
        OSError: the folder cannot be written.
    """
    others = [file for file in traces.glob(f"*{_STATUS}") if _read(file).get("pid") != os.getpid() and _is_locked(file)]
    if not others:
        return
    number = time.time_ns()
    (traces / _FLUSH).write_text(str(number))
    deadline = time.monotonic() + _LONGEST_FLUSH_SECONDS
    while others and time.monotonic() < deadline:
        time.sleep(0.01)
        others = [file for file in others if _read(file).get("flushed", 0) < number and _is_locked(file)]


def file_stem(process: str, pid: int) -> str:
    """Return the name of a process's files without suffix; characters that files cannot have are replaced."""
    allowed = re.sub(r"[/\\\0]", "_", process)
    return f"{allowed[:_MAX_NAME]}-{pid}"


def recorded_processes(own: Path, earlier: Collection[str]) -> list[dict[str, Any]]:
    """Return `pid` and `name` of every process with a trace or record file, beginning with that of the file `own`.

    That file may not exist yet; files `earlier` belong to other recordings.
    """
    files = [file for suffix in ("jsonl", "records") for file in own.parent.glob(f"*.{suffix}")]
    stems = {file.stem.removesuffix(".before") for file in files if file.name not in earlier} - {own.stem}
    parts = [stem.rpartition("-") for stem in (own.stem, *sorted(stems))]
    return [{"pid": int(pid), "name": name} for name, _, pid in parts if pid.isdigit()]


def _number_in(file: Path) -> int:
    try:
        return int(file.read_bytes())
    except (OSError, ValueError):  # missing, or being written
        return 0


def _read(file: Path) -> dict[str, Any]:
    try:
        status = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def _is_locked(file: Path) -> bool:
    """Return whether the process of this status file is still recording."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock the file; return False if another process holds the lock. Closing it, or dying, unlocks it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
