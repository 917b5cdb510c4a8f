"""Tests of the two clients whose engine core is behind sockets.

The engine core runs in a thread here; test_processes.py uses real processes.
"""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.clients.in_thread import core_of, engines_in_threads
from tests.engine.core_requests import core_request
from tracellm import LLM, SamplingParams, StructuredOutputsParams
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineDeadError, EngineError, InvalidRequestError
from tracellm.engine.core.core_proc import EngineCoreProc
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.ipc.messages import EngineCoreOutputs, FinishReason
from tracellm.engine.ipc.mp_client import AsyncMPClient, MPClient, SyncMPClient

SETTINGS: dict[str, Any] = {"max_model_len": 128, "num_gpu_blocks_override": 17}
GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


@pytest.fixture
def llm() -> Iterator[LLM]:
    """An LLM with a `SyncMPClient` and the bundled model."""
    with engines_in_threads():
        llm = LLM(multiprocess_mode=True, **SETTINGS)
    yield llm
    llm.llm_engine.engine_core.shutdown()


def client_of(llm: LLM) -> SyncMPClient:
    """Return the LLM's client."""
    client = llm.llm_engine.engine_core
    assert type(client) is SyncMPClient
    return client


def async_client() -> AsyncMPClient:
    """An asynchronous client."""
    vllm_config = EngineArgs(**SETTINGS).create_engine_config()
    with engines_in_threads():
        return AsyncMPClient(vllm_config, Executor.get_class(vllm_config), True)


