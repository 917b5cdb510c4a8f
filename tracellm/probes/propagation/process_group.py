"""The common end of a recording's processes.

In the folder `trace/` each process keeps a status file, locked for as long as it records. The main process makes a file
that marks the end of the recording, and waits, within bounds, until no status file is locked: then every process has
written its last records, or was killed.

A process that is about to be terminated may be killed at once, as vLLM's are. So before that another file asks all of
them to flush.
"""

import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["ProcessGroup", "Status", "file_stem", "flush_all", "recorded_processes"]

LONGEST_WAIT_SECONDS = 10.0
"""The longest wait of the main process for others to notice the end."""

LONGEST_END_SECONDS = 30.0
"""Its longest wait for those that have noticed it, and write their last records."""

_LONGEST_FLUSH_SECONDS = 5.0
"""The longest wait of a process that terminates others until they have flushed; they do so within 0.2 s."""

_FLUSHED_SECONDS = 30.0
"""The time for which a process counts as flushed; one that then still lives was not terminated."""

_LONGEST_NAME = 60  # characters, of up to four bytes each; a file's name may have 255 bytes
_STATUS = ".process"
_OVER = ".over"
_FLUSH = ".flush"


class Status:
    """The status file of this process, in the folder `traces`; locked until `end`, with its open file `descriptor`.

    While the process `is_idle`, it has recorded nothing yet, and nobody misses what it did if it is no more.
    """

    def __init__(self, traces: Path, process: str, is_idle: bool = False) -> None:
        self.is_idle = is_idle
        self._over = traces / _OVER
        self._flush = traces / _FLUSH
        self._flushed = (0, 0.0)  # what was last asked for, and when
        self._ending = False
        self._length = 0
        self._told = {"pid": os.getpid(), "name": process}
        self._file = traces / f"{file_stem(process, os.getpid())}{_STATUS}"
        self.descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _lock(self.descriptor)
        self._write({})

    def look(self, stop: Callable[[], None], so_far: Callable[[], dict[str, Any]]) -> None:
        """Has the main process ended the recording? Then do so here, once, in a thread for which others may wait.

        If all are asked to hand over what they have, `so_far` does so, and gives the stats until now.
        """
        asked, now = _number_in(self._flush), time.monotonic()
        if asked > self._flushed[0] and not self._ending:
            self._write({"stats": so_far(), "flushed": asked})
            self._flushed = asked, now
        elif self._flushed[1] and now > self._flushed[1] + _FLUSHED_SECONDS:
            self._write({})
            self._flushed = asked, 0.0
        if not self._ending and self._over.exists():
            self._ending = True
            with suppress(RuntimeError):  # this process is ending already, and so will stop by itself
                # Python ends without waiting for the writer's thread, and a thread that it starts would be like it.
                threading.Thread(target=stop, name="tracellm-end", daemon=False).start()

    def is_ending(self) -> None:
        """This process has heard of the end, or comes to its own, and writes what it has: that is to be waited for."""
        self._write({**self._more, "ending": True})

    def end(self, stats: dict[str, Any]) -> None:
        """Everything is written; `stats` is what the probes cost here."""
        self._write({"stats": stats})
        os.close(self.descriptor)

    def begin(self) -> None:
        """It is idle no more."""
        self.is_idle = False
        self._write({})

    def remove(self) -> None:
        """There is nothing to tell of this process."""
        self._file.unlink(missing_ok=True)
        os.close(self.descriptor)

    def fail(self, error: Exception) -> None:
        """This process cannot be recorded."""
        self._write({"failed": str(error)})
        os.close(self.descriptor)

    def leave(self) -> None:
        """This is a fork of the process whose file it is."""
        os.close(self.descriptor)

    def _write(self, more: dict[str, Any]) -> None:
        self._more = more
        content = json.dumps({**self._told, "idle": self.is_idle, **more}).encode().ljust(self._length)
        self._length = len(content)  # in one go, and never less than before: whoever reads has all of it
        with suppress(OSError):
            os.pwrite(self.descriptor, content, 0)


