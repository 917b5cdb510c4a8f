"""Tests of prompt and sample log probabilities against transformers, for any chunking of the prompt."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.checkpoints import VOCAB_SIZE, reference_model
from tests.engine.worker.driver import Driver, Job, make_config, runner_of, start_executor
from tracellm.engine.entrypoints.llm import LLM
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.engine.worker.model_runner_output import LogprobsLists, LogprobsTensors, ModelRunnerOutput


@pytest.fixture(scope="module")
def executor(qwen2_checkpoint: Path) -> Executor:
    """Start an executor of the Qwen2 checkpoint."""
    return start_executor(make_config(qwen2_checkpoint))


@pytest.fixture(scope="module")
def reference(qwen2_checkpoint: Path) -> Any:
    """Load the Qwen2 checkpoint in transformers."""
    return reference_model(qwen2_checkpoint)


def job(name: str, length: int = 14, **params: Any) -> Job:
    """Make a request with a prompt of `length` tokens that depends on the name only."""
    start = sum(map(ord, name))
    params = {"temperature": 0.0, "max_tokens": 3} | params
    return Job(name, [(start * 31 + i * 7) % VOCAB_SIZE for i in range(length)], SamplingParams(**params))


def expected_logprobs(reference: Any, tokens: list[int]) -> Tensor:
    """Return transformers' log probabilities of the token after each of these, float32 [tokens, vocabulary]."""
    with torch.inference_mode():
        logits: Tensor = reference(torch.tensor([tokens])).logits[0]
    return logits.log_softmax(dim=-1)


def check(tensors: LogprobsTensors | LogprobsLists, expected: Tensor, tokens: list[int], num_logprobs: int) -> None:
    """Check each position: the token itself, the most likely tokens, and the token's rank."""
    ids, logprobs, ranks = (torch.as_tensor(part) for part in tensors[:3])
    assert ids.shape == logprobs.shape == (len(tokens), num_logprobs + 1)
    assert ranks.shape == (len(tokens),)
    assert ids[:, 0].tolist() == tokens
    torch.testing.assert_close(logprobs, expected.gather(1, ids.long()), atol=1e-4, rtol=0)
    torch.testing.assert_close(logprobs[:, 1:], expected.topk(num_logprobs).values, atol=1e-4, rtol=0)
    own = logprobs[:, :1]
    assert bool((ranks >= 1 + (expected > own + 1e-4).sum(1)).all())
    assert bool((ranks <= (expected >= own - 1e-4).sum(1)).all())


def run(driver: Driver, job: Job, chunks: list[int], others: list[Job] | None = None) -> list[ModelRunnerOutput]:
    """Compute the prompt in these chunks, each in a step with one token of every other request."""
    others = others or []
    return [driver.step({job.req_id: chunk} | {o.req_id: 1 for o in others}, [job, *others]) for chunk in chunks]


@pytest.mark.parametrize("chunks", [[14], [5, 9], [13, 1], [1, 1, 11, 1], [4] * 3 + [2]], ids=str)
@pytest.mark.parametrize("num_logprobs", [0, 3, -1])
def test_prompt_logprobs_are_transformers(
    executor: Executor, reference: Any, chunks: list[int], num_logprobs: int
) -> None:
    """Prompt log probabilities come with the first token, a position per prompt token but the first."""
    driver, request = Driver(executor), job(f"p{num_logprobs}{chunks}", prompt_logprobs=num_logprobs)
    outputs = run(driver, request, chunks)
    assert all(output.prompt_logprobs_dict == {} for output in outputs[:-1])
    (tensors,) = outputs[-1].prompt_logprobs_dict.values()
    expected = expected_logprobs(reference, request.prompt)
    check(tensors, expected[:-1], request.prompt[1:], VOCAB_SIZE if num_logprobs == -1 else num_logprobs)
    assert driver.step({request.req_id: 1}, [request]).prompt_logprobs_dict == {}, "they are reported once"
    assert runner_of(executor).prompt_logprobs.in_progress == {}


def test_a_pause_or_a_preemption_loses_none(executor: Executor, reference: Any) -> None:
    """Pauses and preemptions lose no prompt log probabilities, and other requests get none."""
    driver, other = Driver(executor, seed=3), job("other", max_tokens=9)
    driver.step({"other": 14}, [other])
    paused, preempted = job("paused", prompt_logprobs=2), job("preempted", prompt_logprobs=2)
    run(driver, paused, [6], [other])
    run(driver, preempted, [9], [other])  # without `paused`
    driver.preempt_job(preempted)
    outputs = [run(driver, paused, [8], [other])[-1], run(driver, preempted, [5, 9], [other])[-1]]
    for request, output in zip((paused, preempted), outputs, strict=True):
        assert list(output.prompt_logprobs_dict) == [request.req_id]
        expected = expected_logprobs(reference, request.prompt)[:-1]
        check(output.prompt_logprobs_dict[request.req_id], expected, request.prompt[1:], 2)


