"""Tests of tensor and pipeline parallelism: the tokens of several workers, and each worker's part of the model."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import FAMILIES, make_checkpoint, reference_model
from tests.engine.models.test_against_transformers import make_prompt
from tests.engine.multimodal.test_against_transformers import tokens
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError
from tracellm.engine.distributed.utils import get_pp_indices

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


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("family", "size", "stages"),
    [*((family, 2, 2) for family in FAMILIES), *(("qwen2", *shape) for shape in ((2, 1), (1, 2), (1, 3)))],
)
def test_greedy_tokens_equal_transformers(
    family: str, size: int, stages: int, family_checkpoint: Callable[[str], Path], start: Callable[..., LLM]
) -> None:
    """Workers that share layers, or have some each, give transformers' tokens: in chunks, preempted, cached."""
    folder = family_checkpoint(family)
    llm = start(folder, tensor_parallel_size=size, pipeline_parallel_size=stages)
    outputs = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    expected = likeliest(folder, outputs)
    assert tokens(outputs) == expected
    assert tokens(llm.generate(PROMPTS, GREEDY, use_tqdm=False)) == expected
    assert len({tuple(one) for one in expected}) > 5, "outputs so alike would prove nothing"


@pytest.mark.parametrize(
    "options",
    [
        {"tensor_parallel_size": 4, "async_scheduling": True},
        {"tensor_parallel_size": 4, "multiprocess_mode": True},
        {"pipeline_parallel_size": 3, "multiprocess_mode": True},
    ],
    ids=["heads-async", "heads-process", "stages-process"],
)
def test_every_client_gives_the_same_tokens(
    options: dict[str, Any], qwen2_checkpoint: Path, start: Callable[..., LLM]
) -> None:
    """Sampled tokens are those of one worker: of four that share two key/value heads, and of three stages."""
    params = [
        GREEDY,
        SamplingParams(temperature=1, seed=3, max_tokens=12),
        SamplingParams(temperature=1, seed=4, max_tokens=12, logprobs=2, prompt_logprobs=1),
    ]
    prompts = PROMPTS[3:6]
    one = start(qwen2_checkpoint).generate(prompts, params, use_tqdm=False)
    several = start(qwen2_checkpoint, **options).generate(prompts, params, use_tqdm=False)
    assert tokens(several) == tokens(one)
    assert [output.prompt_logprobs is None for output in several] == [True, True, False]


@pytest.mark.usefixtures("forked_workers")
def test_stages_overlap(qwen2_checkpoint: Path, start: Callable[..., LLM]) -> None:
    """Two stages work on two steps at once, of different requests, and no request is in both while it decodes."""
    llm = start(qwen2_checkpoint, pipeline_parallel_size=2, max_num_seqs=2, max_num_batched_tokens=16)
    client: Any = llm.llm_engine.engine_core
    scheduler, steps = client.engine_core.scheduler, []
    schedule = scheduler.schedule

    def record_step() -> Any:
        steps.append(schedule())
        return steps[-1]

    scheduler.schedule = record_step
    llm.generate([{"prompt_token_ids": make_prompt(16)} for _ in range(2)], GREEDY, use_tqdm=False)
    requests = [sorted(step.num_scheduled_tokens) for step in steps if step.num_scheduled_tokens]
    assert len(requests) == 24, "each of two requests has a step for each of 12 tokens"
    assert all(one != other for one, other in pairwise(requests)), "they take turns"


@pytest.mark.usefixtures("forked_workers")
def test_each_worker_has_its_part(qwen2_checkpoint: Path, start: Callable[..., LLM]) -> None:
    """Each of 2 x 2 workers stores one of two heads; the second stage has the last of three layers."""
    client: Any = start(qwen2_checkpoint, tensor_parallel_size=2, pipeline_parallel_size=2).llm_engine.engine_core
    specs = client.engine_core.model_executor.collective_rpc("get_kv_cache_spec")
    layers = [[name.split(".")[2] for name in spec] for spec in specs]
    assert layers == [["0", "1"], ["0", "1"], ["2"], ["2"]]
    assert {layer.num_kv_heads for spec in specs for layer in spec.values()} == {1}


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [(4, 1, [4]), (4, 2, [2, 2]), (3, 2, [2, 1]), (7, 3, [2, 3, 2]), (8, 3, [3, 3, 2]), (9, 4, [2, 2, 3, 2])],
)
def test_layers_are_divided_as_in_vllm(layers: int, stages: int, expected: list[int]) -> None:
    """Layers left over go to the stages before the last, from the back."""
    bounds = [get_pp_indices(layers, rank, stages) for rank in range(stages)]
    assert [end - start for start, end in bounds] == expected
    assert [start for start, _ in bounds[1:]] == [end for _, end in bounds[:-1]]


def test_a_partition_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """VLLM_PP_LAYER_PARTITION gives the numbers of layers, and one that does not fit is refused."""
    monkeypatch.setenv("VLLM_PP_LAYER_PARTITION", "1,3")
    assert [get_pp_indices(4, rank, 2) for rank in range(2)] == [(0, 1), (1, 4)]
    for partition in ("1,3,0", "4", "1;3", "2,1", ""):
        monkeypatch.setenv("VLLM_PP_LAYER_PARTITION", partition)
        with pytest.raises(EngineError, match=r"must be 2 numbers .* 4 in all"):
            get_pp_indices(4, 0, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensor_parallel_size": 3}, r"Total number of attention heads \(4\) must be divisible by .* \(3\)"),
        ({"tensor_parallel_size": 0}, "`tensor_parallel_size` must be a whole number of workers, at least 1"),
        ({"tensor_parallel_size": 2, "distributed_executor_backend": "uni"}, "needs a process for each worker"),
        ({"pipeline_parallel_size": 4}, "`pipeline_parallel_size=4` needs a layer for each stage, and the model has 3"),
        ({"pipeline_parallel_size": 2, "async_scheduling": True}, "not yet compatible with pipeline_parallel_size > 1"),
        ({"distributed_executor_backend": "slurm"}, "`uni`, `mp`, `ray`, `external_launcher` or None"),
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