class ProcessGroup:
    """The other processes of a recording, as its main process sees them."""

    def __init__(self, traces: Path) -> None:
        self._traces = traces
        self._over = traces / _OVER
        self.clean()

    def any(self) -> bool:
        """Has any process joined?"""
        return next(self._traces.glob(f"*{_STATUS}"), None) is not None

    def end(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Have all of them end their recordings, and wait for that.

        Returns:
            What each said at its end, if it did; and what went wrong.
        """
        files = sorted(self._traces.glob(f"*{_STATUS}"))
        if not files:
            return [], []
        self._over.touch()
        begin = time.monotonic()
        left = files
        with suppress(KeyboardInterrupt):  # whoever does not want to wait need not
            while left := [file for file in left if _locked(file)]:
                heard = any(_read(file).get("ending") for file in left)
                if time.monotonic() > begin + (LONGEST_END_SECONDS if heard else LONGEST_WAIT_SECONDS):
                    break
                time.sleep(0.02)
        waited = time.monotonic() - begin
        told, problems = [], []
        for file in filter(Path.exists, files):  # a process that had nothing to tell has removed its own
            status = _read(file)
            name = f"{status.get('name', file.stem)} (pid {status.get('pid', '?')})"
            if file in left:
                problems.append(f"{name} did not end its recording in {waited:.0f} s: its end is missing")
            elif "failed" in status:
                problems.append(f"{name} was not recorded: {status['failed']}")
            elif "stats" not in status and not status.get("idle"):
                problems.append(f"{name} was killed: what it did in its last moment is not recorded")
            told.append(status)
        self.clean()
        return told, problems

    def clean(self) -> None:
        """Remove what is of no use afterwards."""
        for file in (self._over, self._traces / _FLUSH, *self._traces.glob(f"*{_STATUS}")):
            with suppress(OSError):
                file.unlink()


def flush_all(traces: Path) -> None:
    """Have all other processes of the recording in the folder `traces` hand over what they have recorded, and wait for
    that.

    Raises:
        OSError: the folder cannot be written.
    """
    others = [file for file in traces.glob(f"*{_STATUS}") if _read(file).get("pid") != os.getpid() and _locked(file)]
    if not others:
        return
    number = time.time_ns()
    (traces / _FLUSH).write_text(str(number))
    deadline = time.monotonic() + _LONGEST_FLUSH_SECONDS
    while others and time.monotonic() < deadline:
        time.sleep(0.01)
        others = [file for file in others if _read(file).get("flushed", 0) < number and _locked(file)]


def file_stem(process: str, pid: int) -> str:
    """The name of a process's files, without an ending: a process may have any name, and a file not."""
    allowed = re.sub(r"[/\\\0]", "_", process)
    return f"{allowed[:_LONGEST_NAME]}-{pid}"


def recorded_processes(own: Path, earlier: Collection[str]) -> list[dict[str, Any]]:
    """`pid` and `name` of every process with a trace or record file, first that with the file `own`.

    That file may not be there yet; files `earlier` are of other recordings.
    """
    files = [file for ending in ("jsonl", "records") for file in own.parent.glob(f"*.{ending}")]
    stems = {file.stem.removesuffix(".before") for file in files if file.name not in earlier} - {own.stem}
    parts = [stem.rpartition("-") for stem in (own.stem, *sorted(stems))]
    return [{"pid": int(pid), "name": name} for name, _, pid in parts if pid.isdigit()]


def _number_in(file: Path) -> int:
    try:
        return int(file.read_bytes())
    except (OSError, ValueError):  # nobody has asked, or is only about to
        return 0


def _read(file: Path) -> dict[str, Any]:
    try:
        status = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return status if isinstance(status, dict) else {}


def _locked(file: Path) -> bool:
    """Is the process that wrote this status file still recording?"""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock the file; False when another process holds the lock. Closing it, or dying, unlocks it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
