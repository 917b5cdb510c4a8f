"""Tests of greedy generation with pictures through `LLM` against transformers', in float32."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.multimodal.pictures import make_picture, make_prompt, make_sound
from tests.multimodal_checkpoints import AUDIO_TOKEN, IMAGE_TOKEN, reference_model
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.sched.scheduler import Scheduler
from tracellm.engine.frontend.outputs import RequestOutput

FAMILIES = ["llava", "qwen2_5_vl", "qwen2_audio", "qwen2_vl", "qwen3_vl"]
NEW_TOKENS = 8
PLACEHOLDERS = [IMAGE_TOKEN, AUDIO_TOKEN]
"""Tokens that are never generated: transformers would want items for them."""
PARAMS = SamplingParams(
    temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True, logit_bias=dict.fromkeys(PLACEHOLDERS, -100)
)


def make_prompts(family: str) -> list[dict[str, Any]]:
    """Make prompts of text, one item and several, with equal items and prefixes among them."""
    sizes, seconds = ((46, 30), (90, 20), (9, 9), (20, 70), (46, 30)), (0.5, 0.9, 0.1, 1.0, 0.5)
    items: list[Any] = [make_picture(seed, *size) for seed, size in enumerate(sizes)]
    if family == "qwen2_audio":
        items = [make_sound(seed, length) for seed, length in enumerate(seconds)]
    one, wide, small, tall, other = items
    return [
        make_prompt(5, 6, 7, 8),
        make_prompt(5, one, 7),
        make_prompt(one, 9, 10, 11, wide),
        make_prompt(3, small, small, 4, tall, 5),
        make_prompt(*range(40)),
        make_prompt(5, one, 7, 8, 9),
        make_prompt(*range(30), wide, *range(20)),
        make_prompt(tall),
        make_prompt(5, other, 7),
        make_prompt(one, 9, 10, 11, wide),
    ]


def tensors_of(folder: Path, items: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the tensors that transformers makes of a prompt's items."""
    from transformers import AutoFeatureExtractor, AutoImageProcessor

    if "image" in items:
        return dict(AutoImageProcessor.from_pretrained(folder, backend="pil")(items["image"], return_tensors="pt"))
    extractor = AutoFeatureExtractor.from_pretrained(folder)
    made = extractor(
        items["audio"], sampling_rate=16_000, return_attention_mask=True, padding="max_length", return_tensors="pt"
    )
    return {"input_features": made["input_features"], "feature_attention_mask": made["attention_mask"]}


@torch.inference_mode()
def likeliest(folder: Path, prompts: list[dict[str, Any]], outputs: list[RequestOutput]) -> list[list[int]]:
    """Return transformers' most likely token at each position of the outputs, given all tokens before it."""
    model, found = reference_model(folder), []
    for prompt, output in zip(prompts, outputs, strict=True):
        assert output.prompt_token_ids is not None
        start, generated = len(output.prompt_token_ids), list(output.outputs[0].token_ids)
        ids = torch.tensor([[*output.prompt_token_ids, *generated]])
        tensors = tensors_of(folder, items) if (items := prompt.get("multi_modal_data")) else {}
        if "image_grid_thw" in tensors:
            tensors["mm_token_type_ids"] = (ids == IMAGE_TOKEN).int()
        logits = model(input_ids=ids, **tensors).logits[0]
        logits[:, PLACEHOLDERS] = -torch.inf
        found.append(logits[start - 1 : -1].argmax(-1).tolist())
    return found


