"""The groups of workers that this process belongs to, and the operations of a group.

A worker has a place in two groups: those that share its layers (tensor parallelism), and those that hold the layers
before and after them (pipeline parallelism). With 2 x 2 workers, ranks 0 and 1 have the first half of the layers, ranks
2 and 3 the second; 0 and 2 are a pipeline, and so are 1 and 3.

At start-up: `Worker.init_device` calls `init_distributed_environment`, then `initialize_model_parallel`. Layers ask
for their rank when they are made, and call the group in each step. A group of one sends nothing.

vLLM: vllm/distributed/parallel_state.py, with the same names. Left out: data and expert parallelism; custom all-reduce
kernels; sending slices that an all-gather joins (`all_gather_group`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = [
    "GroupCoordinator",
    "destroy_distributed_environment",
    "get_pp_group",
    "get_tensor_model_parallel_rank",
    "get_tensor_model_parallel_world_size",
    "get_tp_group",
    "init_distributed_environment",
    "initialize_model_parallel",
    "using_groups",
]

_TIMEOUT = timedelta(minutes=10)
"""Time after which a worker gives up waiting for the others; PyTorch's default for NCCL."""


class GroupCoordinator:
    """Workers that compute together.

    Attributes:
        ranks: ranks of the members, in the order of the group.
        rank: rank of this worker.
        rank_in_group: its index in `ranks`.
        world_size: number of members.
        num_collectives: number of `all_reduce` and `all_gather` calls so far, the same in all members.
        num_sent: number of `send_tensor_dict` calls so far.
        num_received: number of `recv_tensor_dict` calls so far.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        rank: int,
        device: torch.device | None = None,
        device_group: dist.ProcessGroup | None = None,
        cpu_group: dist.ProcessGroup | None = None,
    ) -> None:
        """Store the members and their process groups, for tensors on `device` (the CPU by default) and for objects."""
        self.ranks = list(ranks)
        self.rank = rank
        self.rank_in_group = self.ranks.index(rank)
        self.world_size = len(self.ranks)
        self.device = device
        self.device_group = device_group
        self.cpu_group = cpu_group
        self.num_collectives = self.num_sent = self.num_received = 0

    @property
    def is_first_rank(self) -> bool:
        """Whether this worker is the group's first."""
        return self.rank_in_group == 0

    @property
    def is_last_rank(self) -> bool:
        """Whether this worker is the group's last."""
        return self.rank_in_group == self.world_size - 1

    @property
    def next_rank(self) -> int:
        """Rank of the next member; after the last, the first."""
        return self.ranks[(self.rank_in_group + 1) % self.world_size]

    @property
    def prev_rank(self) -> int:
        """Rank of the previous member; before the first, the last."""
        return self.ranks[(self.rank_in_group - 1) % self.world_size]

    def all_reduce(self, input_: Tensor) -> Tensor:
        """Return the sum of the members' tensors; `input_` is overwritten."""
        self.num_collectives += 1
        dist.all_reduce(input_, group=self.device_group)
        return input_

    def all_gather(self, input_: Tensor, dim: int = -1) -> Tensor:
        """Return the members' tensors, all of one shape, side by side along `dim`."""
        self.num_collectives += 1
        parts = [torch.empty_like(input_) for _ in range(self.world_size)]
        dist.all_gather(parts, input_.contiguous(), group=self.device_group)
        return torch.cat(parts, dim=dim)

    def send_tensor_dict(self, tensor_dict: dict[str, Tensor]) -> None:
        """Send tensors to the next member, after a message with their names, shapes and dtypes."""
        self.num_sent += 1
        metadata = [(name, tensor.shape, tensor.dtype) for name, tensor in tensor_dict.items()]
        dist.send_object_list([metadata], self.next_rank, group=self.cpu_group)
        for tensor in tensor_dict.values():
            dist.send(tensor.contiguous(), self.next_rank, group=self.device_group)

    def recv_tensor_dict(self) -> dict[str, Tensor]:
        """Wait for the tensors of the previous member, and return them by name."""
        tensor_dict = {
            name: torch.empty(shape, dtype=dtype, device=self.device) for name, shape, dtype in self.recv_object()
        }
        self.num_received += 1
        self.recv_tensors(tensor_dict)
        return tensor_dict

    def recv_object(self) -> list[tuple[str, torch.Size, torch.dtype]]:
        """Wait until the previous member sends tensors, and return their names, shapes and dtypes."""
        received: list[list[tuple[str, torch.Size, torch.dtype]]] = [[]]
        dist.recv_object_list(received, self.prev_rank, group=self.cpu_group)
        return received[0]

    def recv_tensors(self, tensor_dict: dict[str, Tensor]) -> None:
        """Fill the tensors with those of the previous member."""
        for tensor in tensor_dict.values():
            dist.recv(tensor, self.prev_rank, group=self.device_group)


_SINGLE = GroupCoordinator((0,), 0)
_TP: GroupCoordinator = _SINGLE
_PP: GroupCoordinator = _SINGLE


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


def initialize_model_parallel(tensor_model_parallel_size: int, device: torch.device) -> None:
    """Make the groups: of tensor parallelism `tensor_model_parallel_size` consecutive ranks, of pipelines the others.

    Args:
        tensor_model_parallel_size: workers that share each layer; the number of all workers is a multiple of it.
        device: where this worker's tensors are.
    """
    global _TP, _PP
    ranks = torch.arange(dist.get_world_size()).view(-1, tensor_model_parallel_size)
    _TP = _init_model_parallel_group(ranks.tolist(), device)
    _PP = _init_model_parallel_group(ranks.T.tolist(), device)


def _init_model_parallel_group(group_ranks: list[list[int]], device: torch.device) -> GroupCoordinator:
    """Make all groups of one kind, as every worker must, and return this worker's."""
    rank, own = dist.get_rank(), _SINGLE
    for ranks in group_ranks:
        if len(ranks) == 1:
            continue
        device_group = dist.new_group(ranks, timeout=_TIMEOUT)
        cpu_group = dist.new_group(ranks, timeout=_TIMEOUT, backend="gloo")
        if rank in ranks:
            own = GroupCoordinator(ranks, rank, device, device_group, cpu_group)
    return own


def destroy_distributed_environment() -> None:
    """Leave all groups."""
    global _TP, _PP
    _TP = _PP = _SINGLE
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def using_groups(tp: GroupCoordinator, pp: GroupCoordinator) -> Iterator[None]:
    """Use these groups instead of real ones within the `with` block."""
    global _TP, _PP
    before = _TP, _PP
    _TP, _PP = tp, pp
    try:
        yield
    finally:
        _TP, _PP = before


def get_tp_group() -> GroupCoordinator:
    """Return the group of tensor parallelism."""
    return _TP


def get_pp_group() -> GroupCoordinator:
    """Return the pipeline."""
    return _PP


def get_tensor_model_parallel_world_size() -> int:
    """Return the number of workers that share each layer."""
    return _TP.world_size


def get_tensor_model_parallel_rank() -> int:
    """Return this worker's index among them."""
    return _TP.rank_in_group
