"""Tests of `async_scheduling=True` with a real model: every client gets the same outputs.

sched/test_async_scheduling.py tests the scheduler alone, with many more sequences of events.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.clients.in_thread import engines_in_threads
from tests.engine.ops.implementations import need_triton
from tests.engine.watch import is_idle
from tracellm import LLM, AsyncLLM, SamplingParams, StructuredOutputsParams
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.frontend.outputs import RequestOutput
from tracellm.engine.sample.sampling_params import RequestOutputKind

SETTINGS: dict[str, Any] = {"dtype": "float32", "max_model_len": 96, "block_size": 8, "num_gpu_blocks_override": 24}
TIGHT = SETTINGS | {"max_num_seqs": 4, "max_num_batched_tokens": 16, "num_gpu_blocks_override": 14}
"""Settings that chunk prompts, make requests wait, and preempt running ones."""


def workload() -> tuple[list[Any], list[SamplingParams]]:
    """Return prompts with shared prefixes, and all parameters that affect tokens or the end of a request."""
    rng = random.Random(0)
    shared = [rng.randrange(3, 500) for _ in range(24)]
    prompts = [
        {
            "prompt_token_ids": [
                *shared[: rng.randrange(24)],
                *(rng.randrange(3, 500) for _ in range(rng.randrange(1, 12))),
            ]
        }
        for _ in range(16)
    ]
    asked: list[dict[str, Any]] = [
        {},
        {"seed": 3, "temperature": 1.2},
        {"seed": 4, "temperature": 0.8, "top_k": 20, "n": 2},
        {"stop_token_ids": rng.sample(range(4096), 700)},
        {"stop": ["a", "e"], "seed": 5, "temperature": 1.0},
        {"frequency_penalty": 1.5, "presence_penalty": 0.5, "repetition_penalty": 1.3},
        {"bad_words": ["the", " a", "e"], "logprobs": 2},
        {"min_tokens": 9, "stop_token_ids": list(range(2000)), "prompt_logprobs": 1},
    ]
    params = [
        SamplingParams(**{"temperature": 0, "max_tokens": 3 + 2 * index, "ignore_eos": bool(index % 3)} | more)
        for index, more in enumerate(asked + asked)
    ]
    for one in params:
        one.output_kind = RequestOutputKind.FINAL_ONLY  # otherwise an AsyncLLM streams n > 1
    return prompts, params


def results_of(outputs: list[RequestOutput]) -> list[Any]:
    """Return all fields of the outputs."""
    return [
        (
            one.text,
            list(one.token_ids),
            one.finish_reason,
            one.stop_reason,
            _near(one.logprobs),
            output.num_cached_tokens,
        )
        for output in outputs
        for one in output.outputs
    ] + [_near(output.prompt_logprobs) for output in outputs]


class Near(float):
    """Log probability compared with a tolerance, as its last digits depend on the batch."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 1e-3

    __hash__ = float.__hash__


def _near(positions: Any) -> Any:
    """Wrap log probabilities for a comparison with tolerance; a position without any is None."""
    return positions and [at and {token: Near(one.logprob) for token, one in at.items()} for at in positions]


def without_cached(outputs: list[RequestOutput]) -> list[Any]:
    """Remove the number of cached tokens, which depends on when a request began."""
    return [one[:-1] if isinstance(one, tuple) else one for one in results_of(outputs)]


@contextmanager
def client(multiprocess: bool, **settings: Any) -> Iterator[LLM]:
    """An LLM whose engine core is an object, or runs in a thread behind sockets."""
    with engines_in_threads():
        llm = LLM(multiprocess_mode=multiprocess, **settings)
    yield llm
    llm.llm_engine.engine_core.shutdown()


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """Return the outputs with the plain scheduler."""
    with client(False, **TIGHT) as llm:
        return without_cached(llm.generate(*workload(), use_tqdm=False))


@pytest.mark.parametrize("multiprocess", [False, True], ids=["InprocClient", "SyncMPClient"])
def test_outputs_are_those_of_the_plain_scheduler(expected: list[Any], multiprocess: bool) -> None:
    """All kinds of parameters give the plain scheduler's outputs, in small steps with few blocks.

    A second run, with cached prompts and perhaps a step of the first under way, gives them too.
    """
    with client(multiprocess, async_scheduling=True, **TIGHT) as llm:
        for _ in range(2):
            assert without_cached(llm.generate(*workload(), use_tqdm=False)) == expected
        if not multiprocess:
            assert is_idle(llm)
            scheduler = llm.llm_engine.engine_core.engine_core.scheduler  # type: ignore[attr-defined]
            assert type(scheduler).__name__ == "AsyncScheduler"


def test_outputs_of_an_async_llm_are_the_same(expected: list[Any]) -> None:
    """Requests that arrive one by one at an `AsyncLLM` get the same outputs, while another is aborted."""

    async def last(outputs: AsyncIterator[RequestOutput]) -> RequestOutput:
        return [output async for output in outputs][-1]

    async def run() -> list[RequestOutput]:
        with engines_in_threads():
            engine = AsyncLLM(async_scheduling=True, **TIGHT)
        try:
            endless = engine.generate({"prompt_token_ids": [5, 6]}, SamplingParams(max_tokens=90), "given up")
            given_up = asyncio.create_task(anext(endless))
            requests = enumerate(zip(*workload(), strict=True))
            tasks = [asyncio.create_task(last(engine.generate(*request, str(index)))) for index, request in requests]
            await given_up
            await endless.aclose()
            return [await task for task in tasks]
        finally:
            engine.shutdown()

    assert without_cached(asyncio.run(run())) == expected


