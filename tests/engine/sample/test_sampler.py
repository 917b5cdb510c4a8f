"""Tests of sampling: the distribution of tokens, and seeds that are independent of the batch."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.sample.reference import processed_logits, random_row
from tests.engine.sample.rows import VOCAB, Row, metadata, random_logits, sample, sampler
from tracellm.engine.sample.ops import random_sample


def chi_square(counts: Tensor, probs: Tensor) -> float:
    """Return the chi-square statistic's distance from its mean, in standard deviations; rare tokens are pooled."""
    expected = probs.double() * counts.sum()
    assert counts[probs == 0].sum() == 0, "a token of probability 0 was drawn"
    large = expected >= 5
    observed = torch.cat((counts[large].double(), counts[~large].sum()[None].double()))
    wanted = torch.cat((expected[large], expected[~large].sum()[None]))
    keep = wanted > 0
    statistic = float(((observed - wanted)[keep] ** 2 / wanted[keep]).sum())
    freedom = int(keep.sum()) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize(
    "row",
    [
        Row({}),
        Row({"temperature": 0.6}),
        Row({"temperature": 1.7, "top_k": 5}),
        Row({"top_p": 0.8}),
        Row({"temperature": 1.3, "top_k": 9, "top_p": 0.7}),
        Row({"temperature": 1.5, "min_p": 0.05}),
        Row({"presence_penalty": 1.5, "frequency_penalty": 0.5}, [1], [7, 7, 16, 3, 3, 3]),
        Row({"repetition_penalty": 1.8, "top_p": 0.95}, list(range(0, VOCAB, 3)), [4, 5]),
        Row({"logit_bias": {0: 3.0, 1: -4.0, 2: 2.0}, "min_p": 0.02}),
        Row({"allowed_token_ids": [1, 5, 9, 13, 17, 21], "min_tokens": 2, "stop_token_ids": [5]}, [1], [2], [[2, 9]]),
    ],
    ids=lambda row: "-".join(row.params) or "plain",
)
@pytest.mark.parametrize("seeded", [False, True], ids=["shared generator", "own generator"])
def test_tokens_follow_the_distribution(row: Row, seeded: bool) -> None:
    """Drawn tokens pass a chi-square test against the exact distribution."""
    draws, logits = 40000, random_logits(1)
    probs = processed_logits(logits[0], row).softmax(0)
    if seeded:
        one, engine = metadata([Row(row.params | {"seed": 5}, row.prompt, row.output, row.bad_words)]), sampler()
        drawn = torch.cat([engine(logits, one).sampled_token_ids[0] for _ in range(draws // 40)])
    else:
        many = metadata([row] * 1000)
        engine, wide = sampler(), logits.expand(1000, -1)
        drawn = torch.cat([engine(wide, many).sampled_token_ids[:, 0] for _ in range(draws // 1000)])
    assert abs(chi_square(drawn.bincount(minlength=VOCAB), probs)) < 4


def test_greedy_takes_the_likeliest() -> None:
    """Temperature 0 picks the largest logit, the first of ties, also among random rows."""
    logits = random_logits(6)
    logits[3, [4, 9]] = 50.0
    greedy = sample(logits, [Row({"temperature": 0.0})] * 6)
    assert greedy == logits.argmax(-1).tolist()
    assert greedy[3] == 4
    mixed = sample(logits, [Row({"temperature": t, "top_k": 3}) for t in (0.0, 5.0, 0.0, 0.0, 5.0, 5.0)])
    assert [mixed[i] for i in (0, 2, 3)] == [greedy[i] for i in (0, 2, 3)]


def test_a_seed_holds_alone_and_in_any_batch() -> None:
    """A seeded request gets the same tokens alone, in any batch, and when it is run again."""
    logits = random_logits(1)

    def run(rows: int, at: int, shared_seed: int) -> list[int]:
        batch = [random_row(seed=100 * rows + row) for row in range(rows)]
        for row in range(0, rows, 2):
            batch[row].params["seed"] = 1000 + row
        batch[at] = Row({"temperature": 1.1, "seed": 42, "top_k": 20, "min_p": 0.01})
        scores = random_logits(rows, seed=rows)
        scores[at] = logits[0]
        row_metadata, engine = metadata(batch), sampler(shared_seed)
        return [int(engine(scores, row_metadata).sampled_token_ids[at]) for _ in range(30)]

    alone = run(1, 0, shared_seed=0)
    assert run(1, 0, shared_seed=1) == alone
    assert run(7, 3, shared_seed=2) == alone
    assert run(7, 6, shared_seed=3) == alone
    assert len(set(alone)) > 5, "the tokens are not random"


def test_different_seeds_differ() -> None:
    """Different seeds give different tokens from the same logits."""
    row_metadata, engine = metadata([Row({"seed": 1}), Row({"seed": 2})]), sampler()
    logits = random_logits(1).expand(2, -1)
    draws = torch.cat([engine(logits, row_metadata).sampled_token_ids for _ in range(30)], dim=1)
    assert draws[0].tolist() != draws[1].tolist()


def test_the_shared_generator_repeats_and_leaves_torch_alone() -> None:
    """Unseeded rows depend on the engine's seed only, and PyTorch's global random state is not used."""
    logits, row_metadata = random_logits(8), [Row({})] * 8
    before = torch.get_rng_state()
    assert sample(logits, row_metadata, seed=3) == sample(logits, row_metadata, seed=3)
    assert sample(logits, row_metadata, seed=3) != sample(logits, row_metadata, seed=4)
    assert torch.equal(torch.get_rng_state(), before)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), order=st.permutations(range(6)))
def test_rows_do_not_depend_on_their_order(seed: int, order: list[int]) -> None:
    """Greedy and seeded rows get the same tokens and log probabilities in any order of the batch."""
    rows = [random_row(seed=seed + i) for i in range(6)]
    for i, row in enumerate(rows):
        row.params["seed"] = i
        row.params["logprobs"] = 3
    logits = random_logits(6, seed)
    here = sampler()(logits, metadata(rows))
    there = sampler()(logits[order], metadata([rows[i] for i in order]))
    assert torch.equal(there.sampled_token_ids, here.sampled_token_ids[order])
    assert here.logprobs_tensors is not None
    assert there.logprobs_tensors is not None
    for a, b in zip(there.logprobs_tensors, here.logprobs_tensors, strict=True):
        assert torch.equal(a, b[order])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_neighbours_change_nothing(seed: int) -> None:
    """A greedy or seeded row gets the same token in a batch as alone."""
    rows = [random_row(seed=seed + i) for i in range(5)]
    for i, row in enumerate(rows):
        row.params["seed"] = i
    logits = random_logits(5, seed)
    alone = [sample(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    assert sample(logits, rows) == alone


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_stay_as_they_were(dtype: torch.dtype) -> None:
    """Sampling does not change the model's logits."""
    logits = random_logits(20).to(dtype)
    before = logits.clone()
    sample(logits, [random_row(seed=i) for i in range(20)])
    assert torch.equal(logits, before)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_with_every_token_masked(temperature: float) -> None:
    """A row whose tokens are all masked gets -1, and its neighbours get their tokens."""
    masked = Row({"temperature": temperature, "allowed_token_ids": [3], "logprobs": 2}, bad_words=[[3]])
    logits = random_logits(3)
    tokens = sample(logits, [Row({"temperature": 0.0}), masked, Row({"top_p": 0.5, "min_p": 0.1})])
    assert tokens[0] == int(logits[0].argmax())
    assert tokens[1] == -1
    assert tokens[2] >= 0


def test_no_rows() -> None:
    """A batch without requests gives no tokens."""
    assert sample(torch.empty(0, VOCAB), []) == []


def test_a_token_without_probability_is_never_drawn() -> None:
    """The one possible token is drawn in 4,194,304 rows without a seed; among their random numbers is the smallest."""
    probs = torch.zeros(1 << 22, 1).expand(-1, 2).clone()
    probs[:, 1] = 1.0
    shared = torch.Generator().manual_seed(3)
    assert torch.all(random_sample(probs, {}, shared) == 1)
