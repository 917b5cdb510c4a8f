"""The models compute what transformers computes, through the whole runner."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.checkpoints import VOCAB_SIZE, change_config, make_checkpoint, reference_model
from tests.engine.worker.driver import Driver, Job, make_config, record_hidden_states, runner_of, start_executor
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
GREEDY = SamplingParams(temperature=0, max_tokens=12)


@pytest.fixture(scope="module", params=VARIANTS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of each variant."""
    model_type, config = VARIANTS[request.param]
    return make_checkpoint(tmp_path_factory.mktemp(request.param), model_type, **config)


def make_jobs(prefix: str = "") -> list[Job]:
    """24 greedy requests with prompts of 1 to 60 tokens."""
    rng = random.Random(7)
    lengths = [1, 2, 3, 4, 5, 16, 17, *(rng.randint(1, 60) for _ in range(17))]
    return [Job(f"{prefix}{i}", [rng.randrange(VOCAB_SIZE) for _ in range(n)], GREEDY) for i, n in enumerate(lengths)]


@torch.inference_mode()
def likeliest(model: Any, job: Job) -> list[int]:
    """The token that transformers finds likeliest at each place of a job's output, given all before it.

    Equal to the output exactly if transformers, generating greedily, had generated it.
    """
    logits = model(torch.tensor([job.tokens])).logits[0]
    tokens: list[int] = logits[len(job.prompt) - 1 : -1].argmax(-1).tolist()
    return tokens


def test_greedy_tokens_equal_transformers(checkpoint: Path) -> None:
    """24 requests get transformers' tokens, one by one and batched with chunked prompts, pauses and preemptions."""
    executor = start_executor(make_config(checkpoint))
    model = reference_model(checkpoint)
    batched, alone = make_jobs(), make_jobs("alone-")
    Driver(executor).run(batched)
    for job in alone:
        Driver(executor, seed=1).run([job], max_chunk=512, pause=0)
    for job in batched:
        assert job.output == likeliest(model, job)
    assert [job.output for job in alone] == [job.output for job in batched]
    assert len({tuple(job.output) for job in batched}) > 20, "outputs so alike would prove nothing"


def test_prompt_logits_equal_transformers(checkpoint: Path) -> None:
    """The logits at every position of a prompt computed in pieces are within 1e-4 of transformers'."""
    executor = start_executor(make_config(checkpoint))
    hidden = record_hidden_states(executor)
    job = Job("0", [random.Random(3).randrange(VOCAB_SIZE) for _ in range(45)], GREEDY)
    driver = Driver(executor)
    for count in (1, 7, 20, 17):
        driver.step({"0": count}, [job])
    with torch.inference_mode():
        expected = reference_model(checkpoint)(torch.tensor([job.prompt])).logits[0]
        logits = runner_of(executor).model.compute_logits(torch.cat(hidden))
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_config_written_by_transformers_4(tmp_path: Path) -> None:
    """`rope_theta` at the top of config.json, as transformers 4 wrote it, gives the same model as `rope_parameters`."""
    folder = make_checkpoint(tmp_path, "qwen2", rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    model = reference_model(folder)
    change_config(folder, rope_parameters=None, rope_theta=500.0)
    job = make_jobs()[-1]
    Driver(start_executor(make_config(folder))).run([job])
    assert job.output == likeliest(model, job)


def test_bfloat16_stays_near_float32(qwen2_checkpoint: Path) -> None:
    """A model in bfloat16 computes in bfloat16: near to float32, and not equal."""
    hidden: list[torch.Tensor] = []
    for dtype in (torch.float32, torch.bfloat16):
        executor = start_executor(make_config(qwen2_checkpoint, dtype=dtype))
        recorded = record_hidden_states(executor)
        Driver(executor).step({"0": 20}, [Job("0", list(range(20)), GREEDY)])
        hidden += recorded
    assert hidden[1].dtype == torch.bfloat16
    torch.testing.assert_close(hidden[1].float(), hidden[0], atol=0.15, rtol=0.15)
