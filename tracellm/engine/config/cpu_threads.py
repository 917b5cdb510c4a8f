"""Number of threads with which an engine core's process computes on a CPU.

In a run's life: when the client starts the processes of engine cores. OpenMP waits for its threads in loops, so with
more threads than cores all are slow. A server's front end needs a core too, to receive requests and send tokens:
without one of its own, it waits for the end of each step.

vLLM: vllm/utils/ompmultiprocessing.py, which always reserves a core for the process of the scheduler.
"""

import math
import os
from pathlib import Path

from tracellm.engine.config.envs import cpu_num_of_reserved_cpu

__all__ = ["count_threads"]

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


def _quota() -> int:
    """Return the cores that this process may use at a time by the quota of its container, rounded up.

    Linux has it in `cpu.max` of the process's control group (version 2) and of those around it, as microseconds in each
    period, `150000 100000`.
    """
    quota = float(os.cpu_count() or 1)
    try:
        group = _CGROUPS / _OWN_CGROUP.read_text().rpartition("0::/")[2].strip()
    except OSError:
        group = _CGROUPS
    for folder in (group, *group.parents):
        try:
            allowed, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue
        if allowed != "max":
            quota = min(quota, int(allowed) / int(period))
    return max(1, math.ceil(quota))
