"""Root-mean-square norms, alone or fused with the residual connection before them.

vLLM: vllm/model_executor/layers/layernorm.py::RMSNorm and ::GemmaRMSNorm.
"""

from typing import overload

import torch
from torch import Tensor, nn

from tracellm.engine.model_executor.ops import current_ops

__all__ = ["GemmaRMSNorm", "RMSNorm"]


class RMSNorm(nn.Module):
    """`x / rms(x) * weight` over the hidden dimension."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.ops = current_ops()
        self.weight = nn.Parameter(torch.empty(hidden_size), requires_grad=False)
        self.variance_epsilon = eps

    @overload
    def forward(self, x: Tensor) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]: ...
    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return the norm of x [T, hidden]; with a residual, the norm of `x + residual`, and that sum."""
        if residual is None:
            return self.ops.rms_norm(x, self.weight, self.variance_epsilon)
        return self.ops.fused_add_rms_norm(x, residual, self.weight, self.variance_epsilon)


class GemmaRMSNorm(RMSNorm):
    """`x / rms(x) * (1 + weight)`: a weight of zero keeps the normalized x."""

    @overload
    def forward(self, x: Tensor) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]: ...
    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """See `RMSNorm.forward`."""
        if residual is None:
            return self.ops.gemma_rms_norm(x, self.weight, self.variance_epsilon)
        residual = x + residual
        return self.ops.gemma_rms_norm(residual, self.weight, self.variance_epsilon), residual