def test_grammars_are_kept_to() -> None:
    """A constrained request gets the tokens that it gets alone, while others run ahead of its grammar."""
    params = [
        SamplingParams(
            temperature=1.0, seed=1, max_tokens=12, structured_outputs=StructuredOutputsParams(regex="[ab]+c")
        ),
        SamplingParams(temperature=0, max_tokens=20, ignore_eos=True),
        SamplingParams(temperature=0, max_tokens=9, structured_outputs=StructuredOutputsParams(choice=["yes", "no"])),
    ]
    outputs = []
    for async_scheduling in (False, True):
        with client(False, async_scheduling=async_scheduling, **SETTINGS) as llm:
            outputs.append(results_of(llm.generate(["one", "two", "three"], params, use_tqdm=False)))
    assert outputs[0] == outputs[1]


def test_a_request_without_a_token_fails() -> None:
    """A request with all tokens masked fails one step late, and no other request is affected."""
    stuck = SamplingParams(max_tokens=5, allowed_token_ids=[7], min_tokens=2, stop_token_ids=[7])
    greedy = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    counting = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, frequency_penalty=1.0)
    with client(False, async_scheduling=True, **SETTINGS) as llm:
        for other in (greedy, counting):  # the latter counts the tokens of all, also in the step after
            failed, finished = llm.generate(["one", "two"], [stuck, other], use_tqdm=False)
            assert failed.outputs[0].finish_reason == "error"
            assert "no token is left" in str(failed.outputs[0].stop_reason)
            assert len(finished.outputs[0].token_ids) == 5
        first, second = (llm.generate("two", greedy, use_tqdm=False) for _ in range(2))
        assert results_of(first)[0][:3] == results_of(second)[0][:3]
        assert is_idle(llm)


def test_a_step_that_is_not_believed_harms_nobody_else(qwen2_checkpoint: Path) -> None:
    """A step with invalid numbers fails together with the one launched after it, and the next requests are served."""
    greedy = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    counting = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True, frequency_penalty=1.0)
    with client(False, model=qwen2_checkpoint, async_scheduling=True, dtype="float32", max_num_seqs=4) as llm:
        before = results_of(llm.generate("a", greedy, use_tqdm=False))
        runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner  # type: ignore[attr-defined]
        weight = next(runner.model.parameters()).data
        right = weight.clone()
        for params in (greedy, counting):
            weight.fill_(float("nan"))
            with pytest.raises(EngineError, match="computed NaN"):
                llm.generate(["a", "b"], params, use_tqdm=False)
            weight.copy_(right)
            assert len(llm.generate("a", counting, use_tqdm=False)) == 1
            assert results_of(llm.generate("a", greedy, use_tqdm=False))[0][:5] == before[0][:5]
            assert is_idle(llm)


def test_an_abort_between_two_steps() -> None:
    """Tokens under way for an aborted request are dropped, even if its id is reused."""
    greedy = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    with client(False, async_scheduling=True, **SETTINGS) as llm:
        (alone,) = llm.generate({"prompt_token_ids": [9, 8, 7]}, greedy, use_tqdm=False)
        engine = llm.llm_engine
        engine.add_request("a", {"prompt_token_ids": [3, 4, 5, 6]}, greedy)
        assert engine.step() == []  # launched, but not waited for
        engine.step()
        engine.abort_request(["a"])
        engine.add_request("a", {"prompt_token_ids": [9, 8, 7]}, greedy)
        outputs: list[Any] = []
        while engine.has_unfinished_requests():
            outputs += engine.step()
        assert list(outputs[-1].outputs[0].token_ids) == list(alone.outputs[0].token_ids)
        assert is_idle(llm)


@pytest.mark.parametrize(
    ("asked", "device", "settled"),
    [
        (None, "cpu", (False, "cpu")),
        (None, "cuda", (True, "gpu")),
        (True, "cpu", (True, "argument")),
        (False, "cuda", (False, "argument")),
    ],
)
def test_when_steps_are_scheduled_so(asked: bool | None, device: str, settled: tuple[bool, str]) -> None:
    """Asynchronous scheduling follows the argument, by default the device, and the configuration has the reason."""
    args = EngineArgs(async_scheduling=asked, max_num_seqs=8, max_num_batched_tokens=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EngineArgs, "get_batch_defaults", staticmethod(lambda *_: (64, 8)))
        config = args.create_scheduler_config(64, torch.device(device), "LLM_CLASS")
    assert (config.async_scheduling, config.async_scheduling_reason) == settled


def test_anything_else_is_refused() -> None:
    """Values other than True, False and None are refused."""
    with pytest.raises(EngineError, match="`async_scheduling` must be True, False or None, got 'yes'"):
        EngineArgs(async_scheduling="yes")  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.parametrize("eager", [False, True], ids=["replayed", "eager"])
def test_tokens_on_a_gpu_are_the_same(eager: bool) -> None:
    """Tokens on a GPU are the same with asynchronous copies, and with inputs filled in before a graph's replay."""
    need_triton("cuda")
    outputs = []
    for async_scheduling in (False, True):
        llm = LLM(enforce_eager=eager, async_scheduling=async_scheduling, gpu_memory_utilization=0.1, **TIGHT)
        outputs.append(without_cached(llm.generate(*workload(), use_tqdm=False)))
    assert outputs[0] == outputs[1]
