"""Tests of the models against transformers, through the whole model runner."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import FAMILIES, VOCAB_SIZE, change_config, make_checkpoint, reference_model
from tests.engine.models.variants import VARIANTS
from tests.engine.worker.driver import Driver, Job, make_config, record_hidden_states, runner_of, start_executor
from tracellm.engine.sample.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def make_prompt(length: int, seed: int = 0) -> list[int]:
    """Make random token ids."""
    rng = random.Random(f"{length}-{seed}")
    return [rng.randrange(VOCAB_SIZE) for _ in range(length)]


def make_jobs(prefix: str = "") -> list[Job]:
    """Make 24 greedy requests with prompts of 1 to 60 tokens."""
    rng = random.Random(7)
    lengths = [1, 2, 3, 4, 5, 16, 17, *(rng.randint(1, 60) for _ in range(17))]
    return [Job(f"{prefix}{i}", make_prompt(n, i), GREEDY) for i, n in enumerate(lengths)]


@torch.inference_mode()
def likeliest(model: Any, job: Job) -> list[int]:
    """Return transformers' most likely token at each position of a job's output, given all tokens before it.

    It equals the output exactly if greedy generation in transformers gives the same output.
    """
    logits = model(torch.tensor([job.tokens])).logits[0]
    tokens: list[int] = logits[len(job.prompt) - 1 : -1].argmax(-1).tolist()
    return tokens


@torch.inference_mode()
def prompt_logits(
    folder: Path, lengths: tuple[int, ...], dtype: torch.dtype = torch.float32, max_model_len: int | None = None
) -> list[torch.Tensor]:
    """Return our logits at every position of the prompts, computed in chunks, [length, vocabulary] each."""
    executor = start_executor(make_config(folder, dtype=dtype, max_model_len=max_model_len))
    driver, logits = Driver(executor), []
    hidden = record_hidden_states(executor)
    for length in lengths:
        job = Job(str(length), make_prompt(length), GREEDY)
        while job.computed < length:
            piece = 1 + (length - job.computed) // 2  # for 100: 51, 25, 13, 6, 3, 2, 1
            driver.step({job.req_id: min(piece, length - job.computed)}, [job])
        logits.append(runner_of(executor).model.compute_logits(torch.cat(hidden)))
        hidden.clear()
    return logits


@pytest.mark.parametrize("name", VARIANTS)
@torch.inference_mode()
def test_logits_equal_transformers(name: str, tmp_path: Path) -> None:
    """The logits of prompts of many lengths, computed in chunks, are within 1e-4 of transformers'."""
    variant = VARIANTS[name]
    folder = make_checkpoint(tmp_path, variant.model_type, **variant.config)
    model = reference_model(folder)
    ours = prompt_logits(folder, variant.lengths, max_model_len=variant.max_model_len)
    for length, logits in zip(variant.lengths, ours, strict=True):
        expected = model(torch.tensor([[*make_prompt(length), 0]])).logits[0, :-1]
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
        assert expected.std() > 0.1, "logits so alike would prove nothing"


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_equal_transformers(family: str, family_checkpoint: Callable[[str], Path]) -> None:
    """Batched requests with chunked prompts, pauses and preemptions get transformers' greedy tokens."""
    folder = family_checkpoint(family)
    jobs, model = make_jobs(), reference_model(folder)
    Driver(start_executor(make_config(folder))).run(jobs)
    for job in jobs:
        assert job.output == likeliest(model, job)
    assert len({tuple(job.output) for job in jobs}) > 20, "outputs so alike would prove nothing"


def test_a_request_gets_the_same_tokens_alone(qwen2_checkpoint: Path) -> None:
    """Requests get the same tokens alone, with each prompt in one chunk, as batched with chunked prompts."""
    executor = start_executor(make_config(qwen2_checkpoint))
    batched, alone = make_jobs(), make_jobs("alone-")
    Driver(executor).run(batched)
    for job in alone:
        Driver(executor, seed=1).run([job], max_chunk=512, pause=0)
    assert [job.output for job in alone] == [job.output for job in batched]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_sixteen_bits_stay_near_float32(
    family: str, dtype: torch.dtype, family_checkpoint: Callable[[str], Path]
) -> None:
    """A 16-bit model computes in 16 bits: most tokens stay the most likely, and nothing overflows."""
    folder = family_checkpoint(family)
    (wide,), (narrow,) = (prompt_logits(folder, (100,), one) for one in (torch.float32, dtype))
    assert narrow.dtype == dtype
    assert narrow.isfinite().all()
    assert (narrow.argmax(-1) == wide.argmax(-1)).float().mean() > 0.85
    assert 0 < (narrow.float() - wide).std() / wide.std() < 0.05


def test_config_written_by_transformers_4(tmp_path: Path) -> None:
    """`rope_theta` at the top of config.json, as in transformers 4, gives the same model as `rope_parameters`."""
    folder = make_checkpoint(tmp_path, "qwen2", rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    (before,) = prompt_logits(folder, (45,))
    change_config(folder, rope_parameters=None, rope_theta=500.0)
    (after,) = prompt_logits(folder, (45,))
    assert torch.equal(before, after)
