"""Tests of embeddings through `LLM` against transformers' hidden states, in float32."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import FAMILIES, reference_model
from tracellm import LLM
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.sched.scheduler import Scheduler
from tracellm.engine.pool.pooling_params import PoolingParams

LENGTHS = [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 60, 100]
"""Lengths around the block size (16) and the token budget (64), and beyond the windows."""

WINDOWS = ("gemma2", "gemma3_text", "mistral", "phi3")
"""Families whose sliding windows free blocks."""


def make_prompts() -> list[list[int]]:
    """Make 16 prompts; the last ones share prefixes with earlier ones, for the prefix cache."""
    rng = random.Random(1)
    prompts = [[rng.randrange(256) for _ in range(length)] for length in LENGTHS]
    return [*prompts, [*prompts[10], 5], [*prompts[11][:48], 6, 7], prompts[11], prompts[0]]


def as_tokens(prompts: list[list[int]]) -> list[dict[str, list[int]]]:
    """Return prompts of token ids."""
    return [{"prompt_token_ids": prompt} for prompt in prompts]


@torch.inference_mode()
def hidden_states(folder: Path, prompts: list[list[int]]) -> list[torch.Tensor]:
    """Return transformers' hidden states after the last norm, [tokens, hidden] for each prompt."""
    model = reference_model(folder).base_model
    return [model(torch.tensor([prompt])).last_hidden_state[0] for prompt in prompts]


def check_equal(found: Any, expected: torch.Tensor) -> None:
    """Compare a list or a tensor within 1e-4."""
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_hidden_state_equals_transformers(
    family: str, family_checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batched or one by one, chunked, cached and preempted prompts get the last hidden state of transformers."""
    folder, prompts = family_checkpoint(family), make_prompts()
    cut: list[str] = []
    schedule = Scheduler.schedule

    def counting(scheduler: Scheduler) -> SchedulerOutput:
        output = schedule(scheduler)
        cut.extend(output.cut_short)
        return output

    monkeypatch.setattr(Scheduler, "schedule", counting)
    llm = LLM(str(folder), runner="pooling", dtype="float32", max_num_batched_tokens=64, max_num_seqs=8)
    expected = [states[-1] for states in hidden_states(folder, prompts)]
    raw = PoolingParams(normalize=False)
    for output, vector in zip(llm.embed(as_tokens(prompts), pooling_params=raw), expected, strict=True):
        check_equal(output.outputs.embedding, vector)
    assert cut, "no prompt was computed in chunks"
    for prompt, vector in list(zip(prompts, expected, strict=True))[::3]:
        (output,) = llm.embed(as_tokens([prompt]))
        check_equal(output.outputs.embedding, torch.nn.functional.normalize(vector, dim=0))
        assert output.num_cached_tokens == (len(prompt) - 1) // 16 * 16 or family in (
            "gemma2",
            "gemma3_text",
            "mistral",
            "phi3",
        )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling_type", ["MEAN", "CLS"])
def test_other_kinds_of_pooling_equal_transformers(
    family: str, pooling_type: str, family_checkpoint: Callable[[str], Path]
) -> None:
    """The mean of all hidden states, or the first one, in mixed batches without chunks."""
    folder, prompts = family_checkpoint(family), make_prompts()
    config = {"pooling_type": pooling_type, "normalize": False}
    llm = LLM(str(folder), runner="pooling", dtype="float32", pooler_config=config, max_num_seqs=8)
    for output, states in zip(llm.embed(as_tokens(prompts)), hidden_states(folder, prompts), strict=True):
        check_equal(output.outputs.embedding, states.mean(0) if pooling_type == "MEAN" else states[0])
        assert output.num_cached_tokens == 0


@pytest.mark.parametrize("pooling_type", ["LAST", "ALL"])
def test_the_hidden_state_of_each_token(pooling_type: str, family_checkpoint: Callable[[str], Path]) -> None:
    """`token_embed` returns the hidden states of all tokens, also those that are in the prefix cache."""
    folder, prompts = family_checkpoint("qwen2"), make_prompts()
    llm = LLM(
        str(folder),
        runner="pooling",
        dtype="float32",
        pooler_config={"pooling_type": pooling_type},
        enable_chunked_prefill=False,
    )
    raw = PoolingParams(normalize=False)
    for _ in range(2):
        outputs = llm.encode(as_tokens(prompts), raw, pooling_task="token_embed")
        for output, states in zip(outputs, hidden_states(folder, prompts), strict=True):
            check_equal(output.outputs.data, states)


def test_requests_of_a_batch_can_differ(family_checkpoint: Callable[[str], Path]) -> None:
    """Requests of one step have their own `normalize` and `dimensions`."""
    folder, prompts = family_checkpoint("qwen2"), make_prompts()[5:8]
    llm = LLM(str(folder), runner="pooling", dtype="float32", hf_overrides={"is_matryoshka": True})
    params = [PoolingParams(normalize=False), PoolingParams(dimensions=8), PoolingParams(dimensions=4, normalize=False)]
    outputs = llm.embed(as_tokens(prompts), pooling_params=params)
    whole, normalized, cut = (states[-1] for states in hidden_states(folder, prompts))
    check_equal(outputs[0].outputs.embedding, whole)
    check_equal(outputs[1].outputs.embedding, torch.nn.functional.normalize(normalized[:8], dim=0))
    check_equal(outputs[2].outputs.embedding, cut[:4])
