"""Every implementation of the operations on each of its devices, with its tolerance."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import Phase
from torch import Tensor

from tracellm.engine.model_executor.ops import Ops, make_ops

__all__ = ["DTYPES", "EVERY", "UNSHRUNK", "Implementation", "assert_near", "need_triton", "numbers"]

DTYPES = [torch.float32, torch.bfloat16, torch.float16]

UNSHRUNK = [Phase.explicit, Phase.reuse, Phase.generate]
"""Hypothesis phases for tests of kernels; shrinking interpreted examples would take minutes."""


class Implementation(NamedTuple):
    """Implementation by name, and its device; the operations are made on first use."""

    name: str
    device: str

    @property
    def ops(self) -> Ops:
        """Make the operations."""
        return make_ops(self.name)


EVERY = [
    *(pytest.param(Implementation(name, "cpu"), id=name) for name in ("torch", "cpu")),
    pytest.param(Implementation("triton", "cpu"), id="triton-interpreted"),
    *(
        pytest.param(Implementation(name, "cuda"), id=f"{name}-gpu", marks=pytest.mark.gpu)
        for name in ("torch", "triton")
    ),
]
"""Arguments for `pytest.mark.parametrize`; the fixture `implementation` skips those that cannot run."""


def need_triton(device: str) -> None:
    """Skip the test if Triton's kernels cannot run on this device."""
    pytest.importorskip("triton")
    from tracellm.engine.model_executor.ops.triton.launch import INTERPRETED

    if INTERPRETED and device == "cuda":
        pytest.skip("the kernels of this process are interpreted; `pytest -m gpu` compiles them")


_NEAR = {torch.float32: 4e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Four units in the last place, relative to a result's largest number; the interpreter truncates bfloat16."""


def numbers(*shape: int, dtype: torch.dtype, device: str, spread: float = 1.0) -> Tensor:
    """Make random numbers inside a larger tensor that is NaN elsewhere, so that reads outside are detected."""
    whole = torch.full((*shape[:-1], shape[-1] + 8), torch.nan)
    inner = whole[..., 3 : 3 + shape[-1]]
    inner.copy_(torch.randn(shape) * spread)
    return whole.to(device, dtype)[..., 3 : 3 + shape[-1]]


def assert_near(result: Tensor, expected: Tensor) -> None:
    """Check that `result` equals the float64 value up to the rounding of its dtype."""
    near = _NEAR[result.dtype]
    size = float(expected.abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(result.double().cpu(), expected.cpu(), rtol=near, atol=near * size)
