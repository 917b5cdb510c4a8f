"""Tests of pooling through every client of the engine core, and with several workers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.pooling.test_against_transformers import as_tokens, check_equal, hidden_states, make_prompts
from tracellm import LLM, AsyncLLM
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.sampling_params import SamplingParams

SETTINGS: dict[str, Any] = {"runner": "pooling", "dtype": "float32", "max_num_batched_tokens": 64, "max_num_seqs": 8}
RAW = PoolingParams(task="embed", normalize=False)


@pytest.mark.parametrize(
    "arguments",
    [{"multiprocess_mode": True}, {"tensor_parallel_size": 2}, {"tensor_parallel_size": 2, "multiprocess_mode": True}],
    ids=lambda arguments: "-".join(arguments),
)
def test_processes_give_the_vectors_of_transformers(qwen2_checkpoint: Path, arguments: dict[str, Any]) -> None:
    """An engine core, or workers, in processes of their own return transformers' hidden states."""
    llm = LLM(qwen2_checkpoint, **SETTINGS, **arguments)
    try:
        prompts = make_prompts()
        outputs = llm.embed(as_tokens(prompts), pooling_params=RAW)
        for output, states in zip(outputs, hidden_states(qwen2_checkpoint, prompts), strict=True):
            check_equal(output.outputs.embedding, states[-1])
    finally:
        llm.llm_engine.engine_core.shutdown()


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of the engine."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def engine(runner: asyncio.Runner, qwen2_checkpoint: Path) -> Iterator[AsyncLLM]:
    """A pooling engine for asyncio; each test leaves it idle."""

    async def make() -> AsyncLLM:
        return AsyncLLM(qwen2_checkpoint, **SETTINGS)

    engine = runner.run(make())
    yield engine
    engine.shutdown()


async def encode(engine: AsyncLLM, prompt: list[int], request_id: str, params: PoolingParams = RAW) -> Any:
    """Return the only output of a request."""
    (output,) = [output async for output in engine.encode({"prompt_token_ids": prompt}, params, request_id)]
    assert output.finished
    return output


def test_concurrent_requests(runner: asyncio.Runner, engine: AsyncLLM, qwen2_checkpoint: Path) -> None:
    """Each of many concurrent callers of `AsyncLLM.encode` gets the vector of its prompt."""
    prompts = make_prompts()

    async def ask() -> list[Any]:
        return await asyncio.gather(*(encode(engine, prompt, str(i)) for i, prompt in enumerate(prompts)))

    for output, states in zip(runner.run(ask()), hidden_states(qwen2_checkpoint, prompts), strict=True):
        check_equal(output.outputs.data, states[-1])
    assert not engine.output_processor.has_unfinished_requests()


def test_a_cancelled_request_leaves_nothing(runner: asyncio.Runner, engine: AsyncLLM) -> None:
    """The engine core drops a request whose caller is cancelled, and serves the next one."""

    async def leave() -> Any:
        task = asyncio.create_task(encode(engine, [5] * 200, "left"))
        while not engine.output_processor.has_unfinished_requests():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        after = await encode(engine, [5, 6, 7], "after")
        counts = await engine.engine_core.call_utility_async("get_request_counts")
        return after, list(counts)

    after, counts = runner.run(leave())
    assert after.outputs.data.shape == (64,)
    assert counts == [0, 0]
    assert not engine.output_processor.has_unfinished_requests()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (PoolingParams(), r"Unsupported task: None Supported tasks: \['embed'\]"),
        (PoolingParams(task="token_embed"), "Unsupported task: 'token_embed'"),
        (PoolingParams(task="embed", dimensions=4), "does not support matryoshka representation"),
        (PoolingParams(task="embed", use_activation=True), "Task embed only supports"),
    ],
    ids=["no task", "another task", "dimensions", "use_activation"],
)
def test_refused_parameters(runner: asyncio.Runner, engine: AsyncLLM, params: PoolingParams, words: str) -> None:
    """Parameters that the model cannot serve are refused in vLLM's words, before the engine core gets them."""
    with pytest.raises(InvalidRequestError, match=words):
        runner.run(encode(engine, [5, 6], "refused", params))
    assert not engine.output_processor.has_unfinished_requests()


def test_generation_is_refused(runner: asyncio.Runner, engine: AsyncLLM) -> None:
    """A pooling engine refuses to generate."""
    with pytest.raises(InvalidRequestError, match="This model does not support generation"):
        runner.run(anext(engine.generate({"prompt_token_ids": [5]}, SamplingParams(), "generate")))
