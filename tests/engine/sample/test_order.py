"""Tests of NumPy's maxima and sorting against PyTorch's, and of ties in top-k and top-p."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tracellm.engine.sample.ops import apply_top_k_top_p, argmax, sort_values

NAN, INF = float("nan"), float("inf")


def rows_with_ties(seed: int, rows: int = 3, width: int = 23) -> Tensor:
    """Make logits with many ties, as in bfloat16, some of them masked."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-4, 5, (rows, width), generator=generator).float() / 2
    return logits.masked_fill(torch.rand(rows, width, generator=generator) < 0.2, -INF)


@pytest.mark.parametrize("row", [[1.0, 3.0, 3.0], [-INF, -INF, -INF], [2.0, NAN, 9.0, NAN], [INF, -INF, INF]])
def test_the_largest_is_pytorchs(row: list[float]) -> None:
    """`argmax` returns the first of equal numbers, and NaN before all numbers."""
    x = torch.tensor([row, row])
    assert torch.equal(argmax(x), x.argmax(dim=-1))


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (4, 9)])
def test_the_order_is_pytorchs(shape: tuple[int, int]) -> None:
    """`sort_values` sorts rows in ascending order, NaN last, and leaves its argument unchanged."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    x[:, :: shape[1]] = NAN
    before = x.clone()
    torch.testing.assert_close(sort_values(x), x.sort(dim=-1).values, rtol=0, atol=0, equal_nan=True)
    assert argmax(x).shape == shape[:1]
    torch.testing.assert_close(x, before, rtol=0, atol=0, equal_nan=True)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), top_k=st.integers(1, 23), top_p=st.floats(0.01, 1.0), with_k=st.booleans())
def test_of_equal_tokens_the_first_are_dropped(seed: int, top_k: int, top_p: float, with_k: bool) -> None:
    """Top-k and top-p keep exactly the tokens that a stable sort keeps, in rows full of ties."""
    logits = rows_with_ties(seed)
    k, p = torch.full((3,), top_k) if with_k else None, torch.full((3,), top_p)
    ordered, indices = logits.sort(dim=-1, stable=True)
    if k is not None:
        ordered = ordered.masked_fill(ordered < ordered[:, 23 - top_k, None], -INF)
    drop = ordered.softmax(dim=-1).cumsum(dim=-1) <= 1 - p[:, None]
    drop[:, -1] = False
    expected = torch.empty_like(logits).scatter_(-1, indices, ordered.masked_fill(drop, -INF))
    assert torch.equal(apply_top_k_top_p(logits, k, p), expected)
