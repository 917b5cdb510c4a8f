"""Tests of norms, rotary embedding and activations of every implementation, against their definitions in float64."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.ops.implementations import DTYPES, UNSHRUNK, Implementation, assert_near, numbers
from tracellm.engine.model_executor.ops import Ops, make_ops

SHAPES = [
    *((rows, columns, dtype) for rows, columns in [(1, 1), (1, 896), (5, 33), (70, 129)] for dtype in DTYPES),
    (2000, 7, torch.float32),
]
"""Rows, columns and dtype: one token and thousands, powers of two and others."""


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def rms(x: Tensor, weight: Tensor, epsilon: float = 1e-6) -> Tensor:
    """RMS norm, by the definition."""
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight.double()


def silu(gate: Tensor) -> Tensor:
    """SiLU, by the definition."""
    return gate / (1 + (-gate).exp())


def gelu_tanh(gate: Tensor) -> Tensor:
    """GELU's tanh approximation, by the definition."""
    return 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))


def check_norms(ops: Ops, rows: int, columns: int, dtype: torch.dtype, device: str) -> None:
    """Check all three norms, with numbers surrounded by NaN."""
    x, residual = (numbers(rows, columns, dtype=dtype, device=device, spread=3.0) for _ in range(2))
    weight = numbers(columns, dtype=dtype, device=device)
    assert_near(ops.rms_norm(x, weight, 1e-6), rms(x, weight))
    assert_near(ops.gemma_rms_norm(x, weight, 1e-6), rms(x, 1 + weight.double()))
    before = x.clone(), residual.clone()
    normed, total = ops.fused_add_rms_norm(x, residual, weight, 1e-6)
    assert_near(total, x.double() + residual.double())
    assert_near(normed, rms(total, weight))
    assert torch.equal(x, before[0]), "the inputs stay as they were"
    assert torch.equal(residual, before[1])


def check_activations(ops: Ops, rows: int, columns: int, dtype: torch.dtype, device: str) -> None:
    """Check both activations, also for gates so large that exponentials overflow."""
    x = numbers(rows, 2 * columns, dtype=dtype, device=device, spread=3.0)
    x[:, 0] = torch.tensor([200.0, -200.0], device=device).repeat(rows)[:rows]
    gate, up = x[:, :columns].double(), x[:, columns:].double()
    assert_near(ops.silu_and_mul(x), silu(gate) * up)
    assert_near(ops.gelu_tanh_and_mul(x), gelu_tanh(gate) * up)


def check_rotary(ops: Ops, tokens: int, heads: tuple[int, int], pairs: int, dtype: torch.dtype, device: str) -> None:
    """Check the rotation of query and key, which are views of one merged projection."""
    angles = torch.outer(torch.arange(50.0), 1 / 100 ** (torch.arange(pairs) / pairs)).to(device)
    cache = torch.cat((angles.cos(), angles.sin()), dim=-1).to(dtype)
    positions = torch.randint(50, (tokens,), device=device)
    positions[0] = 0
    merged = numbers(tokens, sum(heads) * 2 * pairs, dtype=dtype, device=device).unflatten(-1, (-1, 2 * pairs))
    given = merged[:, : heads[0]], merged[:, heads[0] :]
    turned = ops.rotary_embedding(positions, *given, cache)
    cos, sin = cache.double()[positions][:, None].chunk(2, dim=-1)
    for x, result in zip(given, turned, strict=True):
        product = torch.complex(*x.double().chunk(2, dim=-1)) * torch.complex(cos, sin)
        assert result.shape == x.shape
        assert_near(result, torch.cat((product.real, product.imag), dim=-1))
        assert torch.equal(result[0], x[0]), "position 0 does not turn"


@pytest.mark.parametrize(("rows", "columns", "dtype"), SHAPES)
def test_norms(implementation: Implementation, rows: int, columns: int, dtype: torch.dtype) -> None:
    """Each row, or a sum of rows, is divided by its root mean square, times the weight or 1 + the weight."""
    check_norms(implementation.ops, rows, columns, dtype, implementation.device)


