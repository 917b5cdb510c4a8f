"""Tests of request ids that are reused at once: outputs of the old request are dropped."""

import asyncio

from tests.engine.clients.in_thread import core_of, engines_in_threads
from tests.engine.core_requests import core_request
from tracellm import AsyncLLM, SamplingParams
from tracellm.engine.core.core_proc import EngineCoreProc
from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreOutputs, FinishReason
from tracellm.engine.ipc.mp_client import MPClient, SyncMPClient

LONG = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
SHORT = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)


def outputs_of(client: SyncMPClient) -> list[EngineCoreOutput]:
    """Return all outputs until a request has ended."""
    outputs: list[EngineCoreOutput] = []
    while not any(output.finished for output in outputs):
        outputs += client.get_output().outputs
    return outputs


def test_outputs_of_a_request_that_was_given_up_are_not_those_of_its_successor(client):
    """A reused id gets no outputs of aborted requests, however many steps ran before the abort was read."""
    client.add_request(core_request("b", [9, 8, 7], SHORT))
    expected = [output.new_token_ids for output in outputs_of(client)]
    for _ in range(3):
        client.add_request(core_request("a", [1, 2, 3], LONG))
        client.get_output()
        client.abort_requests(["a"])
        client.add_request(core_request("a", [4, 5, 6], LONG))
        client.abort_requests(["a", "never there"])
        client.add_request(core_request("a", [9, 8, 7], SHORT))
        assert [output.new_token_ids for output in outputs_of(client)] == expected
    assert not client._aborted
    assert core_of(client).aborted == []


def test_a_refusal_comes_after_the_end_of_the_one_before(client, monkeypatch):
    """The engine core's refusal of a reused id is not dropped with the old request's outputs."""
    monkeypatch.setattr(MPClient, "_validate", lambda self, request: None)
    client.add_request(core_request("a", [1, 2, 3], LONG))
    client.get_output()
    client.abort_requests(["a"])
    client.add_request(core_request("a", [1] * 300, SHORT))
    (refused,) = outputs_of(client)
    assert refused.finish_reason is FinishReason.ERROR


def test_outputs_that_were_on_their_way_are_passed_over(client):
    """Only outputs under an id with an unconfirmed abort are dropped."""
    core: EngineCoreProc = core_of(client)
    client._aborted["a"] = 1
    late = EngineCoreOutputs(outputs=[EngineCoreOutput("a", [1]), EngineCoreOutput("b", [2])])
    core.output_queue.put((0, late))
    core.output_queue.put((0, EngineCoreOutputs(outputs=[EngineCoreOutput("a", [3])], finished_requests=["a"])))
    assert [output.new_token_ids for _ in range(2) for output in client.get_output().outputs] == [[2], [3]]


def test_a_stream_under_an_id_that_has_just_been_used():
    """A stream under an id that was just used has its own tokens only, after a stop string or an early exit."""

    async def use() -> None:
        with engines_in_threads():
            llm = AsyncLLM("tiny", max_model_len=128, disable_log_stats=True)

        async def tokens(prompt: str, params: SamplingParams) -> list[int]:
            stream = llm.generate(prompt, params, request_id="1")
            async for output in stream:
                if output.finished or params is LONG:
                    break
            await stream.aclose()
            return list(output.outputs[0].token_ids)

        expected = await tokens("The capital of France is", SHORT)
        for params in (LONG, SamplingParams(temperature=0, max_tokens=100, ignore_eos=True, stop=["a"])):
            await tokens("Once upon a time", params)
            assert await tokens("The capital of France is", SHORT) == expected
        llm.shutdown()

    asyncio.run(use())
