"""Tests of greedy generation through `LLM` against transformers', in float32."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.checkpoints import FAMILIES, reference_model
from tracellm import LLM, SamplingParams
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.sched.scheduler import Scheduler

LENGTHS = [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 60, 100]
"""Lengths around the block size (16) and the token budget (64), and beyond the windows."""
NEW_TOKENS = 12
NUM_BLOCKS = {"gemma2": 40, "gemma3_text": 60, "phi3": 14}
"""Few KV cache blocks, so that requests are preempted: 20, more with several groups of layers, fewer with a window."""


def make_prompts() -> list[list[int]]:
    """Make 24 prompts; the last three share prefixes with earlier ones, for the prefix cache."""
    rng = random.Random(1)
    prompts = [[rng.randrange(256) for _ in range(length)] for length in LENGTHS + rng.choices(LENGTHS, k=9)]
    return [*prompts, [*prompts[10], 5], [*prompts[11][:48], 6, 7], prompts[11]]


def tokens(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    """Return our engine's tokens for all prompts in one call."""
    params = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)
    return [list(output.outputs[0].token_ids) for output in outputs]


@torch.inference_mode()
def likeliest(folder: Path, prompts: list[list[int]], outputs: list[list[int]]) -> list[list[int]]:
    """Return transformers' most likely token at each position of these outputs, given all tokens before it.

    They equal the outputs exactly if greedy generation in transformers gives the same outputs.
    """
    model = reference_model(folder)
    rows = [model(torch.tensor([prompt + output])).logits[0] for prompt, output in zip(prompts, outputs, strict=True)]
    return [row[len(prompt) - 1 : -1].argmax(-1).tolist() for row, prompt in zip(rows, prompts, strict=True)]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_equal_transformers(
    family: str, family_checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batched or one by one, chunked, cached and preempted requests get transformers' tokens."""
    folder, prompts = family_checkpoint(family), make_prompts()
    resumed: list[str] = []
    schedule = Scheduler.schedule

    def counting(scheduler: Scheduler) -> SchedulerOutput:
        output = schedule(scheduler)
        resumed.extend(output.scheduled_cached_reqs.resumed_req_ids)
        return output

    monkeypatch.setattr(Scheduler, "schedule", counting)
    blocks = NUM_BLOCKS.get(family, 20)
    llm = LLM(str(folder), dtype="float32", max_num_batched_tokens=64, max_num_seqs=8, num_gpu_blocks_override=blocks)
    batched = tokens(llm, prompts)
    assert batched == likeliest(folder, prompts, batched)
    assert resumed, "nobody was preempted"
    assert len({tuple(row) for row in batched}) > len(prompts) // 2  # outputs of the checkpoint differ
    assert [tokens(llm, [prompt])[0] for prompt in prompts[::4]] == batched[::4]
