"""Memory limits at start-up: the size of the KV cache, and errors when a step's inputs do not fit.

In a run's life: `Worker.determine_available_memory`, before the KV cache is made.

vLLM: vllm/v1/worker/gpu_worker.py::Worker.determine_available_memory and cpu_worker.py. The CPU's share is
`TRACELLM_CPU_KVCACHE_SPACE` here, `VLLM_CPU_KVCACHE_SPACE` there.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.vllm_config import SchedulerConfig, VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec
from tracellm.engine.core.kv_cache.kv_cache_utils import get_bytes_per_block, get_kv_cache_groups, get_max_num_blocks

if TYPE_CHECKING:
    from tracellm.engine.worker.gpu_model_runner import GPUModelRunner

__all__ = [
    "cpu_kv_cache_bytes",
    "explain_large_steps",
    "explain_out_of_memory",
    "profile_cuda",
    "requested_kv_cache_bytes",
]

_GIB = 1024**3
_CPU_DEFAULT = 4 * _GIB


def requested_kv_cache_bytes(num_bytes: int, device: torch.device) -> int:
    """Return `kv_cache_memory_bytes`, checked against the device's memory.

    Raises:
        EngineError: the device has less.
    """
    total = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else _total_cpu_memory()
    if num_bytes > total:
        raise EngineError(
            f"LLM: `kv_cache_memory_bytes` must be at most {total}, the memory of this machine's {device}, "
            f"got {num_bytes}."
        )
    return num_bytes


def cpu_kv_cache_bytes(vllm_config: VllmConfig, kv_cache_spec: dict[str, AttentionSpec]) -> int:
    """Return the KV cache's size on the CPU: `TRACELLM_CPU_KVCACHE_SPACE` GiB if set, else as much as is useful.

    That is enough for `max_num_seqs` requests of `max_model_len` tokens, but at most 4 GiB and at most half of the
    free memory. The system provides the memory as blocks are written; an engine core in its own process writes to all
    of it at the start.

    Raises:
        EngineError: the variable is not a positive number, or more than the machine has.
    """
    if (space := os.environ.get("TRACELLM_CPU_KVCACHE_SPACE")) is not None:
        return _parse_cpu_space(space)
    parallel = vllm_config.parallel_config
    limit = min(_CPU_DEFAULT, _free_cpu_memory() // 2) // (parallel.world_size * parallel.data_parallel_size)
    if vllm_config.cache_config.num_gpu_blocks_override is not None:
        return limit
    groups = get_kv_cache_groups(vllm_config, kv_cache_spec)
    blocks_per_request = get_max_num_blocks(groups, vllm_config.model_config.max_model_len, vllm_config)
    num_blocks = vllm_config.scheduler_config.max_num_seqs * blocks_per_request + 1  # and the null block
    return min(limit, num_blocks * get_bytes_per_block(groups))


def _parse_cpu_space(value: str) -> int:
    try:
        num_bytes = int(float(value) * _GIB)
    except (ValueError, OverflowError):
        num_bytes = 0
    if num_bytes <= 0:
        raise EngineError(
            f"TRACELLM_CPU_KVCACHE_SPACE must be a number of GiB above 0, for instance 2, but it is {value!r}."
        )
    if num_bytes > (total := _total_cpu_memory()):
        raise EngineError(
            f"TRACELLM_CPU_KVCACHE_SPACE is {value} GiB, more than this machine's memory ({total / _GIB:.1f} GiB). "
            "Lower it."
        )
    return num_bytes


def _total_cpu_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_cpu_memory() -> int:
    """Return the bytes available without swapping; half of all memory if the system does not report them."""
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return _total_cpu_memory() // 2


def profile_cuda(model_runner: GPUModelRunner, device: torch.device, gpu_memory_utilization: float) -> int:
    """Return the bytes left for the KV cache on the GPU, measured by a dummy run of the largest possible step.

    Raises:
        EngineError: other processes use so much of the GPU that the requested share is not free.
    """
    gc.collect()  # a dropped engine is a reference cycle, through its graphs, and still holds its memory
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    reserved_before = torch.cuda.memory_reserved(device)
    free, total = torch.cuda.mem_get_info(device)
    allowed = int(total * gpu_memory_utilization)
    if free + reserved_before < allowed:
        raise EngineError(
            f"{device} has {(free + reserved_before) / _GIB:.2f} of {total / _GIB:.2f} GiB free, less than "
            f"gpu_memory_utilization={gpu_memory_utilization} needs ({allowed / _GIB:.2f} GiB). "
            "Lower it, or stop the other processes on the GPU."
        )
    model_runner.profile_run()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_reserved(device)
    torch.cuda.empty_cache()
    return allowed - peak


@contextmanager
def explain_out_of_memory(purpose: str, remedy: str) -> Iterator[None]:
    """If the block runs out of memory, name what it is for and what to do, and with several workers the rank.

    Raises:
        EngineError: there is not enough memory.
    """
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:  # from NumPy, from a file's mapping, from PyTorch
        if "allocate" not in str(error) and not isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            raise
        where = f" in the worker of rank {dist.get_rank()}" if dist.is_initialized() else ""
        raise EngineError(f"There is no memory for {purpose}{where}: {remedy}.") from error


def explain_large_steps(scheduler_config: SchedulerConfig) -> AbstractContextManager[None]:
    """Name the settings to lower if the block, which allocates the buffers of a step's inputs, runs out of memory."""
    step = scheduler_config
    return explain_out_of_memory(
        f"the inputs of a step of max_num_batched_tokens={step.max_num_batched_tokens} and "
        f"max_num_seqs={step.max_num_seqs} (max_model_len={step.max_model_len})",
        "lower them",
    )
