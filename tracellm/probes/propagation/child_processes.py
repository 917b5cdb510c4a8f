"""Processes that join the recording of the process that started them; process_group.py has how they end it.

A process made with multiprocessing's `spawn` begins with nothing of its parent's memory. It finds the environment
variable TRACELLM_RECORDING, which says where the recording is and which call started it, and records into a file of its
own. Any other process, a user's `subprocess` say, inherits the variable and is not meant by it. With `forkserver` it is
not there: such a process finds the same in what it is sent to do.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracellm.probes.context.clock import Clock
from tracellm.probes.install.selection import Selection

__all__ = [
    "VARIABLE",
    "RecordingHandle",
    "earlier_engines",
    "invitation",
    "process_patches",
]

VARIABLE = "TRACELLM_RECORDING"
"""The environment variable; a JSON object, see RecordingHandle."""

Function = Callable[..., Any]
RecordingHandle = dict[str, Any]
"""`folder`, `selection`, `ring`, `text`, `traceparent` of the call that starts the process, `pid` of whoever does, and
`clock`: the readings by which its times become wall-clock times, or null."""


# -- in the process that starts others --------------------------------------------------------------------------------


def invitation(
    folder: Path, selection: Selection, ring: int | None, text: bool, traceparent: str, clock: Clock
) -> RecordingHandle:
    """What a process is told that is being started from the call `traceparent`."""
    return {
        "folder": str(folder.absolute()),
        "selection": selection.as_dict(),
        "ring": ring,
        "text": text,
        "traceparent": traceparent,
        "pid": os.getpid(),
        "clock": clock.readings,
    }


_starting = threading.RLock()  # of one thread at a time; a fork of it may start processes too
_starts: str | None = None  # the name of the process that is being started


def process_patches(
    invite: Callable[[], RecordingHandle | None], ran: Callable[[], None], flush: Callable[[], None]
) -> dict[str, Callable[[Function], Function]]:
    """While a process is being started, the variable says which call does it. A process that has done what it was
    started for, as have its threads, calls `ran`: Python still tidies up then, and who is impatient may kill it. Before
    a process is terminated, `flush` is called."""

    def _start(start: Function) -> Function:
        def outer(self: Any) -> Any:
            global _starts
            told = invite()
            if told is None:
                return start(self)
            with _starting:
                before = os.environ.get(VARIABLE)
                os.environ[VARIABLE] = json.dumps(told)
                _starts = self.name
                vars(self).update({"_tracellm": _Joining(told), **_taken_out(vars(self))})  # the first to be unpickled
                try:
                    return start(self)
                finally:
                    del self._tracellm
                    _starts = None
                    if before is None:
                        os.environ.pop(VARIABLE, None)
                    else:
                        os.environ[VARIABLE] = before

        return outer

    def _run(run: Function) -> Function:
        def outer(self: Any) -> Any:
            try:
                return run(self)
            finally:
                if self is sys.modules["multiprocessing.process"].current_process() and not _other_threads():
                    ran()

        return outer

    def _terminate(terminate: Function) -> Function:
        def outer(self: Any) -> Any:
            with suppress(OSError):  # the folder may be gone
                flush()
            return terminate(self)

        return outer

    process = "multiprocessing.process:BaseProcess"
    return {f"{process}.start": _start, f"{process}.run": _run, f"{process}.terminate": _terminate}


def _other_threads() -> bool:
    """Are there threads that Python will wait for before this process ends?"""
    own = threading.current_thread()
    return any(one is not own and not one.daemon for one in threading.enumerate())


class _Joining:
    """Stands before all else in the process object that is sent to a new process, and has it join the recording when it
    is unpickled: before anything is that the process is to do, so that it finds functions with probes."""

    def __init__(self, told: RecordingHandle) -> None:
        self._told = told

    def __reduce__(self) -> tuple[Function, tuple[str]]:
        join = f"from tracellm.probes.join import join\nexcept ImportError: pass\nelse: join({self._told!r})"
        return exec, (f"try: {join}",)


def _taken_out(attributes: dict[str, Any]) -> dict[str, Any]:
    """These attributes, which the object has no more."""
    taken = dict(attributes)
    attributes.clear()
    return taken


def name_of_fork() -> str:
    """What this process, a fork that has just begun, is called: multiprocessing itself tells it only later."""
    global _starts
    name, _starts = _starts, None
    return name or "child"


def earlier_engines() -> list[str]:
    """Engine processes that this one has already, before its recording begins: they will not be in it."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is None:
        return []
    return [
        f"{one.name} (pid {one.pid}) was started before the recording began: what it does is not recorded. "
        "Make the engine while the recording runs"
        for one in multiprocessing.active_children()
        if one.name.startswith("EngineCore")
    ]
