"""Tests of models with sliding windows through `LLM`: fewer blocks, the same tokens, and refusals.

test_against_transformers.py compares the tokens with transformers'.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import make_checkpoint
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.core.kv_cache.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec

GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)


def make_llm(folder: Path, **settings: Any) -> LLM:
    """Make a float32 engine with steps of 32 tokens."""
    usual: dict[str, Any] = {"dtype": "float32", "max_num_batched_tokens": 32, "max_num_seqs": 4}
    return LLM(str(folder), **(usual | settings))


def scheduler_of(llm: LLM) -> Any:
    """Return the LLM's scheduler."""
    return llm.llm_engine.engine_core.engine_core.scheduler  # type: ignore[attr-defined]


def generate(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    """Return the tokens generated for each prompt."""
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], GREEDY)
    return [list(output.outputs[0].token_ids) for output in outputs]


def make_prompts(*lengths: int) -> list[list[int]]:
    """Make random prompts of these lengths."""
    rng = random.Random(2)
    return [[rng.randrange(256) for _ in range(length)] for length in lengths]


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        ("qwen2", [FullAttentionSpec]),
        ("mistral", [SlidingWindowSpec]),
        ("gemma2", [SlidingWindowSpec, SlidingWindowSpec, FullAttentionSpec]),
        ("gemma3_text", [SlidingWindowSpec, SlidingWindowSpec, SlidingWindowSpec, FullAttentionSpec]),
    ],
)
def test_layers_that_keep_the_same_tokens_are_in_one_group(
    family: str, kinds: list[type], family_checkpoint: Callable[[str], Path]
) -> None:
    """Layers are grouped by kind of attention and share tensors, and the minimum memory holds the longest request."""
    llm = make_llm(family_checkpoint(family), max_num_seqs=1)
    config = llm.llm_engine.engine_core.engine_core.kv_cache_config  # type: ignore[attr-defined]
    assert [type(group.kv_cache_spec) for group in config.kv_cache_groups] == kinds
    names = [name for group in config.kv_cache_groups for name in group.layer_names]
    assert sorted(names) == sorted(name for tensor in config.kv_cache_tensors for name in tensor.shared_by)
    assert len(config.kv_cache_tensors) == max(len(group.layer_names) for group in config.kv_cache_groups)
    assert len(generate(llm, make_prompts(230))[0]) == 20


def test_the_hybrid_manager_changes_the_blocks_and_not_the_tokens(family_checkpoint: Callable[[str], Path]) -> None:
    """Groups, preemptions and caching do not change a model's tokens."""
    prompts = make_prompts(90, 40, 12, 70, 90)
    prompts.append([*prompts[0][:64], 1, 2, 3])
    said = []
    for settings in (
        {"num_gpu_blocks_override": 200},
        {"num_gpu_blocks_override": 34},
        {"num_gpu_blocks_override": 34, "enable_prefix_caching": False},
        {"num_gpu_blocks_override": 12, "disable_hybrid_kv_cache_manager": True},
    ):
        llm = make_llm(family_checkpoint("gemma3_text"), **settings)
        manager = scheduler_of(llm).kv_cache_manager
        groups = 1 if "disable_hybrid_kv_cache_manager" in settings else 4
        assert manager.num_kv_cache_groups == groups
        said += [generate(llm, prompts), [generate(llm, [prompt])[0] for prompt in prompts]]
        assert manager.usage == 0
        assert manager.block_pool.null_block.ref_cnt == 0
    assert all(tokens == said[0] for tokens in said)
    assert len({tuple(tokens) for tokens in said[0]}) == len(prompts)


def test_a_long_text_runs_in_the_blocks_of_its_window(family_checkpoint: Callable[[str], Path]) -> None:
    """230 tokens fit in 5 blocks of 16 with a window of 24, and need 15 blocks with full attention."""
    prompts = make_prompts(210)
    (alone,) = generate(make_llm(family_checkpoint("mistral"), num_gpu_blocks_override=6), prompts)
    assert [alone] == generate(make_llm(family_checkpoint("mistral"), num_gpu_blocks_override=100), prompts)
    with pytest.raises(InvalidRequestError, match=r"needs 15 KV cache blocks .* has 5"):
        generate(make_llm(family_checkpoint("qwen2"), num_gpu_blocks_override=6), prompts)


@pytest.mark.parametrize("family", ["mistral", "gemma2"])
def test_a_prefix_is_found_where_only_its_end_is_kept(family: str, family_checkpoint: Callable[[str], Path]) -> None:
    """A new request reuses the cached end of a prefix, after most of its windowed blocks were freed."""
    llm = make_llm(family_checkpoint(family), num_gpu_blocks_override=40)
    (prompt,) = make_prompts(100)
    first = generate(llm, [prompt])
    (again,) = llm.generate([{"prompt_token_ids": prompt}], GREEDY)
    assert again.num_cached_tokens == 96
    assert [list(again.outputs[0].token_ids)] == first


def test_gemma_in_float16(tmp_path: Path) -> None:
    """Gemma in float16 is refused, and a float16 checkpoint runs in bfloat16, as its values overflow float16."""
    folder = make_checkpoint(tmp_path, "gemma2", dtype="float16")
    with pytest.raises(EngineError, match=r"one of auto, .* for a model of the type `gemma2`, got 'half'"):
        LLM(str(folder), dtype="half")
    llm = LLM(str(folder))
    assert llm.llm_engine.vllm_config.model_config.dtype == torch.bfloat16
    assert len(generate(llm, make_prompts(30))[0]) == 20
