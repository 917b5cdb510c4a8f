"""Tests of constraints for models that reason: they apply after the reasoning."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from tracellm import LLM, SamplingParams
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

CHOICES = ["yes", "no"]


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def reasoner(request: Any, qwen2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """A model whose tokenizer has the tokens around reasoning, with and without async scheduling."""
    folder = tmp_path_factory.mktemp("reasoner") / "model"
    shutil.copytree(qwen2_checkpoint, folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.save_pretrained(folder)
    settings: dict[str, Any] = {"dtype": "float32", "max_model_len": 128, "async_scheduling": request.param}
    return LLM(str(folder), reasoning_parser="qwen3", **settings)


def generate(llm: LLM, prompt: str, bias: float, **others: Any) -> Any:
    """Return the completion of a prompt, constrained to one of two words, with a bias for the end of the reasoning."""
    end = llm.get_tokenizer().convert_tokens_to_ids("</think>")
    params = SamplingParams(
        **{"temperature": 0, "max_tokens": 12} | others,
        logit_bias={end: bias},
        skip_special_tokens=False,
        structured_outputs=StructuredOutputsParams(choice=CHOICES),
    )
    return llm.generate(prompt, params, use_tqdm=False)[0].outputs[0]


def test_the_constraint_waits_for_the_end_of_the_reasoning(reasoner: LLM) -> None:
    """Reasoning is free, and the text after it is constrained, though the bias asks for another end."""
    completion = generate(reasoner, "<think>", 100.0)
    assert completion.text.removeprefix("</think>") in CHOICES
    assert completion.finish_reason == "stop"
    drawn = [generate(reasoner, "<think>", 7.0, temperature=3.0, seed=seed, max_tokens=60) for seed in range(6)]
    parts = [completion.text.partition("</think>") for completion in drawn if completion.finish_reason == "stop"]
    assert any(reasoning for reasoning, _, _ in parts)
    assert all(answer in CHOICES for _, end, answer in parts if end)


def test_reasoning_without_an_end(reasoner: LLM) -> None:
    """A text without the end of the reasoning is never constrained."""
    completion = generate(reasoner, "<think>", -100.0, ignore_eos=True)
    assert completion.finish_reason == "length"
    assert not completion.text.startswith(tuple(CHOICES))


def test_a_prompt_that_ends_the_reasoning(reasoner: LLM) -> None:
    """After a prompt that ends the reasoning, the constraint applies at once; one in the middle changes nothing."""
    assert generate(reasoner, "<think>\n\n</think>\n\n", -100.0).text in CHOICES
    assert generate(reasoner, "<think></think>Hello", -100.0).text not in CHOICES


def test_a_model_that_does_not_reason(llm: LLM) -> None:
    """Without a reasoning parser the constraint applies at once."""
    params = SamplingParams(temperature=0, structured_outputs=StructuredOutputsParams(choice=CHOICES))
    assert llm.generate("<think>", params, use_tqdm=False)[0].outputs[0].text in CHOICES