def test_a_preemption_after_the_prompt_does_not_report_twice(executor: Executor) -> None:
    """A request that has its prompt log probabilities recomputes the prompt without them."""
    driver, request = Driver(executor), job("twice", prompt_logprobs=1)
    run(driver, request, [14, 1])
    driver.preempt_job(request)
    assert [output.prompt_logprobs_dict for output in run(driver, request, [10, 6])] == [{}, {}]


def test_a_prompt_of_one_token_has_none(executor: Executor) -> None:
    """The tensors of a prompt of one token are empty."""
    (output,) = run(Driver(executor), job("one", 1, prompt_logprobs=4), [1])
    assert output.prompt_logprobs_dict["one"].logprobs.shape == (0, 5)


def test_ended_requests_leave_nothing(executor: Executor) -> None:
    """A request that is aborted within its prompt leaves no prompt log probabilities."""
    driver, request = Driver(executor), job("ended", prompt_logprobs=1)
    run(driver, request, [3])
    driver.finished.add("ended")
    run(driver, job("next"), [14])
    assert runner_of(executor).prompt_logprobs.in_progress == {}


def test_sampled_logprobs_are_transformers(executor: Executor, reference: Any) -> None:
    """Log probabilities are of the raw logits, with the largest number of tokens that any request requested."""
    driver = Driver(executor, seed=1)
    jobs = [
        job("a", 9, logprobs=0),
        job("b", 5, logprobs=4, temperature=0.7, seed=1, top_k=3, repetition_penalty=1.5),
        job("c", 7, allowed_token_ids=[3, 4, 5]),
    ]
    plan = {j.req_id: len(j.prompt) for j in jobs}
    for _ in range(3):
        output = driver.step(plan, jobs)
        assert output.logprobs is not None
        for j in jobs:
            row = output.req_id_to_index[j.req_id]
            expected = expected_logprobs(reference, j.tokens[:-1])[-1:]
            check(output.logprobs.slice(row, row + 1), expected, j.output[-1:], 4)
        plan = {j.req_id: 1 for j in jobs}


def test_no_logprobs_unless_requested(executor: Executor) -> None:
    """A step in which no request requests log probabilities has none."""
    (output,) = run(Driver(executor), job("silent"), [14])
    assert output.logprobs is None
    assert output.prompt_logprobs_dict == {}


@pytest.mark.parametrize("mode", ["raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"])
def test_logprobs_mode(qwen2_checkpoint: Path, reference: Any, mode: str) -> None:
    """Each `logprobs_mode` reports raw or processed values, as log probabilities or as logits."""
    config = make_config(qwen2_checkpoint)
    config.model_config.logprobs_mode = mode
    request = job("mode", 6, temperature=0.5, seed=1, top_k=2, logprobs=3)
    (output,) = run(Driver(start_executor(config)), request, [6])
    with torch.inference_mode():
        logits = reference(torch.tensor([request.prompt])).logits[0, -1]
    if mode.startswith("processed"):
        logits = logits / 0.5
        logits = logits.masked_fill(logits < logits.topk(2).values[-1], -torch.inf)
    expected = logits.log_softmax(-1) if mode.endswith("logprobs") else logits
    assert output.logprobs is not None
    reported = torch.from_numpy(output.logprobs.logprobs[0])
    torch.testing.assert_close(reported[1:], expected.topk(3).values, atol=2e-4, rtol=0)
    torch.testing.assert_close(reported[0], expected[request.output[0]], atol=2e-4, rtol=0)


@pytest.mark.parametrize("max_num_batched_tokens", [256, 20], ids=["whole", "chunked"])
def test_a_cached_prompt_is_computed_again(qwen2_checkpoint: Path, reference: Any, max_num_batched_tokens: int) -> None:
    """A request for prompt log probabilities does not read the prefix cache, and gets those of all its tokens."""
    llm = LLM(
        str(qwen2_checkpoint),
        dtype="float32",
        num_gpu_blocks_override=40,
        max_num_batched_tokens=max_num_batched_tokens,
    )
    tokens = job("cached", 50).prompt
    prompt = {"prompt_token_ids": tokens}
    for _ in range(2):
        (plain,) = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=2), use_tqdm=False)
    assert plain.num_cached_tokens == 48
    (output,) = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=2), use_tqdm=False)
    assert output.num_cached_tokens == 0
    assert output.outputs[0].token_ids == plain.outputs[0].token_ids
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    expected = expected_logprobs(reference, tokens)
    for position, token in enumerate(tokens[1:]):
        logprobs = output.prompt_logprobs[position + 1]
        assert logprobs is not None
        assert {token, *expected[position].topk(2).indices.tolist()} == set(logprobs)
        for token_id, logprob in logprobs.items():
            assert logprob.logprob == pytest.approx(float(expected[position, token_id]), abs=1e-4)
