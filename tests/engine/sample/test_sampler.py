"""Sampling: the right distribution, the right candidates, and seeds that hold whatever else is in the batch."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tracellm.engine.sample.metadata import SamplingMetadata
from tracellm.engine.sample.sampler import Sampler, apply_top_k_top_p

VOCAB = 24


def metadata(
    rows: int,
    *,
    temperature: list[float] | float = 1.0,
    top_k: list[int] | None = None,
    top_p: list[float] | None = None,
    seeds: dict[int, int] | None = None,
    min_tokens: dict[int, tuple[int, set[int]]] | None = None,
    output_token_ids: list[list[int]] | None = None,
) -> SamplingMetadata:
    """Sampling metadata for some rows."""
    temperatures = torch.tensor([temperature] * rows if isinstance(temperature, float) else temperature)
    return SamplingMetadata(
        temperature=temperatures if (temperatures > 0).any() else None,
        all_random=bool((temperatures > 0).all()),
        top_p=None if top_p is None else torch.tensor(top_p),
        top_k=None if top_k is None else torch.tensor(top_k),
        generators={row: torch.Generator().manual_seed(seed) for row, seed in (seeds or {}).items()},
        min_tokens=min_tokens or {},
        output_token_ids=output_token_ids or [[] for _ in range(rows)],
    )


def sampler(seed: int = 0) -> Sampler:
    """A sampler whose shared generator starts from `seed`."""
    return Sampler(torch.Generator().manual_seed(seed))


def sample(logits: Tensor, sampling_metadata: SamplingMetadata, seed: int = 0) -> list[int]:
    """One token a row."""
    output = sampler(seed)(logits, sampling_metadata).sampled_token_ids
    assert output.shape == (len(logits), 1)
    tokens: list[int] = output[:, 0].tolist()
    return tokens


def random_logits(rows: int, seed: int = 0) -> Tensor:
    """Logits with no two alike."""
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 2


def keep_top_k_top_p(logits: Tensor, top_k: int, top_p: float) -> set[int]:
    """The candidates of one row, by the definition: sort, cut at k, add up probabilities until p is reached."""
    order = sorted(range(len(logits)), key=lambda token: -float(logits[token]))[:top_k]
    probs = logits.double()[order].softmax(0).tolist()
    kept, mass = set(), 0.0
    for token, probability in zip(order, probs, strict=True):
        kept.add(token)
        mass += probability
        if mass > top_p - 1e-9:
            break
    return kept


def chi_square(counts: Tensor, probs: Tensor) -> float:
    """How far the counts are from the distribution, in standard deviations of the statistic; rare ids are pooled."""
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
    ("temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.7, 5, 1.0), (1.0, 0, 0.8), (1.3, 9, 0.7)]
)
@pytest.mark.parametrize("seeded", [False, True], ids=["shared generator", "own generator"])
def test_tokens_follow_the_distribution(temperature: float, top_k: int, top_p: float, seeded: bool) -> None:
    """Thousands of draws pass a chi-square test against the exact distribution after temperature, top-k and top-p."""
    draws, logits = 40000, random_logits(1)
    scaled = logits[0].double() / temperature
    kept = torch.tensor([token in keep_top_k_top_p(scaled, top_k or VOCAB, top_p) for token in range(VOCAB)])
    probs = scaled.masked_fill(~kept, -torch.inf).softmax(0)
    if seeded:
        one, engine = (
            metadata(1, temperature=temperature, top_k=[top_k or VOCAB], top_p=[top_p], seeds={0: 5}),
            sampler(),
        )
        drawn = torch.cat([engine(logits, one).sampled_token_ids[0] for _ in range(draws // 20)])
    else:
        many = metadata(draws, temperature=temperature, top_k=[top_k or VOCAB] * draws, top_p=[top_p] * draws)
        drawn = torch.tensor(sample(logits.expand(draws, -1), many))
    assert abs(chi_square(drawn.bincount(minlength=VOCAB), probs)) < 4


def test_greedy_takes_the_likeliest() -> None:
    """Temperature 0 takes the largest logit, whatever else is random in the batch; of equal ones, the first."""
    logits = random_logits(6)
    logits[3, [4, 9]] = 50.0
    greedy = sample(logits, metadata(6, temperature=0.0))
    assert greedy == logits.argmax(-1).tolist()
    assert greedy[3] == 4
    mixed = sample(logits, metadata(6, temperature=[0.0, 5.0, 0.0, 0.0, 5.0, 5.0], top_k=[VOCAB] * 6))
    assert [mixed[i] for i in (0, 2, 3)] == [greedy[i] for i in (0, 2, 3)]


def test_a_seed_holds_alone_and_in_any_batch() -> None:
    """A request with a seed gets the same tokens alone as anywhere in a batch of others, and again when run again."""
    logits = random_logits(1)

    def run(rows: int, at: int, shared_seed: int) -> list[int]:
        seeds = {row: 1000 + row for row in range(0, rows, 2)} | {at: 42}
        temperatures = [[0.0, 0.7, 1.5][row % 3] for row in range(rows)]
        temperatures[at] = 1.1
        batch = random_logits(rows, seed=rows)
        batch[at] = logits[0]
        asked, engine = metadata(rows, temperature=temperatures, seeds=seeds), sampler(shared_seed)
        return [int(engine(batch, asked).sampled_token_ids[at]) for _ in range(30)]

    alone = run(1, 0, shared_seed=0)
    assert run(1, 0, shared_seed=1) == alone
    assert run(7, 3, shared_seed=2) == alone
    assert run(7, 6, shared_seed=3) == alone
    assert len(set(alone)) > 5, "these are no random tokens"


def test_different_seeds_differ() -> None:
    """Two seeds give two sequences from the same logits."""
    asked, engine = metadata(2, seeds={0: 1, 1: 2}), sampler()
    logits = random_logits(1).expand(2, -1)
    draws = torch.cat([engine(logits, asked).sampled_token_ids for _ in range(30)], dim=1)
    assert draws[0].tolist() != draws[1].tolist()


def test_the_shared_generator_repeats_and_leaves_torch_alone() -> None:
    """Rows without a seed repeat under the engine's seed, and PyTorch's global random state is not used."""
    logits, asked = random_logits(8), metadata(8)
    before = torch.get_rng_state()
    assert sample(logits, asked, seed=3) == sample(logits, asked, seed=3)
    assert sample(logits, asked, seed=3) != sample(logits, asked, seed=4)
    assert torch.equal(torch.get_rng_state(), before)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1000), top_k=st.integers(1, VOCAB), top_p=st.floats(0.01, 1.0))
def test_top_k_top_p_keep_the_right_candidates(seed: int, top_k: int, top_p: float) -> None:
    """The candidates kept are those of the definition, and their logits are unchanged."""
    logits = random_logits(2, seed)
    kept = apply_top_k_top_p(logits, torch.tensor([top_k, VOCAB]), torch.tensor([top_p, 1.0]))
    candidates = {token for token in range(VOCAB) if kept[0, token] > -torch.inf}
    cumulative = logits[0].double().topk(top_k).values.softmax(0).cumsum(0)
    if (cumulative - top_p).abs().min() > 1e-5:  # on the edge float32 may cut one candidate sooner or later
        assert candidates == keep_top_k_top_p(logits[0], top_k, top_p)
    assert torch.equal(kept[0, list(candidates)], logits[0, list(candidates)])
    assert torch.equal(kept[1], logits[1])


def test_top_k_keeps_ties() -> None:
    """Tokens as likely as the k-th are kept too, as in vLLM."""
    kept = apply_top_k_top_p(torch.tensor([[3.0, 2.0, 2.0, 1.0]]), torch.tensor([2]), None)
    assert kept[0].tolist() == [3.0, 2.0, 2.0, -torch.inf]


def test_tiny_top_p_is_greedy() -> None:
    """At least the likeliest token stays, however small top_p is."""
    logits = random_logits(5)
    assert sample(logits, metadata(5, top_p=[1e-9] * 5)) == logits.argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_min_tokens_forbids_stop_tokens(temperature: float) -> None:
    """A row's stop tokens cannot be drawn until it has its least number of tokens; other rows are free."""
    logits = torch.full((3, VOCAB), -10.0)
    logits[:, 7] = 30.0
    asked = metadata(
        3,
        temperature=temperature,
        min_tokens={0: (2, {7}), 1: (2, {7})},
        output_token_ids=[[1], [1, 2], []],
    )
    tokens = sample(logits, asked)
    assert tokens[0] != 7
    assert tokens[1:] == [7, 7]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_stay_as_they_were(dtype: torch.dtype) -> None:
    """Sampling does not change the logits: whoever looks at them afterwards sees what the model gave."""
    logits = random_logits(2).to(dtype)
    before = logits.clone()
    sample(logits, metadata(2, temperature=[0.5, 2.0], top_k=[3, 4], top_p=[0.9, 0.5], min_tokens={0: (1, {0})}))
    assert torch.equal(logits, before)


def test_no_rows() -> None:
    """A step in which nobody samples gives no tokens."""
    assert sample(torch.empty(0, VOCAB), metadata(0, temperature=[])) == []
