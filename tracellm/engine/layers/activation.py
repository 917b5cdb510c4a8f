"""The activation of a gated feed-forward block. vLLM: vllm/model_executor/layers/activation.py::SiluAndMul."""

from torch import Tensor, nn

from tracellm.engine.ops import ops

__all__ = ["SiluAndMul"]


class SiluAndMul(nn.Module):
    """`silu(gate) * up`."""

    def forward(self, x: Tensor) -> Tensor:
        """x [T, 2n] holds gate and up side by side; the result is [T, n]."""
        return ops.silu_and_mul(x)
