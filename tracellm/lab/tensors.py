"""Tensors in checks: sent as plain data, and compared with the expected ones.

Cases hold a seed instead of tensors: both processes make the same ones from `generator(seed)`.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any

from tracellm.lab.checks import Failure

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["Where", "compare_tensors", "generator", "to_plain"]

Where = Callable[[tuple[int, ...]], tuple[str, str]]
"""Function from the indices of an element to its description, in English and in Chinese."""


def generator(seed: int) -> "torch.Generator":
    """Return a generator of random numbers."""
    import torch

    return torch.Generator().manual_seed(seed)


def to_plain(value: Any) -> dict[str, Any]:
    """Return a tensor as plain data; of any other value its type."""
    import torch

    if not isinstance(value, torch.Tensor):
        return {"type": type(value).__name__}
    return {
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "values": value.detach().double().flatten().tolist(),
    }


def compare_tensors(
    name: str, output: dict[str, Any], expected: "Tensor", where: Where, *, tolerance: float = 1e-4
) -> Failure | None:
    """Return the first element of a tensor in which it differs from the expected one, or None.

    Args:
        name: the function that returned it, for the message.
        output: the tensor, by `to_plain`.
        expected: the right tensor; its dtype is the expected one.
        where: description of an element.
        tolerance: relative to the largest expected element, or to 1 if that is larger.
    """
    if "type" in output:
        return Failure(
            f"{name} returned {output['type']}, not a Tensor", f"{name} 返回了 {output['type']}，应为 Tensor"
        )
    shape, dtype = list(expected.shape), str(expected.dtype).removeprefix("torch.")
    if output["shape"] != shape:
        return Failure(
            f"{name} returned a tensor of shape {output['shape']}; it should be {shape}",
            f"{name} 返回的张量形状为 {output['shape']}，应为 {shape}",
        )
    if output["dtype"] != dtype:
        return Failure(
            f"{name} returned {output['dtype']}; it should be {dtype}, as its input",
            f"{name} 返回的类型为 {output['dtype']}，应与输入相同，为 {dtype}",
        )
    right = expected.double().flatten().tolist()
    allowed = tolerance * max([1.0, *map(abs, right)])
    for index, got, want in zip(product(*map(range, shape)), output["values"], right, strict=True):
        if math.isnan(got) or abs(got - want) > allowed:
            en, zh = where(index)
            return Failure(f"{name}, {en}: {got:.5g}, expected {want:.5g}", f"{name}，{zh}：{got:.5g}，应为 {want:.5g}")
    return None
