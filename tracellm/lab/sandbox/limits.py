"""Limits of a student's process, and the part of them that it sets for itself before it runs the code."""

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracellm.lab.sandbox.jail import ISOLATIONS, Isolation

__all__ = ["Limits", "limit", "num_threads"]

_LARGEST_FILE = 64 << 20
_MOST_THREADS = 256
"""Threads of this user beyond those that run already; root is exempt."""


@dataclass(frozen=True)
class Limits:
    """Limits of a student's process."""

    case_seconds: float = 4.0
    """CPU time of one case."""
    total_seconds: float = 12.0
    """CPU time of all cases."""
    start_seconds: float = 30.0
    """CPU time of the start, in which the engine's libraries are imported."""
    patience: float = 4.0
    """Wall time that is allowed for a second of CPU time: other programs may use the cores, or the code may sleep."""
    memory: int = 4 << 30
    """Bytes of address space of one process, and of memory of all."""
    output: int = 1 << 20
    """Bytes that may be printed."""
    processes: int = 48
    """Processes beside the first."""
    restarts: int = 2
    """Processes started anew after a case has ended one."""
    isolation: Isolation = ISOLATIONS[0]
    """Strongest kind of isolation to try."""


def limit(memory: int, seconds: int, threads: int) -> None:
    """Limit address space (bytes), CPU time, the size of files, and threads beyond those that run already."""
    for name, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, threads + _MOST_THREADS),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(name, (most, most))


def num_threads() -> int:
    """Return the number of threads of this user, which RLIMIT_NPROC counts; 0 where /proc is missing."""
    uid, count = os.getuid(), 0
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if path.stat().st_uid == uid:
                count += sum(1 for _ in (path / "task").iterdir())
    return count
