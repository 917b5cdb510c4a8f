"""Tests of top-k and top-p in every implementation."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.ops.implementations import UNSHRUNK, Implementation, numbers
from tracellm.engine.model_executor.ops import make_ops


def kept(scores: list[float], k: int | None, p: float | None) -> list[bool]:
    """Return the kept tokens by the definition, for scores without ties: the most likely, until k or p is reached."""
    order = sorted(range(len(scores)), key=lambda token: -scores[token])[: k or len(scores)]
    probabilities = torch.tensor([scores[token] for token in order], dtype=torch.float64).softmax(0).tolist()
    stay: set[int] = set()
    reached = 0.0
    for token, probability in zip(order, probabilities, strict=True):
        if not stay or reached < (1.0 if p is None else p):
            stay.add(token)
        reached += probability
    return [token in stay for token in range(len(scores))]


def check(implementation: Implementation, logits: Tensor, top_k: list[int] | None, top_p: list[float] | None) -> None:
    """Check that kept tokens keep their scores, others get minus infinity, and the input is unchanged."""
    before = logits.clone()
    device = logits.device
    result = implementation.ops.apply_top_k_top_p(
        logits,
        None if top_k is None else torch.tensor(top_k, dtype=torch.int32, device=device).long(),
        None if top_p is None else torch.tensor(top_p, dtype=torch.float32, device=device),
    )
    assert torch.equal(logits, before)
    for row, scores in enumerate(logits.tolist()):
        stays = kept(scores, top_k[row] if top_k else None, top_p[row] if top_p else None)
        expected = torch.tensor(scores).masked_fill(~torch.tensor(stays), -torch.inf)
        assert torch.equal(result[row].cpu(), expected), (row, top_k, top_p)


@pytest.mark.parametrize("asked", ["k", "p", "kp"])
def test_the_likeliest_stay(implementation: Implementation, asked: str) -> None:
    """Each row keeps k tokens, or as many as reach p, or those of the k that reach p."""
    torch.manual_seed(0)
    vocabulary = 1300  # more than one tile
    top_k = [1, vocabulary, 3] if "k" in asked else None
    top_p = [1e-6, 0.9, 0.6] if "p" in asked else None
    logits = numbers(3, vocabulary, dtype=torch.float32, device=implementation.device, spread=3.0)
    check(implementation, logits, top_k, top_p)


def test_equal_scores(implementation: Implementation) -> None:
    """Tokens as likely as the k-th stay, even 0 and -0, and tokens masked before stay masked."""
    scores = [[3.0, 0.0, -0.0, -1.0, -torch.inf]]
    for top_p in (None, torch.tensor([0.999999], device=implementation.device)):
        logits = torch.tensor(scores, device=implementation.device)
        top_k = torch.tensor([2], device=implementation.device)
        result = implementation.ops.apply_top_k_top_p(logits, top_k, top_p)
        assert result.tolist() == [[3.0, 0.0, -0.0, -torch.inf, -torch.inf]]


def test_rows_that_ask_for_nothing(implementation: Implementation) -> None:
    """A row with k as large as the vocabulary and p = 1 is unchanged, however improbable its last tokens are."""
    logits = torch.tensor([[0.0, -200.0, 5.0, -30.0]], device=implementation.device)
    all_of_them, one = torch.tensor([4], device=logits.device), torch.tensor([1.0], device=logits.device)
    assert torch.equal(implementation.ops.apply_top_k_top_p(logits, all_of_them, None), logits)
    assert implementation.ops.apply_top_k_top_p(logits, None, None) is logits
    if implementation.name == "triton":  # sorting drops tokens with probability 0 in float32
        assert torch.equal(implementation.ops.apply_top_k_top_p(logits, all_of_them, one), logits)


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
@settings(max_examples=6, phases=UNSHRUNK, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    vocabulary=st.integers(1, 70),
    k=st.none() | st.integers(1, 70),
    p=st.none() | st.floats(0.01, 0.99),
    spread=st.sampled_from([1e-30, 0.1, 4.0, 1e30]),
    seed=st.integers(0, 1000),
)
def test_the_kernel_keeps_what_sorting_does(
    device: str, vocabulary: int, k: int | None, p: float | None, spread: float, seed: int
) -> None:
    """For scores of any size, the search for the threshold keeps the same tokens as sorting."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, vocabulary, generator=generator) * spread
    top_k = None if k is None else torch.tensor([min(k, vocabulary), vocabulary])
    top_p = None if p is None else torch.tensor([p, p])
    found, sorted_ones = (make_ops(name).apply_top_k_top_p(logits, top_k, top_p) for name in ("triton", "torch"))
    if spread == 1e-30 and p is not None:  # nearly equal: the rounding of float32 decides where p is reached
        return
    torch.testing.assert_close(found, sorted_ones)
