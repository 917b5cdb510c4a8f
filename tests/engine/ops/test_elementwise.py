"""Norms, rotary embedding and activation, against their definitions in float64."""

import math

import pytest
import torch

from tracellm.engine.ops.torch_ops import TorchOps

ops = TorchOps()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_rms_norm() -> None:
    """Each row divided by its root mean square, times the weight."""
    x, weight = torch.randn(5, 32) * 3, torch.randn(32)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    torch.testing.assert_close(ops.rms_norm(x, weight, 1e-6).double(), expected, atol=1e-6, rtol=1e-5)


def test_rms_norm_of_large_half_precision_numbers() -> None:
    """In float16 the squares would overflow: they are taken in float32."""
    x = torch.full((1, 8), 1000.0, dtype=torch.float16)
    assert torch.equal(ops.rms_norm(x, torch.ones(8, dtype=torch.float16), 1e-6), torch.ones(1, 8, dtype=torch.float16))


def test_fused_add_rms_norm() -> None:
    """The sum is the new residual, and what is normed; the inputs stay as they were."""
    x, residual, weight = torch.randn(5, 32), torch.randn(5, 32), torch.randn(32)
    x_before, residual_before = x.clone(), residual.clone()
    normed, total = ops.fused_add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(total, x + residual)
    assert torch.equal(normed, ops.rms_norm(x + residual, weight, 1e-6))
    assert torch.equal(x, x_before)
    assert torch.equal(residual, residual_before)


def test_gemma_rms_norm() -> None:
    """1 is added to the weight, and nothing is rounded before the product; heads [T, H, D] are normed one by one."""
    x, weight = torch.randn(5, 3, 32) * 3, torch.randn(32)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + weight.double())
    torch.testing.assert_close(ops.gemma_rms_norm(x, weight, 1e-6).double(), expected, atol=1e-6, rtol=1e-5)
    narrow, weight = x.bfloat16(), weight.bfloat16()
    exact = ops.gemma_rms_norm(narrow.float(), weight.float(), 1e-6)
    assert torch.equal(ops.gemma_rms_norm(narrow, weight, 1e-6), exact.bfloat16())


def test_gelu_tanh_and_mul() -> None:
    """The tanh approximation of gelu of the first half, times the second."""
    x = torch.randn(5, 32)
    gate, up = x[:, :16].double(), x[:, 16:].double()
    gelu = 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    torch.testing.assert_close(ops.gelu_tanh_and_mul(x).double(), gelu * up, atol=1e-6, rtol=1e-6)


def test_silu_and_mul() -> None:
    """silu of the first half times the second."""
    x = torch.randn(5, 32)
    gate, up = x[:, :16].double(), x[:, 16:].double()
    torch.testing.assert_close(ops.silu_and_mul(x).double(), gate / (1 + (-gate).exp()) * up, atol=1e-6, rtol=1e-6)


def test_rotary_embedding_turns_pairs() -> None:
    """The pair (i, i + D/2), as a complex number, is multiplied by e^(i * angle) of its token's position."""
    angles = torch.outer(torch.arange(50.0), 1 / 100 ** (torch.arange(4) / 4))
    cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    positions = torch.tensor([0, 7, 49, 7])
    query, key = torch.randn(4, 3, 8), torch.randn(4, 1, 8)
    turn = torch.polar(torch.ones(4, 1, 4, dtype=torch.float64), angles[positions].double()[:, None])
    for x, rotated in zip((query, key), ops.rotary_embedding(positions, query, key, cache), strict=True):
        expected = torch.complex(x[..., :4].double(), x[..., 4:].double()) * turn
        torch.testing.assert_close(
            rotated.double(), torch.cat((expected.real, expected.imag), -1), atol=1e-5, rtol=1e-5
        )
    assert torch.equal(ops.rotary_embedding(positions, query, key, cache)[0][0], query[0]), "position 0 does not turn"


def test_rotary_scores_depend_on_distance_only() -> None:
    """A query and a key that are equally far apart have the same score wherever they are."""
    angles = torch.outer(torch.arange(50.0), 1 / 10000 ** (torch.arange(4) / 4))
    cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    query, key = torch.randn(1, 1, 8), torch.randn(1, 1, 8)

    def score(at: int) -> float:
        turned, _ = ops.rotary_embedding(torch.tensor([at]), query, key, cache)
        _, turned_key = ops.rotary_embedding(torch.tensor([at - 5]), query, key, cache)
        return float((turned * turned_key).sum())

    assert math.isclose(score(5), score(44), rel_tol=1e-4)
