"""Tests that a greedy request gets the same tokens alone and in any batch."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracellm import LLM, SamplingParams
from tracellm.engine.core.kv_cache.kv_cache_manager import KVCacheManager

MODEL = Path(__file__).parents[1] / "fixtures" / "tiny-random-qwen2"
MAX_MODEL_LEN = 96
BLOCK = 16
NEAR = 1e-4
"""Largest difference of two log probabilities that counts as a tie."""


@pytest.fixture(scope="module")
def alone() -> Callable[[list[int], int], list[int]]:
    """Return a request's tokens in an engine of its own, computed in one chunk without caching."""
    llm = LLM(
        str(MODEL),
        dtype="float32",
        max_model_len=MAX_MODEL_LEN,
        enable_prefix_caching=False,
        num_gpu_blocks_override=16,
    )
    known: dict[tuple[int, ...], list[int]] = {}

    def tokens(prompt: list[int], max_tokens: int) -> list[int]:
        if tuple(prompt) not in known:
            params = SamplingParams(
                temperature=0, max_tokens=min(30, MAX_MODEL_LEN - len(prompt)), ignore_eos=True, logprobs=2
            )
            (output,) = llm.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)
            (completion,) = output.outputs
            known[tuple(prompt)] = list(completion.token_ids[: _first_tie(completion.logprobs)])
        return known[tuple(prompt)][:max_tokens]

    return tokens


def _first_tie(positions) -> int:
    """Return the number of tokens before the first tie."""
    for index, position in enumerate(positions):
        first, second = sorted((one.logprob for one in position.values()), reverse=True)[:2]
        if first - second < NEAR:
            return index
    return len(positions)


def prompts_of(seed: int, count: int) -> Iterator[tuple[list[int], int]]:
    """Generate prompts, many with shared prefixes, and the number of tokens of each."""
    rng = random.Random(seed)
    shared = [rng.randrange(1, 4096) for _ in range(MAX_MODEL_LEN)]
    for _ in range(count):
        own = [rng.randrange(1, 4096) for _ in range(rng.choice([0, 1, 5]))]
        prompt = shared[: rng.choice([1, 15, 16, 17, 32, 40, 64, 80])] + own
        yield prompt, rng.randrange(1, min(30, MAX_MODEL_LEN - len(prompt)))


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(2, 6),
    spare_blocks=st.sampled_from([0, 1, 2, 8]),
    max_num_batched_tokens=st.sampled_from([8, 16, 23, 64, 512]),
    max_num_seqs=st.integers(1, 6),
    caching=st.booleans(),
    threshold=st.sampled_from([0, 0, 7]),
    policy=st.sampled_from(["fcfs", "priority"]),
)
def test_greedy_tokens_do_not_depend_on_company(
    alone, seed, count, spare_blocks, max_num_batched_tokens, max_num_seqs, caching, threshold, policy
):
    """Preemption, chunking, batching and prefix caching do not change greedy tokens."""
    llm = LLM(
        str(MODEL),
        dtype="float32",
        max_model_len=MAX_MODEL_LEN,
        block_size=BLOCK,
        num_gpu_blocks_override=MAX_MODEL_LEN // BLOCK + 1 + spare_blocks,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        enable_prefix_caching=caching,
        long_prefill_token_threshold=threshold,
        scheduling_policy=policy,
    )
    for again in range(2):  # much of it is cached the second time
        requests = list(prompts_of(seed, count))
        outputs = llm.generate(
            [{"prompt_token_ids": prompt} for prompt, _ in requests],
            [SamplingParams(temperature=0, max_tokens=most, ignore_eos=True) for _, most in requests],
            use_tqdm=False,
            **({"priority": [index % 3 for index in range(count)]} if policy == "priority" else {}),
        )
        for (prompt, most), output in zip(requests, outputs, strict=True):
            expected = alone(prompt, most)
            assert output.outputs[0].token_ids[: len(expected)] == expected, f"time {again}: {prompt}"
        scheduler = llm.llm_engine.engine_core.engine_core.scheduler  # type: ignore[attr-defined]
        manager: KVCacheManager = scheduler.kv_cache_manager
        assert manager.block_pool.get_num_free_blocks() == MAX_MODEL_LEN // BLOCK + spare_blocks
