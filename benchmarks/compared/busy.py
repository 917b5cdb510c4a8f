"""How busy the machine was with other things than what is measured: figures from a busy machine are worth less."""

import os
import time
from pathlib import Path

__all__ = ["Busy"]

_STAT = Path("/proc/stat")


class Busy:
    """Begins to look when it is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._ticks = _busy_ticks()

    def elsewhere(self, cpu_seconds: float) -> float:
        """The share of all processors' time since then that others had, who is measured having had `cpu_seconds`.

        Only Linux tells; 0.0 elsewhere.
        """
        seconds = (_busy_ticks() - self._ticks) / os.sysconf("SC_CLK_TCK") - cpu_seconds
        whole = (time.perf_counter() - self._start) * (os.cpu_count() or 1)
        return max(0.0, seconds / whole)


def _busy_ticks() -> int:
    """Of all processors since the machine started, without idling and waiting for disks."""
    if not _STAT.exists():
        return 0
    user, nice, system, _idle, _iowait, *others = map(int, _STAT.read_text().split("\n", 1)[0].split()[1:9])
    return user + nice + system + sum(others)
