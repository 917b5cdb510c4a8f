"""Limits that a process sets for itself before it runs a student's code."""

import os
import resource
from contextlib import suppress
from pathlib import Path

__all__ = ["limit", "num_threads"]

_LARGEST_FILE = 64 << 20
_MOST_THREADS = 256
"""Threads of this user beyond those that run already; root is exempt."""


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