def tokens(outputs: list[RequestOutput]) -> list[list[int]]:
    """Return the generated tokens."""
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_equal_transformers(
    family: str, vl_checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests with pictures get transformers' tokens in mixed batches, in chunks, cached, preempted and resumed."""
    folder, prompts = vl_checkpoint(family), make_prompts(family)
    resumed: list[str] = []
    schedule = Scheduler.schedule

    def counting(scheduler: Scheduler) -> SchedulerOutput:
        output = schedule(scheduler)
        resumed.extend(output.scheduled_cached_reqs.resumed_req_ids)
        return output

    monkeypatch.setattr(Scheduler, "schedule", counting)
    settings: dict[str, Any] = {"dtype": "float32", "max_model_len": 160, "block_size": 8}
    llm = LLM(folder, max_num_batched_tokens=24, max_num_seqs=8, num_gpu_blocks_override=24, **settings)
    outputs = llm.generate(prompts, PARAMS, use_tqdm=False)
    expected = likeliest(folder, prompts, outputs)
    assert tokens(outputs) == expected
    assert len({tuple(one) for one in expected}) > 5, "outputs so alike would prove nothing"
    assert resumed
    again = llm.generate(prompts, PARAMS, use_tqdm=False)
    assert tokens(again) == expected
    alone = LLM(folder, enable_prefix_caching=False, **settings)
    assert tokens([alone.generate(prompt, PARAMS, use_tqdm=False)[0] for prompt in prompts]) == expected


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("family", FAMILIES)
def test_four_workers_give_the_same_tokens(family: str, vl_checkpoint: Callable[[str], Path]) -> None:
    """Two stages of two workers each, of which the first runs the encoder, give transformers' tokens."""
    folder, prompts = vl_checkpoint(family), make_prompts(family)
    workers: dict[str, Any] = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    llm = LLM(folder, dtype="float32", max_model_len=160, max_num_batched_tokens=40, **workers)
    outputs = llm.generate(prompts, PARAMS, use_tqdm=False)
    llm.llm_engine.engine_core.shutdown()
    assert tokens(outputs) == likeliest(folder, prompts, outputs)


@pytest.mark.parametrize("options", [{"multiprocess_mode": True}, {"async_scheduling": True}], ids=["process", "async"])
def test_every_client_gives_the_same_tokens(options: dict[str, Any], vl_checkpoint: Callable[[str], Path]) -> None:
    """Pictures sent to an engine core in another process, and asynchronous scheduling, give the same tokens."""
    folder, prompts = vl_checkpoint("qwen2_vl"), make_prompts("qwen2_vl")
    settings: dict[str, Any] = {"dtype": "float32", "max_model_len": 160, "max_num_batched_tokens": 40}
    llm = LLM(folder, max_num_seqs=8, **settings, **options)
    outputs = llm.generate(prompts, PARAMS, use_tqdm=False)
    assert tokens(outputs) == likeliest(folder, prompts, outputs)
    llm.llm_engine.engine_core.shutdown()


def test_named_pictures_count_as_equal(vl_checkpoint: Callable[[str], Path]) -> None:
    """Pictures with one name share cached blocks; one of another size under the name is refused."""
    llm = LLM(vl_checkpoint("qwen2_vl"), dtype="float32", max_model_len=160, block_size=8, mm_processor_cache_gb=0)
    names = {"multi_modal_uuids": {"image": ["mine"]}}
    params = SamplingParams(temperature=0, max_tokens=2)
    first, second, other = (
        make_prompt(picture, 3) | names for picture in (make_picture(1), make_picture(2), make_picture(3, 90, 20))
    )
    outputs = [llm.generate(prompt, params, use_tqdm=False)[0] for prompt in (first, second)]
    assert [output.num_cached_tokens for output in outputs] == [0, 24]
    with pytest.raises(InvalidRequestError, match=r"named 'mine' .* has 22 tokens, but an earlier one .* had 24"):
        llm.generate(other, params, use_tqdm=False)


def test_an_image_must_fit_into_a_step_if_it_is_not_chunked(vl_checkpoint: Callable[[str], Path]) -> None:
    """`disable_chunked_mm_input` needs a token budget for the largest image."""
    with pytest.raises(EngineError, match="must be at least 64, the tokens of the largest one"):
        LLM(vl_checkpoint("qwen2_vl"), disable_chunked_mm_input=True, max_num_batched_tokens=63, max_num_seqs=2)


def test_the_prefix_cache_tells_pictures_apart(vl_checkpoint: Callable[[str], Path]) -> None:
    """A prompt with another picture of the same size has no cached block; one with the same picture has."""
    llm = LLM(vl_checkpoint("qwen2_vl"), dtype="float32", max_model_len=160, block_size=8)
    params = SamplingParams(temperature=0, max_tokens=2)
    pictures = make_picture(1), make_picture(2), make_picture(1)
    found = [llm.generate(make_prompt(one, 3), params, use_tqdm=False)[0].num_cached_tokens for one in pictures]
    assert found == [0, 0, 24]
