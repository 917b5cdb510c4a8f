"""Beam searches by `LLM.beam_search` against those of vLLM 0.11.1 and of transformers, in float32."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import reference_model
from tracellm import LLM, BeamSearchParams
from tracellm.engine.config.errors import InvalidRequestError

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = [json.loads(line) for line in (FIXTURES / "beam-search.jsonl").read_text(encoding="utf-8").splitlines()]
SEARCHES = [case for case in RECORDED if "prompts" in case]


@pytest.fixture(scope="module")
def tiny() -> LLM:
    """The model of the recording."""
    return LLM(dtype="float32", max_model_len=256, num_gpu_blocks_override=512)


@pytest.mark.parametrize("case", SEARCHES, ids=[str(case["params"]) for case in SEARCHES])
def test_sequences_equal_vllms(tiny: LLM, case: dict[str, Any]) -> None:
    """The sequences of each prompt have vLLM's tokens, sums and texts, in its order."""
    outputs = tiny.beam_search(case["prompts"], BeamSearchParams(**case["params"]))
    for output, expected in zip(outputs, case["outputs"], strict=True):
        assert [(one.tokens, one.text) for one in output.sequences] == [(tokens, text) for tokens, _, text in expected]
        sums = [one.cum_logprob for one in output.sequences]
        assert sums == pytest.approx([total for _, total, _ in expected], abs=1e-3)


@torch.inference_mode()
@pytest.mark.parametrize("width", [2, 5])
def test_sequences_equal_transformers(width: int) -> None:
    """Sequences of equal length, by a random model, are those that transformers finds, with the same sums."""
    folder = FIXTURES / "tiny-random-qwen2"
    llm = LLM(str(folder), dtype="float32", max_model_len=64, num_gpu_blocks_override=128)
    prompt, steps = [11, 25, 33, 47], 6
    found = reference_model(folder).generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=steps,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        length_penalty=1.0,
        output_scores=True,
        return_dict_in_generate=True,
    )
    [output] = llm.beam_search([{"prompt_token_ids": prompt}], BeamSearchParams(width, steps, ignore_eos=True))
    assert [one.tokens for one in output.sequences] == found.sequences.tolist()
    sums = (found.sequences_scores * steps).tolist()  # transformers divides by the output's length
    assert [one.cum_logprob for one in output.sequences] == pytest.approx(sums, abs=1e-4)


def test_prompts_in_turn_have_the_same_sequences(tiny: LLM) -> None:
    """A limit of prompts at a time changes no output."""
    params, prompts = BeamSearchParams(2, 4), ["The capital of France is", "Hello, my name is", "What is 3 + 4?"]
    at_once, in_turn = tiny.beam_search(prompts, params), tiny.beam_search(prompts, params, concurrency_limit=2)
    assert [[one.tokens for one in output.sequences] for output in at_once] == [
        [one.tokens for one in output.sequences] for output in in_turn
    ]


@pytest.mark.parametrize(
    ("prompts", "params", "words"),
    [
        ("a", BeamSearchParams(0, 4), "^beam_width must be at least 1, got 0."),
        ("a", BeamSearchParams(2, 0), "^max_tokens must be at least 1, got 0."),
        ("a", BeamSearchParams(11, 4), "Requested sample logprobs of 22, which is greater than max allowed: 20."),
        (
            ["a", {"prompt_token_ids": [1] * 250}],
            BeamSearchParams(2, 7),
            r"^prompts\[1\]: This model's maximum",
        ),
        (["a", 5], BeamSearchParams(2, 7), r"^prompts\[1\]: "),
    ],
)
def test_a_search_that_cannot_run_is_refused(tiny: LLM, prompts: Any, params: BeamSearchParams, words: str) -> None:
    """A wrong width, length or prompt is named, and the LLM goes on."""
    with pytest.raises(InvalidRequestError, match=words):
        tiny.beam_search(prompts, params)
    assert len(tiny.beam_search("a", BeamSearchParams(2, 1))[0].sequences) == 2


def test_no_prompts(tiny: LLM) -> None:
    """A search of no prompts has no outputs; a limit of prompts at a time is a positive number."""
    assert tiny.beam_search([], BeamSearchParams(2, 4)) == []
    with pytest.raises(InvalidRequestError, match="`concurrency_limit` must be at least 1"):
        tiny.beam_search("a", BeamSearchParams(2, 4), concurrency_limit=-1)
