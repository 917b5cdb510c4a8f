"""The embedded model is one model: a real vLLM, transformers and this engine give the same greedy tokens.

The real vLLM runs in an environment of its own (tests/real_vllm.py).
"""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.real_vllm import ask_vllm
from tracellm import LLM, SamplingParams

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tracellm" / "tiny"
PROMPTS = [
    "Hello, my name is",
    "The capital of France is",
    "The largest ocean is",
    "中国的首都是",
    "What is 3 + 4?",
    "The KV cache is",
]
MAX_TOKENS = 24

ASK_VLLM = """
import json, sys
from vllm import LLM, SamplingParams
model, prompts, max_tokens, result = json.loads(sys.argv[1])
llm = LLM(model=model, dtype="float32", enforce_eager=True, max_model_len=256)
outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=max_tokens))
with open(result, "w") as file:
    json.dump([list(output.outputs[0].token_ids) for output in outputs], file)
"""


@pytest.fixture(scope="module")
def ours() -> list[list[int]]:
    """What this engine generates in float32, token ids for each prompt."""
    llm = LLM(dtype="float32", max_model_len=256, num_gpu_blocks_override=64)
    outputs = llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=MAX_TOKENS))
    return [list(output.outputs[0].token_ids) for output in outputs]


def test_as_in_transformers(ours: list[list[int]]) -> None:
    """transformers, one prompt at a time, generates the tokens that this engine generates for all together."""
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    model = AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    for prompt, tokens in zip(PROMPTS, ours, strict=True):
        inputs = tokenizer(prompt, return_tensors="pt")
        generated = model.generate(**inputs, do_sample=False, max_new_tokens=MAX_TOKENS)
        assert generated[0, inputs["input_ids"].shape[1] :].tolist() == tokens, prompt


def test_as_in_a_real_vllm(ours: list[list[int]], tmp_path: Path) -> None:
    """A real vLLM loads the embedded model from its folder and generates the same tokens."""
    result = tmp_path / "tokens.json"
    asked = json.dumps([str(TINY), PROMPTS, MAX_TOKENS, str(result)])
    ask_vllm(ASK_VLLM, asked, cwd=tmp_path, VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
    assert json.loads(result.read_text()) == ours
