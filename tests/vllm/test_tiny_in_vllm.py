"""One bundled model: a real vLLM, transformers and this engine give the same greedy tokens.

The real vLLM runs in an environment of its own (tests/real_vllm.py).
"""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.real_vllm import InOneProcess
from tests.vllm.attach_work import MAX_TOKENS, TEXTS
from tracellm import LLM, SamplingParams

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tracellm" / "tiny"


@pytest.fixture(scope="module")
def ours() -> list[list[int]]:
    """Return the tokens that this engine generates in float32 for each prompt."""
    llm = LLM(dtype="float32", max_model_len=256, num_gpu_blocks_override=64)
    outputs = llm.generate(TEXTS, SamplingParams(temperature=0, max_tokens=MAX_TOKENS))
    return [list(output.outputs[0].token_ids) for output in outputs]


def test_as_in_transformers(ours: list[list[int]]) -> None:
    """transformers, one prompt at a time, gives the tokens of this engine's batch."""
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    for prompt, tokens in zip(TEXTS, ours, strict=True):
        inputs = tokenizer(prompt, return_tensors="pt")
        generated = model.generate(**inputs, do_sample=False, max_new_tokens=MAX_TOKENS)
        assert generated[0, inputs["input_ids"].shape[1] :].tolist() == tokens, prompt


def test_as_in_a_real_vllm(ours: list[list[int]], in_one_process: InOneProcess) -> None:
    """A real vLLM loads the bundled model from its folder and generates the same tokens."""
    assert in_one_process.results["texts"] == ours
