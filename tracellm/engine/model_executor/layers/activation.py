"""Activations of gated feed-forward blocks.

vLLM: vllm/model_executor/layers/activation.py::SiluAndMul and ::GeluAndMul.
"""

from torch import Tensor, nn

from tracellm.engine.model_executor.ops import current_ops

__all__ = ["GeluAndMul", "SiluAndMul"]


class SiluAndMul(nn.Module):
    """`silu(gate) * up`."""

    def __init__(self) -> None:
        super().__init__()
        self.ops = current_ops()

    def forward(self, x: Tensor) -> Tensor:
        """Return [T, n] for x [T, 2n], which holds gate and up side by side."""
        return self.ops.silu_and_mul(x)


class GeluAndMul(nn.Module):
    """`gelu(gate) * up`, gelu by its tanh approximation (`gelu_pytorch_tanh`)."""

    def __init__(self) -> None:
        super().__init__()
        self.ops = current_ops()

    def forward(self, x: Tensor) -> Tensor:
        """Return [T, n] for x [T, 2n], which holds gate and up side by side."""
        return self.ops.gelu_tanh_and_mul(x)
