"""How much memory the KV cache may take, and what is said when there is none for the inputs of a step.

vLLM: vllm/v1/worker/gpu_worker.py::Worker.determine_available_memory and cpu_worker.py. The CPU's share is
`TRACELLM_CPU_KVCACHE_SPACE` here, `VLLM_CPU_KVCACHE_SPACE` there.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from tracellm.engine.config.errors import EngineError
from tracellm.engine.config.vllm_config import SchedulerConfig, VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_groups import get_bytes_per_block, get_kv_cache_groups, get_max_num_blocks
from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec

if TYPE_CHECKING:
    from tracellm.engine.worker.gpu_model_runner import GPUModelRunner

__all__ = ["asked_kv_cache_bytes", "cpu_kv_cache_bytes", "making_step_inputs", "profile_cuda"]

_GIB = 1024**3
_CPU_DEFAULT = 4 * _GIB


def asked_kv_cache_bytes(num_bytes: int, device: torch.device) -> int:
    """`kv_cache_memory_bytes`, when the device has that much.

    Raises:
        EngineError: it has less.
    """
    total = torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else _total_cpu_memory()
    if num_bytes > total:
        raise EngineError(
            f"LLM: `kv_cache_memory_bytes` must be at most {total}, the memory of this machine's {device}, "
            f"got {num_bytes}."
        )
    return num_bytes


def cpu_kv_cache_bytes(vllm_config: VllmConfig, kv_cache_spec: dict[str, AttentionSpec]) -> int:
    """The CPU's share: `TRACELLM_CPU_KVCACHE_SPACE` GiB if that is set, else what is useful, up to 4 GiB.

    Useful is what `max_num_seqs` requests of `max_model_len` tokens need; more could never be used at once. It is
    never more than half of the memory that is free. Memory is taken from the system only as blocks are written; by an
    engine core in a process of its own, all of it at the start.

    Raises:
        EngineError: the variable is not a positive number, or more than the machine has.
    """
    if (space := os.environ.get("TRACELLM_CPU_KVCACHE_SPACE")) is not None:
        return _checked(space)
    limit = min(_CPU_DEFAULT, _free_cpu_memory() // 2)
    if vllm_config.cache_config.num_gpu_blocks_override is not None:
        return limit
    groups = get_kv_cache_groups(vllm_config, kv_cache_spec)
    blocks_per_request = get_max_num_blocks(groups, vllm_config.model_config.max_model_len, vllm_config)
    num_blocks = vllm_config.scheduler_config.max_num_seqs * blocks_per_request + 1  # and the null block
    return min(limit, num_blocks * get_bytes_per_block(groups))


def _checked(value: str) -> int:
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
    """Bytes that can be taken without swapping; half of all memory where the system does not say."""
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return _total_cpu_memory() // 2


def profile_cuda(model_runner: GPUModelRunner, device: torch.device, gpu_memory_utilization: float) -> int:
    """The GPU's share for the KV cache, measured by a trial run of the largest possible step.

    Raises:
        EngineError: other processes hold so much of the GPU that the asked-for share is not free.
    """
    gc.collect()  # an engine that was dropped holds itself, by its graphs, and with it the memory
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    ours_before = torch.cuda.memory_reserved(device)
    free, total = torch.cuda.mem_get_info(device)
    allowed = int(total * gpu_memory_utilization)
    if free + ours_before < allowed:
        raise EngineError(
            f"{device} has {(free + ours_before) / _GIB:.2f} of {total / _GIB:.2f} GiB free, less than "
            f"gpu_memory_utilization={gpu_memory_utilization} asks for ({allowed / _GIB:.2f} GiB). "
            "Lower it, or end what else uses the GPU."
        )
    model_runner.profile_run()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_reserved(device)
    torch.cuda.empty_cache()
    return allowed - peak


@contextmanager
def making_step_inputs(scheduler_config: SchedulerConfig) -> Iterator[None]:
    """Around the allocation of what holds a step's inputs: says which settings make it too large.

    Raises:
        EngineError: the memory cannot hold the inputs of the largest possible step.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # NumPy's, PyTorch's
        if "allocate" not in str(error) and not isinstance(error, torch.OutOfMemoryError):
            raise
        step = scheduler_config
        raise EngineError(
            f"There is no memory for the inputs of a step of max_num_batched_tokens={step.max_num_batched_tokens} "
            f"and max_num_seqs={step.max_num_seqs} (max_model_len={step.max_model_len}): lower them."
        ) from error
