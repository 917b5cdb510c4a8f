"""Tests of tensor parallelism: the tokens of several workers, and each worker's part of the model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import FAMILIES, make_checkpoint, reference_model
from tests.engine.models.test_against_transformers import make_prompt
from tests.engine.multimodal.test_against_transformers import tokens
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = [{"prompt_token_ids": make_prompt(length)} for length in (1, 2, 5, 16, 17, 33, 60, 60)]
SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 96,
    "max_num_batched_tokens": 24,
    "max_num_seqs": 6,
    "block_size": 8,
    "num_gpu_blocks_override": 28,
    "skip_tokenizer_init": True,
}
"""Prompts are computed in chunks, and requests are preempted."""


@pytest.fixture
def start() -> Iterator[Callable[..., LLM]]:
    """A function that starts an engine, whose workers end with the test."""
    engines: list[LLM] = []

    def start(folder: Path, **settings: Any) -> LLM:
        engines.append(LLM(folder, **SETTINGS | settings))
        return engines[-1]

    yield start
    for engine in engines:
        engine.llm_engine.engine_core.shutdown()


@torch.inference_mode()
def likeliest(folder: Path, outputs: list[Any]) -> list[list[int]]:
    """Return transformers' most likely token at each position of the outputs, given all tokens before it."""
    model, found = reference_model(folder), []
    for output in outputs:
        ids = [*output.prompt_token_ids, *output.outputs[0].token_ids]
        logits = model(torch.tensor([ids])).logits[0]
        found.append(logits[len(output.prompt_token_ids) - 1 : -1].argmax(-1).tolist())
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_equal_transformers(
    family: str, family_checkpoint: Callable[[str], Path], start: Callable[..., LLM]
) -> None:
    """Two workers give transformers' tokens, in chunks, preempted, and again from the prefix cache."""
    folder = family_checkpoint(family)
    llm = start(folder, tensor_parallel_size=2)
    outputs = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    expected = likeliest(folder, outputs)
    assert tokens(outputs) == expected
    assert tokens(llm.generate(PROMPTS, GREEDY, use_tqdm=False)) == expected
    assert len({tuple(one) for one in expected}) > 5, "outputs so alike would prove nothing"


@pytest.mark.parametrize("options", [{"async_scheduling": True}, {"multiprocess_mode": True}], ids=["async", "process"])
def test_four_workers_share_two_heads(
    options: dict[str, Any], qwen2_checkpoint: Path, start: Callable[..., LLM]
) -> None:
    """With more workers than key/value heads, two have the same one; sampled tokens are the same, too."""
    params = [
        GREEDY,
        SamplingParams(temperature=1, seed=3, max_tokens=12),
        SamplingParams(temperature=1, max_tokens=12),
    ]
    prompts = PROMPTS[3:6]
    one = start(qwen2_checkpoint).generate(prompts, params, use_tqdm=False)
    four = start(qwen2_checkpoint, tensor_parallel_size=4, **options).generate(prompts, params, use_tqdm=False)
    assert tokens(four) == tokens(one)


def test_each_worker_has_its_part(qwen2_checkpoint: Path, start: Callable[..., LLM]) -> None:
    """A worker holds half of the matrices and of the KV cache's heads, and all workers have as many blocks."""
    clients: list[Any] = [start(qwen2_checkpoint, tensor_parallel_size=size).llm_engine.engine_core for size in (1, 2)]
    executors = [client.engine_core.model_executor for client in clients]
    (whole,), parts = (executor.collective_rpc("get_kv_cache_spec") for executor in executors)
    assert [spec["model.layers.0.self_attn.attn"].num_kv_heads for spec in (whole, *parts)] == [2, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensor_parallel_size": 3}, r"Total number of attention heads \(4\) must be divisible by .* \(3\)"),
        ({"tensor_parallel_size": 0}, "`tensor_parallel_size` must be a whole number of workers, at least 1"),
        ({"tensor_parallel_size": 2, "distributed_executor_backend": "uni"}, "needs a process for each worker"),
        ({"distributed_executor_backend": "ray"}, "`uni`, `mp` or None"),
    ],
)
def test_what_cannot_be_divided_is_refused(arguments: dict[str, Any], message: str, qwen2_checkpoint: Path) -> None:
    """Uneven heads, no workers, and executors that do not fit get one message each, before a process starts."""
    with pytest.raises(EngineError, match=message):
        LLM(qwen2_checkpoint, **SETTINGS, **arguments)


def test_an_uneven_feed_forward_is_refused(tmp_path: Path) -> None:
    """A width that cannot be divided between the workers is refused by name, and no worker is left."""
    folder = make_checkpoint(tmp_path, "qwen2", intermediate_size=75)
    with pytest.raises(EngineError, match="width 75 cannot be divided evenly between 2 workers"):
        LLM(folder, **SETTINGS, tensor_parallel_size=2)
