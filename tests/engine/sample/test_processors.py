"""Tests of each processor against transformers' and against an independent reference in float64."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.generation import logits_process as hf

from tests.engine.sample.reference import processed_logits, random_row
from tests.engine.sample.rows import VOCAB, Row, fill, metadata, random_logits, sample, sampler
from tracellm.engine.sample.ops import apply_top_k_top_p


def process(logits: Tensor, rows: list[Row]) -> Tensor:
    """Return the logits that random rows draw from, float32 [N, vocabulary]."""
    engine, row_metadata = sampler(), metadata(rows, logits.shape[1])
    kept = engine.sample(engine.apply_logits_processors(logits.float(), row_metadata), row_metadata)[1]
    return kept


ROWS = [
    Row({}, [3, 4, 5, 3], [7, 7, 9]),
    Row({}, [0, 1, 2, 3, 4, 5, 6, 7, 8], [VOCAB - 1]),
    Row({}, [11], [12, 13, 12, 13, 12]),
]
OUTPUT = [row.output for row in ROWS]


def with_params(**params: Any) -> list[Row]:
    """Return the three rows with these sampling parameters."""
    return [Row(params, row.prompt, row.output) for row in ROWS]


def transformers_process(processor: Any, logits: Tensor, prompt: bool = False) -> Tensor:
    """Apply transformers' processor to each row by itself, as the rows have different lengths."""
    return torch.cat(
        [
            processor(torch.tensor([(row.prompt if prompt else []) + row.output]), logits[i : i + 1].clone())
            for i, row in enumerate(ROWS)
        ]
    )


@pytest.mark.parametrize("penalty", [0.5, 1.2, 3.0])
def test_repetition_penalty(penalty: float) -> None:
    """The penalty divides positive logits of prompt and output tokens, and multiplies negative ones."""
    logits = random_logits(3)
    expected = transformers_process(hf.RepetitionPenaltyLogitsProcessor(penalty), logits, prompt=True)
    torch.testing.assert_close(process(logits, with_params(repetition_penalty=penalty)), expected)


def test_temperature() -> None:
    """The logits are divided by the temperature."""
    logits = random_logits(3)
    expected = transformers_process(hf.TemperatureLogitsWarper(0.7), logits)
    torch.testing.assert_close(process(logits, with_params(temperature=0.7)), expected)


@pytest.mark.parametrize("min_p", [0.01, 0.1, 0.5, 1.0])
def test_min_p(min_p: float) -> None:
    """Tokens less probable than this share of the most likely token's probability are dropped."""
    logits = random_logits(3)
    expected = transformers_process(hf.MinPLogitsWarper(min_p), logits)
    assert torch.equal(process(logits, with_params(min_p=min_p)), expected)


@pytest.mark.parametrize("top_k", [1, 2, 7, VOCAB])
def test_top_k(top_k: int) -> None:
    """The k most likely tokens stay."""
    logits = random_logits(3)
    expected = transformers_process(hf.TopKLogitsWarper(top_k), logits)
    assert torch.equal(process(logits, with_params(top_k=top_k)), expected)


@pytest.mark.parametrize("top_p", [0.05, 0.4, 0.9, 0.999])
def test_top_p(top_p: float) -> None:
    """The fewest tokens that together reach this probability stay."""
    logits = random_logits(3)
    expected = transformers_process(hf.TopPLogitsWarper(top_p), logits)
    assert torch.equal(process(logits, with_params(top_p=top_p)), expected)


def test_bad_words() -> None:
    """A sequence's last token is masked if the output ends in the tokens before it; the prompt does not count."""
    logits, words = random_logits(3), [[5], [7, 9, 2], [9, 9], [12, 4], [13, 12, 6], [3, 8], [1, 2, 3, 4, 5, 6, 7]]
    processor = hf.NoBadWordsLogitsProcessor(words, eos_token_id=torch.tensor([VOCAB - 2]))
    rows = [Row({}, row.prompt, row.output, words) for row in ROWS]
    processed = process(logits, rows)
    assert torch.equal(processed, transformers_process(processor, logits))
    assert processed.isinf().sum(dim=1).tolist() == [3, 1, 3]


def test_bad_words_that_the_model_cannot_generate() -> None:
    """A bad word that ends in a token that the model does not have masks nothing."""
    logits = random_logits(1)
    assert torch.equal(process(logits, [Row({}, bad_words=[[VOCAB], [VOCAB + 9]])]), logits)


def test_logit_bias() -> None:
    """The bias is added to the token's logit."""
    logits, bias = random_logits(3), {2: -5.0, 3: 0.25, 9: 100.0}
    processor = hf.SequenceBiasLogitsProcessor([[[token], number] for token, number in bias.items()])
    assert torch.equal(process(logits, with_params(logit_bias=bias)), transformers_process(processor, logits))


