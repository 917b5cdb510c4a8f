"""Linear layers, whole, or divided between the workers of tensor parallelism.

A column-parallel layer has some rows of the weight, so a part of the outputs. The row-parallel layer after it has the
matching columns, and its output is the sum over the workers: one all-reduce for the two layers. A merged layer computes
several projections of one input in one matrix product; a checkpoint holds them separately (`q_proj`, `k_proj`,
`v_proj`) or as one tensor. A layer's `partitions` are the parts of its projections that this worker has;
`load_parameters` (models/utils.py) reads no others.

vLLM: vllm/model_executor/layers/linear.py, with the same names. Left out: quantization. Source: Megatron-LM
(https://arxiv.org/abs/1909.08053).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.distributed.communication_op import tensor_model_parallel_all_reduce
from tracellm.engine.distributed.parallel_state import (
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from tracellm.engine.model_executor.ops import current_ops

__all__ = [
    "ColumnParallelLinear",
    "MergedColumnParallelLinear",
    "Partition",
    "QKVParallelLinear",
    "ReplicatedLinear",
    "RowParallelLinear",
]


class Partition(NamedTuple):
    """The part of a dimension that one worker has.

    Attributes:
        start: its first index.
        size: number of indices.
        total: size of the whole dimension.
    """

    start: int
    size: int
    total: int


def _even(total: int) -> Partition:
    """Return this worker's part of a dimension that is divided evenly."""
    world_size = get_tensor_model_parallel_world_size()
    if total % world_size:
        raise ModelLoadError(f"A layer of width {total} cannot be divided evenly between {world_size} workers.")
    size = total // world_size
    return Partition(get_tensor_model_parallel_rank() * size, size, total)


class ReplicatedLinear(nn.Module):
    """`x @ weight.T + bias`; weight [output_size, input_size]."""

    partition_dim: int | None = None
    """Dimension of the weight that is divided."""
    partitions: tuple[Partition, ...] = ()
    """This worker's part of that dimension, for each projection."""

    def __init__(self, input_size: int, output_size: int, bias: bool) -> None:
        super().__init__()
        self.ops = current_ops()
        self.weight = nn.Parameter(torch.empty(output_size, input_size), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(output_size), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return [T, output_size] for x [T, input_size]."""
        return self.ops.linear(x, self.weight, self.bias)


class _ColumnParallel(ReplicatedLinear):
    """A layer with some of the outputs of one or several projections."""

    partition_dim = 0

    def __init__(self, input_size: int, partitions: tuple[Partition, ...], bias: bool) -> None:
        super().__init__(input_size, sum(partition.size for partition in partitions), bias)
        self.partitions = partitions


class ColumnParallelLinear(_ColumnParallel):
    """This worker's part of the outputs."""

    def __init__(self, input_size: int, output_size: int, bias: bool) -> None:
        super().__init__(input_size, (_even(output_size),), bias)


class MergedColumnParallelLinear(_ColumnParallel):
    """This worker's part of several projections of one input, with outputs of `output_sizes` side by side."""

    def __init__(self, input_size: int, output_sizes: list[int], bias: bool) -> None:
        super().__init__(input_size, tuple(map(_even, output_sizes)), bias)


class QKVParallelLinear(_ColumnParallel):
    """This worker's heads of the query, key and value projections of an attention layer, in this order.

    With fewer key/value heads than workers, several workers have the same head.

    Attributes:
        num_heads: this worker's query heads.
        num_kv_heads: its key/value heads.
    """

    def __init__(
        self, hidden_size: int, head_size: int, num_heads: int, num_kv_heads: int, bias: bool, disable_tp: bool = False
    ) -> None:
        """Create the layer for `num_heads` and `num_kv_heads` in all; with `disable_tp` each worker has all of them."""
        size = 1 if disable_tp else get_tensor_model_parallel_world_size()
        rank = 0 if disable_tp else get_tensor_model_parallel_rank()
        copies = max(1, size // num_kv_heads)  # workers with one head
        heads, kv_heads = num_heads // size, max(1, num_kv_heads // size)
        query = Partition(rank * heads * head_size, heads * head_size, num_heads * head_size)
        key = Partition(rank // copies * kv_heads * head_size, kv_heads * head_size, num_kv_heads * head_size)
        super().__init__(hidden_size, (query, key, key), bias)
        self.num_heads, self.num_kv_heads = heads, kv_heads


class RowParallelLinear(ReplicatedLinear):
    """A layer whose input is divided; the workers' outputs are summed."""

    partition_dim = 1

    def __init__(self, input_size: int, output_size: int, bias: bool) -> None:
        partition = _even(input_size)
        super().__init__(partition.size, output_size, bias)
        self.partitions = (partition,)
        self.is_divided = partition.size < input_size

    def forward(self, x: Tensor) -> Tensor:
        """Return [T, output_size] for this worker's part of the input, [T, input_size / workers]."""
        if not self.is_divided:
            return self.ops.linear(x, self.weight, self.bias)
        output = tensor_model_parallel_all_reduce(self.ops.linear(x, self.weight, None))
        return output if self.bias is None else output + self.bias
