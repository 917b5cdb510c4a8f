"""Greedy generation through `LLM` against transformers' own, float32."""

import random
from pathlib import Path

import pytest
import torch

from tests.checkpoints import reference_model
from tracellm import LLM, SamplingParams

LENGTHS = [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 60, 100]
"""Around the block size (16) and the token budget (64), where something can go wrong."""
NEW_TOKENS = 12


def make_prompts() -> list[list[int]]:
    """24 prompts; the last three begin as earlier ones do, so that the prefix cache has something to give."""
    rng = random.Random(1)
    prompts = [[rng.randrange(256) for _ in range(length)] for length in LENGTHS + rng.choices(LENGTHS, k=9)]
    return [*prompts, [*prompts[10], 5], [*prompts[11][:48], 6, 7], prompts[11]]


def reference_tokens(folder: Path, prompts: list[list[int]]) -> list[list[int]]:
    """What transformers generates, one prompt at a time, past any end-of-sequence token."""
    model = reference_model(folder)
    model.generation_config.eos_token_id = None
    arguments = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        rows = [model.generate(torch.tensor([p]), attention_mask=torch.ones(1, len(p)), **arguments) for p in prompts]
    return [row[0, len(prompt) :].tolist() for row, prompt in zip(rows, prompts, strict=True)]


def tokens(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    """What our engine generates for all of them together."""
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("architecture", ["qwen2", "opt"])
def test_greedy_tokens_equal_transformers(architecture, request):
    """Batched in one call and one by one, chunked, cached and preempted: the tokens are those of transformers."""
    folder = request.getfixturevalue(f"{architecture}_checkpoint")
    prompts = make_prompts()
    expected = reference_tokens(folder, prompts)
    assert len({tuple(row) for row in expected}) > len(prompts) // 2  # the checkpoint does not always say the same
    llm = LLM(str(folder), dtype="float32", max_num_batched_tokens=64, max_num_seqs=8, num_gpu_blocks_override=20)
    assert tokens(llm, prompts) == expected
    assert [tokens(llm, [prompt])[0] for prompt in prompts] == expected
