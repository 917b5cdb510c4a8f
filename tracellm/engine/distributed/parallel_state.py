"""The groups of workers that this process belongs to, and their collective operations.

At start-up: `Worker.init_device` calls `init_distributed_environment`, then `initialize_model_parallel`. Layers ask
for their rank when they are made, and call the group in each step. With one worker there is no group, and nothing is
sent.

vLLM: vllm/distributed/parallel_state.py, with the same names. Left out: pipeline, data and expert parallelism; custom
all-reduce kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = [
    "GroupCoordinator",
    "destroy_distributed_environment",
    "get_tensor_model_parallel_rank",
    "get_tensor_model_parallel_world_size",
    "get_tp_group",
    "init_distributed_environment",
    "initialize_model_parallel",
]

_TP: GroupCoordinator | None = None
_TIMEOUT = timedelta(minutes=10)
"""Time after which a worker gives up waiting for the others, as in vLLM."""


class GroupCoordinator:
    """Workers that compute together.

    Attributes:
        ranks: ranks of the members, in the order of the group.
        rank: rank of this worker.
        rank_in_group: its index in `ranks`.
        world_size: number of members.
    """

    def __init__(self, ranks: Sequence[int], rank: int) -> None:
        self.ranks = list(ranks)
        self.rank = rank
        self.rank_in_group = self.ranks.index(rank)
        self.world_size = len(self.ranks)
        self.device_group = dist.new_group(self.ranks, timeout=_TIMEOUT)

    def all_reduce(self, input_: Tensor) -> Tensor:
        """Return the sum of the members' tensors; `input_` is overwritten."""
        dist.all_reduce(input_, group=self.device_group)
        return input_

    def all_gather(self, input_: Tensor, dim: int = -1) -> Tensor:
        """Return the members' tensors, all of one shape, side by side along `dim`."""
        parts = [torch.empty_like(input_) for _ in range(self.world_size)]
        dist.all_gather(parts, input_.contiguous(), group=self.device_group)
        return torch.cat(parts, dim=dim)


def init_distributed_environment(world_size: int, rank: int, distributed_init_method: str, backend: str) -> None:
    """Join the process group of all workers; waits until all have.

    Args:
        world_size: number of workers.
        rank: index of this one.
        distributed_init_method: where they meet, such as `file:///tmp/rendezvous`.
        backend: `gloo` on a CPU, `nccl` on GPUs.
    """
    dist.init_process_group(
        backend, init_method=distributed_init_method, world_size=world_size, rank=rank, timeout=_TIMEOUT
    )


def initialize_model_parallel(tensor_model_parallel_size: int) -> None:
    """Make the groups of tensor parallelism: consecutive ranks, as many as the size."""
    global _TP
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for first in range(0, world_size, tensor_model_parallel_size):
        group = (
            GroupCoordinator(range(first, first + tensor_model_parallel_size), rank)
            if (first <= rank < first + tensor_model_parallel_size)
            else dist.new_group(range(first, first + tensor_model_parallel_size), timeout=_TIMEOUT)
        )
        if isinstance(group, GroupCoordinator):
            _TP = group


def destroy_distributed_environment() -> None:
    """Leave all groups."""
    global _TP
    _TP = None
    if dist.is_initialized():
        dist.destroy_process_group()


def get_tp_group() -> GroupCoordinator:
    """Return the group of tensor parallelism; there must be one."""
    assert _TP is not None, "tensor model parallel group is not initialized"
    return _TP


def get_tensor_model_parallel_world_size() -> int:
    """Return the number of workers that share each layer."""
    return 1 if _TP is None else _TP.world_size


def get_tensor_model_parallel_rank() -> int:
    """Return this worker's index among them."""
    return 0 if _TP is None else _TP.rank_in_group
