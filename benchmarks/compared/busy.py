"""Load of the machine from processes other than the measured one."""

import os
import time
from pathlib import Path

__all__ = ["Busy"]

_STAT = Path("/proc/stat")


class Busy:
    """Meter of the load, which starts when it is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._ticks = _busy_ticks()

    def elsewhere(self, cpu_seconds: float) -> float:
        """Return the share of CPU time since the start of all but the measured process, which had `cpu_seconds`.

        Linux only; 0.0 on other systems.
        """
        seconds = (_busy_ticks() - self._ticks) / os.sysconf("SC_CLK_TCK") - cpu_seconds
        available = (time.perf_counter() - self._start) * (os.cpu_count() or 1)
        return max(0.0, seconds / available)


def _busy_ticks() -> int:
    """Return the busy ticks of all processors since boot, without idle and I/O wait."""
    if not _STAT.exists():
        return 0
    user, nice, system, _idle, _iowait, *others = map(int, _STAT.read_text().split("\n", 1)[0].split()[1:9])
    return user + nice + system + sum(others)