@pytest.mark.parametrize(("rows", "columns", "dtype"), SHAPES)
def test_activations(implementation: Implementation, rows: int, columns: int, dtype: torch.dtype) -> None:
    """The first half's silu, or tanh approximation of gelu, is multiplied by the second half."""
    check_activations(implementation.ops, rows, columns, dtype, implementation.device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("tokens", "heads", "pairs"), [(1, (1, 1), 1), (7, (14, 2), 32), (33, (3, 3), 10)])
def test_rotary_embedding(
    implementation: Implementation, tokens: int, heads: tuple[int, int], pairs: int, dtype: torch.dtype
) -> None:
    """The pair (i, i + D/2), as a complex number, is multiplied by e^(i * angle) of its token's position."""
    check_rotary(implementation.ops, tokens, heads, pairs, dtype, implementation.device)


@pytest.mark.parametrize("name", ["torch", "cpu"])
def test_positions_that_do_not_lie_side_by_side(name: str) -> None:
    """Strided positions rotate the heads like contiguous ones."""
    cache = torch.cat((torch.linspace(-1, 1, 64).view(16, 4), torch.ones(16, 4)), dim=-1)
    query, key = torch.randn(8, 3, 8), torch.randn(8, 1, 8)
    positions = torch.arange(16)[::2]
    ops = make_ops(name)
    turned = ops.rotary_embedding(positions, query, key, cache)
    for result, expected in zip(turned, ops.rotary_embedding(positions.clone(), query, key, cache), strict=True):
        assert torch.equal(result, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_of_heads(implementation: Implementation, dtype: torch.dtype) -> None:
    """Heads [T, H, D] that are views of a merged projection are normed one by one."""
    heads = numbers(5, 7 * 24, dtype=dtype, device=implementation.device).unflatten(-1, (-1, 24))[:, 1:4]
    weight = numbers(24, dtype=dtype, device=implementation.device)
    assert_near(implementation.ops.rms_norm(heads, weight, 1e-6), rms(heads, weight))
    assert_near(implementation.ops.gemma_rms_norm(heads, weight, 1e-6), rms(heads, 1 + weight.double()))


def test_rms_norm_of_large_half_precision_numbers(implementation: Implementation) -> None:
    """Squares of float16 numbers, which would overflow, are computed in float32."""
    x = torch.full((1, 8), 1000.0, dtype=torch.float16, device=implementation.device)
    assert_near(implementation.ops.rms_norm(x, torch.ones_like(x[0]), 1e-6), torch.ones(1, 8).double())


@pytest.mark.parametrize("name", ["torch", "cpu"])
def test_gemma_rms_norm_rounds_once(name: str) -> None:
    """Gemma's norm adds 1 to the weight, and rounds only after the product."""
    x, weight = (torch.randn(5, 3, 32) * 3).bfloat16(), torch.randn(32).bfloat16()
    exact = make_ops(name).gemma_rms_norm(x.float(), weight.float(), 1e-6)
    assert torch.equal(make_ops(name).gemma_rms_norm(x, weight, 1e-6), exact.bfloat16())


def test_rotary_scores_depend_on_distance_only(implementation: Implementation) -> None:
    """The score of a query and a key depends on their distance only."""
    ops, device = implementation.ops, implementation.device
    angles = torch.outer(torch.arange(50.0), 1 / 10000 ** (torch.arange(4) / 4))
    cache = torch.cat((angles.cos(), angles.sin()), dim=-1).to(device)
    query, key = (torch.randn(1, 1, 8, device=device) for _ in range(2))

    def score(at: int) -> float:
        turned, _ = ops.rotary_embedding(torch.tensor([at], device=device), query, key, cache)
        _, turned_key = ops.rotary_embedding(torch.tensor([at - 5], device=device), query, key, cache)
        return float((turned * turned_key).sum())

    assert math.isclose(score(5), score(44), rel_tol=1e-4)


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("device", ["cpu"], indirect=True)
@settings(max_examples=8, phases=UNSHRUNK, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 200),
    heads=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 10),
)
def test_kernels_of_any_shape(rows: int, columns: int, heads: tuple[int, int], dtype: torch.dtype, seed: int) -> None:
    """Any number of rows, columns and heads gives the definitions' results."""
    torch.manual_seed(seed)
    ops = make_ops("triton")
    check_norms(ops, rows, columns, dtype, "cpu")
    check_activations(ops, rows, columns, dtype, "cpu")
    check_rotary(ops, rows, heads, 1 + columns // 8, dtype, "cpu")