def test_allowed_token_ids() -> None:
    """Only the allowed tokens stay."""
    logits, allowed = random_logits(3), [1, 4, 17]
    processor = hf.PrefixConstrainedLogitsProcessor(lambda batch, ids: allowed, 1)
    assert torch.equal(process(logits, with_params(allowed_token_ids=allowed)), transformers_process(processor, logits))


def test_min_tokens() -> None:
    """The stop tokens are masked until the output has `min_tokens` tokens."""
    logits, stop = random_logits(3), [2, 9]
    processor = hf.MinNewTokensLengthLogitsProcessor(0, 4, stop)
    processed = process(logits, with_params(min_tokens=4, stop_token_ids=[*stop, 10**6]))
    assert torch.equal(processed, transformers_process(processor, logits))
    assert processed.isinf().any(dim=1).tolist() == [len(output) < 4 for output in OUTPUT]


def test_min_tokens_end_while_the_batch_stays() -> None:
    """Stop tokens are allowed as soon as a row has `min_tokens` tokens, even if the batch did not change."""
    batch = fill([Row({"min_tokens": 2, "stop_token_ids": [5], "temperature": 0.0}), Row({"temperature": 0.0})])
    logits = torch.zeros(2, VOCAB)
    logits[:, 5] = 1.0
    engine, drawn = sampler(), []
    for _ in range(3):
        batch.refresh_metadata()
        drawn.append(engine(logits, batch.sampling_metadata).sampled_token_ids[:, 0].tolist())
        batch.append_tokens([0, 1], drawn[-1])
    assert [row[0] == 5 for row in drawn] == [False, False, True]
    assert [row[1] for row in drawn] == [5, 5, 5]


def test_top_k_keeps_ties() -> None:
    """Tokens as likely as the k-th stay, with top-p and without."""
    logits = torch.tensor([[3.0, 2.0, 2.0, 1.0]])
    for top_p in (None, torch.tensor([0.999999])):
        kept = apply_top_k_top_p(logits, torch.tensor([2]), top_p)
        assert kept[0].tolist() == [3.0, 2.0, 2.0, -torch.inf]


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_all_together_are_the_reference(seed: int) -> None:
    """Any combination of parameters, in any batch, gives the reference's logits."""
    rows = [random_row(seed=seed + i) for i in range(4)]
    logits = random_logits(4, seed)
    processed = process(logits, rows)
    greedy = sample(
        logits, [Row(row.params | {"temperature": 0.0}, row.prompt, row.output, row.bad_words) for row in rows]
    )
    for i, row in enumerate(rows):
        expected = processed_logits(logits[i], row)
        cold = processed_logits(
            logits[i], Row(row.params | {"temperature": 0.0}, row.prompt, row.output, row.bad_words)
        )
        assert greedy[i] == int(cold.argmax())
        if row.params["temperature"] == 0:
            continue
        if not on_the_edge(logits[i], row):
            torch.testing.assert_close(processed[i].double(), expected, rtol=1e-5, atol=1e-5)


def on_the_edge(logits: Tensor, row: Row) -> bool:
    """Return whether rounding decides what min-p and top-p keep, so that float32 may differ from float64."""
    params = row.params
    kept = [
        processed_logits(logits, Row(params | {"top_p": top_p, "min_p": min_p}, row.prompt, row.output, row.bad_words))
        for top_p in (min(params.get("top_p", 1.0) * (1 + 1e-4), 1.0), params.get("top_p", 1.0) * (1 - 1e-4))
        for min_p in (min(params.get("min_p", 0.0) * (1 + 1e-4), 1.0), params.get("min_p", 0.0) * (1 - 1e-4))
    ]
    return any(not torch.equal(kept[0] > -torch.inf, other > -torch.inf) for other in kept)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_something_always_stays_and_sums_to_one(seed: int) -> None:
    """The most likely token always stays, and the probabilities of the remaining tokens sum to 1."""
    rows = [random_row(seed=seed + i) for i in range(4)]
    for row in rows:
        row.params["temperature"] = row.params["temperature"] or 0.3
    logits = random_logits(4, seed)
    row_metadata, engine = metadata(rows), sampler()
    before = engine.apply_logits_processors(logits, row_metadata)
    processed = process(logits, rows)
    assert torch.equal(processed.argmax(-1), before.argmax(-1))
    probs = processed.softmax(-1)
    torch.testing.assert_close(probs.sum(-1), torch.ones(4))
    assert bool((probs.gather(1, engine(logits, row_metadata).sampled_token_ids) > 0).all())
