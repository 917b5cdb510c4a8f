"""Linear layers, plain and merged. A merged layer computes several projections of one input in one matrix product.

A checkpoint holds the projections separately (`q_proj`, `k_proj`, `v_proj`). `load_parameters` (models/utils.py) copies
each into its rows of the merged matrix, by `output_sizes`.

vLLM: vllm/model_executor/layers/linear.py, with the same names; row-parallel layers are `ReplicatedLinear` here. Left
out: tensor parallelism, quantization.
"""

import torch
from torch import Tensor, nn

from tracellm.engine.model_executor.ops import current_ops

__all__ = ["MergedColumnParallelLinear", "QKVParallelLinear", "ReplicatedLinear"]


class ReplicatedLinear(nn.Module):
    """`x @ weight.T + bias`; weight [output_size, input_size]."""

    def __init__(self, input_size: int, output_size: int, bias: bool) -> None:
        super().__init__()
        self.ops = current_ops()
        self.weight = nn.Parameter(torch.empty(output_size, input_size), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(output_size), requires_grad=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return [T, output_size] for x [T, input_size]."""
        return self.ops.linear(x, self.weight, self.bias)


class MergedColumnParallelLinear(ReplicatedLinear):
    """Several projections of one input, with outputs of `output_sizes` side by side."""

    def __init__(self, input_size: int, output_sizes: list[int], bias: bool) -> None:
        super().__init__(input_size, sum(output_sizes), bias)
        self.output_sizes = output_sizes


class QKVParallelLinear(MergedColumnParallelLinear):
    """Query, key and value projections of an attention layer, in this order."""

    def __init__(self, hidden_size: int, head_size: int, num_heads: int, num_kv_heads: int, bias: bool) -> None:
        query_size, kv_size = num_heads * head_size, num_kv_heads * head_size
        super().__init__(hidden_size, [query_size, kv_size, kv_size], bias)
