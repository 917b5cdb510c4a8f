"""Tests of a pipeline's requests with structured outputs, logprobs and aborts, against one worker."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.models.test_against_transformers import make_prompt
from tracellm import LLM, SamplingParams
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 128,
    "max_num_batched_tokens": 32,
    "num_gpu_blocks_override": 65,
    "block_size": 8,
}
"""Prompts are computed in chunks."""
PROMPTS = [{"prompt_token_ids": make_prompt(length)} for length in (3, 20, 40)]


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, LLM]]:
    """The bundled model with one worker, with two that share layers, and with two stages."""
    engines = {
        "one": LLM(**SETTINGS),
        "heads": LLM(tensor_parallel_size=2, **SETTINGS),
        "stages": LLM(pipeline_parallel_size=2, **SETTINGS),
    }
    yield engines
    for engine in engines.values():
        engine.llm_engine.engine_core.shutdown()


@pytest.mark.parametrize("kind", ["heads", "stages"])
def test_logprobs_equal_those_of_one_worker(kind: str, engines: dict[str, LLM]) -> None:
    """Logprobs of sampled tokens differ by less than 1e-5 in float32; others, also in chunks, by rounding."""
    params = SamplingParams(temperature=0, max_tokens=8, logprobs=3, prompt_logprobs=2, ignore_eos=True)
    outputs: Any = [engines[name].generate(PROMPTS, params, use_tqdm=False) for name in ("one", kind)]
    one, several = outputs
    for expected, output in zip(one, several, strict=True):
        assert output.outputs[0].token_ids == expected.outputs[0].token_ids
        for token, wanted, logprobs in zip(
            output.outputs[0].token_ids, expected.outputs[0].logprobs, output.outputs[0].logprobs, strict=True
        ):
            assert logprobs[token].logprob == pytest.approx(wanted[token].logprob, rel=0, abs=1e-5)
        positions = [*expected.prompt_logprobs[1:], *expected.outputs[0].logprobs]
        found = [*output.prompt_logprobs[1:], *output.outputs[0].logprobs]
        assert len(found) == len(positions) == len(expected.prompt_token_ids) - 1 + 8
        for wanted, logprobs in zip(positions, found, strict=True):
            assert logprobs.keys() == wanted.keys()
            values = [logprobs[token].logprob for token in wanted]
            assert values == pytest.approx([one.logprob for one in wanted.values()], rel=1e-5, abs=1e-5)


def test_a_pipeline_follows_grammars(engines: dict[str, LLM]) -> None:
    """Structured outputs of several requests at once have their forms, and the tokens of one worker."""
    forms: list[dict[str, Any]] = [
        {"choice": ["red", "green"]},
        {"regex": "[0-9]{4}"},
        {"regex": '\\{"ok": (true|false)\\}'},
    ]
    params = [
        SamplingParams(temperature=0, max_tokens=20, structured_outputs=StructuredOutputsParams(**form))
        for form in forms
    ]
    one, several = (engines[name].generate(["a", "b", "c"], params, use_tqdm=False) for name in ("one", "stages"))
    choice, digits, text = (output.outputs[0].text for output in several)
    assert [output.outputs[0].token_ids for output in several] == [output.outputs[0].token_ids for output in one]
    assert choice in ("red", "green")
    assert digits.isdecimal()
    assert len(digits) == 4
    assert isinstance(json.loads(text)["ok"], bool)


def test_a_request_is_aborted_while_its_step_is_in_flight(engines: dict[str, LLM]) -> None:
    """Its blocks are freed, no output of it follows, and the others get the tokens of one worker."""
    params = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
    expected = [output.outputs[0].token_ids for output in engines["one"].generate(PROMPTS, params, use_tqdm=False)]
    engine = engines["stages"].llm_engine
    core = engine.engine_core.engine_core  # type: ignore[attr-defined]  # of an `InprocClient`
    free = core.get_num_free_blocks()
    for name, prompt in enumerate(PROMPTS):
        engine.add_request(str(name), prompt, params)
    while not any("1" in step.num_scheduled_tokens for _, step in core.batch_queue):
        engine.step()
    engine.abort_request(["1"])
    found: dict[str, Any] = {}
    while engine.has_unfinished_requests():
        found |= {output.request_id: output.outputs[0].token_ids for output in engine.step()}
    while core.has_work():
        core.step_fn()
    assert found == {"0": expected[0], "2": expected[2]}
    assert core.get_num_free_blocks() == free