def request(request_id: str = "a", max_tokens: int = 3, **more: Any) -> Any:
    """Make a request to the engine core."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return core_request(request_id, [1, 2, 3], params, **more)


def test_everything_that_can_be_asked_for_comes_out_as_in_process(llm):
    """Text, tokens, log probabilities, n > 1, stop strings and grammars equal those of the engine in process."""
    params = [
        SamplingParams(temperature=0, max_tokens=12, logprobs=2, prompt_logprobs=1),
        SamplingParams(n=2, seed=3, max_tokens=12),
        SamplingParams(temperature=0, max_tokens=30, stop=["deep"]),
        SamplingParams(
            temperature=0, max_tokens=12, structured_outputs=StructuredOutputsParams(choice=["red", "blue"])
        ),
        SamplingParams(temperature=0, max_tokens=9, logit_bias={5: 3.5}, stop_token_ids=[9], extra_args={"a": [1]}),
    ]
    prompts = ["Once upon a time"] * len(params)
    outputs = llm.generate(prompts, params)
    expected = LLM(multiprocess_mode=False, **SETTINGS).generate(prompts, params)
    for ours, theirs in zip(outputs, expected, strict=True):
        assert (ours.prompt_token_ids, ours.outputs) == (theirs.prompt_token_ids, theirs.outputs)
        assert ours.prompt_logprobs == theirs.prompt_logprobs


def test_the_client_knows_the_kv_cache_of_the_engine_core(llm):
    """READY carries the number of blocks, which the configuration stores, and the groups of layers."""
    client = client_of(llm)
    assert client.vllm_config.cache_config.num_gpu_blocks == 17
    assert client.kv_cache_config is not None
    assert client.kv_cache_config.kv_cache_groups == core_of(client).kv_cache_config.kv_cache_groups


def test_what_the_kv_cache_can_never_hold_is_refused_as_in_process():
    """A request too large for the KV cache fails as in process, before anything runs."""
    settings: dict[str, Any] = {"max_model_len": 128, "num_gpu_blocks_override": 4}
    prompts, params = ["a", "b"], [GREEDY, SamplingParams(max_tokens=100)]
    with pytest.raises(InvalidRequestError) as expected:
        LLM(multiprocess_mode=False, **settings).generate(prompts, params)
    with engines_in_threads():
        llm = LLM(multiprocess_mode=True, **settings)
    with pytest.raises(InvalidRequestError) as ours:
        llm.generate(prompts, params)
    assert str(ours.value) == str(expected.value)
    assert len(llm.generate("a", GREEDY)[0].outputs[0].token_ids) == 6
    client_of(llm).shutdown()


def test_what_the_engine_core_itself_refuses_is_an_error_of_that_request_only(llm, monkeypatch):
    """A request refused by the engine core gets the reason as its output, and other requests are served."""
    client = client_of(llm)
    monkeypatch.setattr(MPClient, "_validate", lambda self, request: None)
    client.add_request(core_request("a", [1] * 300, SamplingParams(max_tokens=3)))
    client.add_request(request("b", max_tokens=1))
    outputs = [output for _ in range(2) for output in client.get_output().outputs]
    by_id = {output.request_id: output for output in outputs}
    assert by_id["b"].finish_reason is FinishReason.LENGTH
    assert by_id["a"].finish_reason is FinishReason.ERROR
    assert "can never run to its end" in str(by_id["a"].stop_reason)


def test_what_cannot_be_sent_is_refused_by_its_place(llm):
    """A prompt whose parameters cannot be encoded is named in the error, and nothing runs."""
    params = [GREEDY, SamplingParams(max_tokens=2, extra_args={"mine": object()})]
    with pytest.raises(InvalidRequestError, match=r"prompts\[1\]: This cannot be sent to another process: .*object"):
        llm.generate(["a", "b"], params)
    assert not llm.llm_engine.has_unfinished_requests()
    assert len(llm.generate(["a", "b"], GREEDY)) == 2


def test_an_abort_gives_the_blocks_back(llm):
    """After an abort no request is left, and all blocks are free."""
    client = client_of(llm)
    client.add_request(request(max_tokens=100))
    assert client.get_output().outputs[0].request_id == "a"
    assert client.call_utility("get_request_counts") in ([1, 0], [0, 0])
    client.abort_requests(["a", "never there"])
    assert client.call_utility("get_request_counts") == [0, 0]
    assert client.call_utility("get_num_free_blocks") == 16
    assert client.reset_prefix_cache() is True


def test_only_some_methods_can_be_called(llm):
    """Only listed methods can be called, and a failure in one comes back with its message."""
    client = client_of(llm)
    assert client.call_utility("get_supported_tasks") == ["generate"]
    with pytest.raises(EngineError, match=r"no utility method 'shutdown'; it has: .*reset_prefix_cache"):
        client.call_utility("shutdown")
    with pytest.raises(EngineError, match=r"Call to reset_prefix_cache method failed: .*argument"):
        client.call_utility("reset_prefix_cache", 1)
    assert client.utility_results == {}
    assert len(llm.generate("a", GREEDY)) == 1


def test_an_error_in_a_step_reaches_everybody_with_its_message(llm, monkeypatch):
    """An error in a step raises `EngineDeadError` with its message in the current call and every later one."""
    client = client_of(llm)

    def fail() -> Any:
        raise RuntimeError("the step broke")

    monkeypatch.setattr(core_of(client), "step_fn", fail)
    for _ in range(2):
        with pytest.raises(EngineDeadError, match="has failed: RuntimeError: the step broke"):
            llm.generate(["a", "b"], GREEDY)
    for call in (client.get_output, client.reset_prefix_cache, lambda: client.add_request(request())):
        with pytest.raises(EngineDeadError, match="the step broke"):
            call()
    client.abort_requests(["a"])


def test_an_output_that_cannot_be_encoded_ends_the_engine_core_with_the_reason(llm):
    """An output that cannot be encoded ends the engine core, and the client gets the reason."""
    client = client_of(llm)
    outputs = EngineCoreOutputs(finished_requests={object()})  # type: ignore[arg-type]
    core_of(client).output_queue.put((0, outputs))
    with pytest.raises(EngineDeadError, match="cannot be sent to another process"):
        client.get_output()


def test_an_end_without_a_word_is_noticed(llm):
    """A waiting call fails when the engine core ends without a message, after all outputs sent before."""
    client = client_of(llm)
    client.add_request(request(max_tokens=2))
    assert [client.get_output().outputs[0].finish_reason for _ in range(2)] == [None, FinishReason.LENGTH]
    manager: Any = client.resources.engine_manager
    manager.close()
    with pytest.raises(EngineDeadError, match=r"ended while it was needed\. Its requests are lost"):
        client.get_output()
    with pytest.raises(EngineDeadError, match="ended while it was needed"):
        client.reset_prefix_cache()


def test_after_shutdown_nothing_is_left(llm):
    """After shutdown no thread, directory or engine core is left, calls fail, and a second shutdown does nothing."""
    client = client_of(llm)
    core = core_of(client)
    client.shutdown()
    client.shutdown()
    with pytest.raises(EngineDeadError, match="shut down"):
        client.get_output()
    with pytest.raises(EngineDeadError, match="shut down"):
        llm.generate("a", GREEDY)
    assert not core.input_thread.is_alive()
    assert not core.output_thread.is_alive()
    names = {thread.name for thread in threading.enumerate()}
    assert "EngineCoreOutputQueueThread" not in names


def test_headers_for_tracing_go_through_and_come_back(llm):
    """Trace headers reach the request in the engine core, and come back on its outputs."""
    client = client_of(llm)
    headers = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
    client.add_request(request(max_tokens=1, trace_headers=headers))
    assert client.get_output().outputs[0].trace_headers == headers


def test_the_asynchronous_client_serves_one_loop_after_another():
    """The asynchronous client serves requests and calls in one event loop after another, with the same engine core."""
    client = async_client()

    async def serve(request_id: str) -> list[int]:
        await client.add_request_async(request(request_id))
        tokens: list[int] = []
        while len(tokens) < 3:
            for output in (await client.get_output_async()).outputs:
                assert output.request_id == request_id
                tokens += output.new_token_ids
        assert await client.call_utility_async("get_request_counts") == [0, 0]
        assert await client.reset_prefix_cache_async() is True
        with pytest.raises(EngineError, match="no utility method"):
            await client.call_utility_async("nonsense")
        return tokens

    assert asyncio.run(serve("a")) == asyncio.run(serve("b"))
    client.shutdown()


def test_the_asynchronous_client_tells_everybody_of_an_error():
    """The asynchronous client reports an error to all waiting readers and callers, and to later ones."""
    client = async_client()

    def fail() -> Any:
        raise RuntimeError("the step broke")

    async def use() -> None:
        core_of(client).step_fn = fail  # type: ignore[method-assign]  # it breaks
        waiting = asyncio.create_task(client.get_output_async())
        await client.add_request_async(request())
        for waits in (waiting, client.get_output_async(), client.add_request_async(request("b"))):
            with pytest.raises(EngineDeadError, match="the step broke"):
                await waits
        with pytest.raises(EngineDeadError, match="the step broke"):
            await client.call_utility_async("get_request_counts")
        await client.abort_requests_async(["a"])

    asyncio.run(use())
    client.shutdown()


def test_the_asynchronous_client_can_be_shut_down_inside_its_loop():
    """Shutdown inside the event loop fails the waiting calls, and the loop ends without a warning."""
    client = async_client()

    async def use() -> None:
        waiting = asyncio.create_task(client.get_output_async())
        await asyncio.sleep(0)
        client.shutdown()
        with pytest.raises(EngineDeadError, match="shut down"):
            await waiting

    asyncio.run(use())


def test_the_last_words_are_those_of_vllm():
    """The last frame of the engine core is the one that vLLM's clients expect."""
    assert EngineCoreProc.ENGINE_CORE_DEAD == b"ENGINE_CORE_DEAD"
