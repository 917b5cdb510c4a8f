"""The models compute what transformers computes, through the whole runner."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import VOCAB_SIZE, change_config, make_checkpoint, reference_model
from tests.engine.worker.driver import Driver, Job, make_config, runner_of, start_executor
from tracellm.engine.sampling_params import SamplingParams

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2-tied-gqa": ("qwen2", {}),
    "qwen2-untied-mha": ("qwen2", {"tie_word_embeddings": False, "num_key_value_heads": 4}),
    "qwen2-mqa-rope-theta": (
        "qwen2",
        {"num_key_value_heads": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "opt-norm-before": ("opt", {}),
    "opt-norm-after-projected": ("opt", {"do_layer_norm_before": False, "word_embed_proj_dim": 32}),
    "opt-no-final-norm-no-bias": ("opt", {"_remove_final_layer_norm": True, "enable_bias": False}),
    "opt-plain-norm": ("opt", {"layer_norm_elementwise_affine": False}),
}


@pytest.fixture(scope="module", params=VARIANTS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of each variant."""
    model_type, config = VARIANTS[request.param]
    return make_checkpoint(tmp_path_factory.mktemp(request.param), model_type, **config)


def make_jobs(count: int, max_tokens: int) -> list[Job]:
    """Greedy requests with prompts of 1 to 60 tokens."""
    rng = random.Random(7)
    lengths = [1, 2, 3, 4, 5, 16, 17, *(rng.randint(1, 60) for _ in range(count - 7))]
    return [
        Job(str(i), [rng.randrange(VOCAB_SIZE) for _ in range(n)], SamplingParams(temperature=0, max_tokens=max_tokens))
        for i, n in enumerate(lengths)
    ]


@torch.inference_mode()
def greedy(model: Any, job: Job) -> list[int]:
    """What transformers generates for a job."""
    tokens = list(job.prompt)
    for _ in range(job.params.max_tokens or 0):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(job.prompt) :]


def test_greedy_tokens_equal_transformers(checkpoint: Path) -> None:
    """24 requests, batched at random with chunked prompts, pauses and preemptions, and one by one, all get transformers' tokens."""
    executor = start_executor(make_config(checkpoint))
    model = reference_model(checkpoint)
    jobs = make_jobs(24, max_tokens=12)
    expected = [greedy(model, job) for job in jobs]
    Driver(executor).run(jobs)
    assert [job.output for job in jobs] == expected
    alone = make_jobs(24, max_tokens=12)
    for job in alone:
        job.req_id = f"alone-{job.req_id}"
        Driver(executor, seed=1).run([job], max_chunk=512, pause=0)
    assert [job.output for job in alone] == expected


def test_prompt_logits_equal_transformers(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits at every position of a prompt computed in pieces are within 1e-4 of transformers'."""
    executor = start_executor(make_config(checkpoint))
    runner = runner_of(executor)
    hidden: list[torch.Tensor] = []
    forward = runner._model_forward
    monkeypatch.setattr(runner, "_model_forward", lambda *args: hidden.append(forward(*args)) or hidden[-1])
    job = Job(
        "0", [random.Random(3).randrange(VOCAB_SIZE) for _ in range(45)], SamplingParams(temperature=0, max_tokens=1)
    )
    driver = Driver(executor)
    for count in (1, 7, 20, 17):
        driver.step({"0": count}, [job])
    with torch.inference_mode():
        expected = reference_model(checkpoint)(torch.tensor([job.prompt])).logits[0]
        logits = runner.model.compute_logits(torch.cat(hidden))
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_config_written_by_transformers_4(tmp_path: Path) -> None:
    """`rope_theta` at the top of config.json, as transformers 4 wrote it, gives the same model as `rope_parameters`."""
    folder = make_checkpoint(tmp_path, "qwen2", rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    expected = greedy(reference_model(folder), job := make_jobs(8, max_tokens=6)[7])
    change_config(folder, rope_parameters=None, rope_theta=500.0, rope_scaling=None)
    Driver(start_executor(make_config(folder))).run([job])
    assert job.output == expected


def test_bfloat16_stays_near_float32(qwen2_checkpoint: Path) -> None:
    """A model in bfloat16 computes in bfloat16: near to float32, and not equal."""
    hidden = []
    for dtype in (torch.float32, torch.bfloat16):
        executor = start_executor(make_config(qwen2_checkpoint, dtype=dtype))
        runner = runner_of(executor)
        forward = runner._model_forward
        runner._model_forward = lambda *args, forward=forward: hidden.append(forward(*args)) or hidden[-1]
        Driver(executor).step({"0": 20}, [Job("0", list(range(20)), SamplingParams(temperature=0, max_tokens=1))])
    assert hidden[1].dtype == torch.bfloat16
    torch.testing.assert_close(hidden[1].float(), hidden[0], atol=0.15, rtol=0.15)
