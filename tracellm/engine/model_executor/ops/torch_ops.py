"""Operations in plain PyTorch: the readable reference, for the CPU and for CUDA.

vLLM: `forward_native` in vllm/model_executor/layers/layernorm.py, rotary_embedding/ and activation.py.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tracellm.engine.model_executor.ops.interface import Ops
from tracellm.engine.sample.ops import apply_top_k_top_p

__all__ = ["TorchOps"]


class TorchOps(Ops):
    """`Ops` in plain PyTorch; see `Ops` for what each operation computes."""

    name = "torch"

    def rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """See `Ops.rms_norm`."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
        return (wide * scale).to(x.dtype) * weight

    def fused_add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """See `Ops.fused_add_rms_norm`."""
        residual = x + residual
        return self.rms_norm(residual, weight, epsilon), residual

    def gemma_rms_norm(self, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        """See `Ops.gemma_rms_norm`."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
        return (wide * scale * (1.0 + weight.float())).to(x.dtype)

    def rotary_embedding(
        self, positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See `Ops.rotary_embedding`."""
        cos, sin = cos_sin_cache[positions][:, None].chunk(2, dim=-1)  # each [T, 1, D/2]
        return _rotate(query, cos, sin), _rotate(key, cos, sin)

    def silu_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.silu_and_mul`."""
        gate, up = x.chunk(2, dim=-1)
        return F.silu(gate) * up

    def gelu_tanh_and_mul(self, x: Tensor) -> Tensor:
        """See `Ops.gelu_tanh_and_mul`."""
        gate, up = x.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh") * up

    def apply_top_k_top_p(self, logits: Tensor, top_k: Tensor | None, top_p: Tensor | None) -> Tensor:
        """See `Ops.apply_top_k_top_p`."""
        return apply_top_k_top_p(logits, top_k, top_p)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + D/2]) by its angle. Shapes: x [T, heads, D], cos and sin [T, 1, D/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
