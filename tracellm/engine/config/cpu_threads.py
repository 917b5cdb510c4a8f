"""Number of threads with which an engine core's process computes on a CPU.

In a run's life: when the client creates an engine core, in its own process or a new one. OpenMP waits for its threads
in loops, so with more threads than cores all are slow. A server's front end needs a core too, to receive requests and
send tokens: without one of its own, it waits for the end of each step.

vLLM: vllm/utils/ompmultiprocessing.py, which always reserves a core for the process of the scheduler.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tracellm.engine.config.envs import cpu_num_of_reserved_cpu

if TYPE_CHECKING:
    import torch

__all__ = ["count_threads", "limit_threads"]

_CGROUPS, _OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def count_threads(num_reserved: int) -> int:
    """Return OMP_NUM_THREADS if it is set, or else the cores that this process may use without the reserved ones.

    Args:
        num_reserved: cores for other work, unless VLLM_CPU_NUM_OF_RESERVED_CPU is set.

    Raises:
        EngineError: VLLM_CPU_NUM_OF_RESERVED_CPU is not a number.
    """
    import torch

    cores = torch.get_num_threads()
    if "OMP_NUM_THREADS" in os.environ:
        return cores
    reserved = cpu_num_of_reserved_cpu()
    return max(1, min(cores, _quota()) - (num_reserved if reserved is None else reserved))


def limit_threads(device: torch.device) -> None:
    """Limit torch's threads in this process to its quota of cores, for a CPU, unless OMP_NUM_THREADS is set."""
    if device.type != "cpu" or "OMP_NUM_THREADS" in os.environ:
        return
    import torch

    if (quota := _quota()) < torch.get_num_threads():
        torch.set_num_threads(quota)


def _quota() -> int:
    """Return the cores that this process may use at a time by the quota of its container, rounded up.

    Linux has it in files of the process's control group and of those around it, as microseconds in each period:
    `cpu.max` in version 2, with both numbers; `cpu.cfs_quota_us` and `cpu.cfs_period_us` in version 1.
    """
    quota = float(os.cpu_count() or 1)
    for folder in _groups():
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with suppress(OSError, ValueError, ZeroDivisionError):  # absent, or "max" without a quota
                allowed, period = " ".join((folder / name).read_text() for name in names).split()
                if int(allowed) > 0:  # -1 without a quota
                    quota = min(quota, int(allowed) / int(period))
    return max(1, math.ceil(quota))


def _groups() -> Iterator[Path]:
    """Yield the folders of this process's control groups, and of those around them.

    A container may see the names of its groups outside, and their files in the root.
    """
    roots = {"": _CGROUPS, "cpu": _CGROUPS / "cpu"}
    try:
        lines = _OWN_CGROUP.read_text().splitlines()
    except OSError:
        lines = []
    names = {}
    for line in lines:
        match line.split(":", 2):
            case [_, controllers, name]:
                names.update(dict.fromkeys(controllers.split(","), name))
    for controller, root in roots.items():
        group = root / names.get(controller, "/").lstrip("/")
        yield from (group, *(folder for folder in group.parents if folder.is_relative_to(root)))
