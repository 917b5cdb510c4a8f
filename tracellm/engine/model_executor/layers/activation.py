"""Activations: of gated feed-forward blocks, and by their names in config.json (`get_act_fn`).

vLLM: vllm/model_executor/layers/activation.py::SiluAndMul, ::GeluAndMul, ::QuickGELU and ::get_act_fn.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from tracellm.engine.config.errors import ModelLoadError
from tracellm.engine.model_executor.ops import current_ops

__all__ = ["GeluAndMul", "QuickGELU", "SiluAndMul", "get_act_fn"]


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


class QuickGELU(nn.Module):
    """`x * sigmoid(1.702 * x)`, an approximation of gelu."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of x's shape."""
        return x * torch.sigmoid(1.702 * x)


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_pytorch_tanh": partial(nn.GELU, approximate="tanh"),
    "quick_gelu": QuickGELU,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
}


def get_act_fn(name: str) -> nn.Module:
    """Return the activation with this name in config.json.

    Raises:
        ModelLoadError: the activation is not supported.
    """
    if name not in _ACTIVATIONS:
        raise ModelLoadError(
            f"config.json asks for the activation `{name}`, which is not supported. "
            f"Supported: {', '.join(_ACTIVATIONS)}."
        )
    return _ACTIVATIONS[name]()
