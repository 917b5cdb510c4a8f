"""Tests of `AsyncLLM` with a real engine process: concurrent requests, early exits, errors and shutdown."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from tracellm import LLM, AsyncLLM, RequestOutput, SamplingParams, StructuredOutputsParams
from tracellm.engine.config.errors import EngineDeadError, EngineError, EngineGenerateError, InvalidRequestError
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.sampling_params import RequestOutputKind

PROMPTS = ["The capital of France is", "Hello", "1, 2, 3,", "法国的首都是"]
ENGINE: dict[str, Any] = {"dtype": "float32", "max_model_len": 256, "num_gpu_blocks_override": 257, "max_num_seqs": 64}
DELTA, CUMULATIVE, FINAL_ONLY = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE, RequestOutputKind.FINAL_ONLY

HANG_GUARD = 60  # seconds, after which a hanging test fails

Run = Callable[[Awaitable[Any]], Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a coroutine in this module's event loop."""
    with asyncio.Runner() as runner:

        async def guarded(awaitable: Awaitable[Any]) -> Any:
            return await asyncio.wait_for(awaitable, HANG_GUARD)

        yield lambda awaitable: runner.run(guarded(awaitable))


@pytest.fixture(scope="module")
def llm(run) -> Iterator[AsyncLLM]:
    """Shared `AsyncLLM`; each test leaves it idle."""
    engine = AsyncLLM("tiny", **ENGINE)
    yield engine
    engine.shutdown()


@pytest.fixture(autouse=True)
def leaves_it_idle(request) -> Iterator[None]:
    """Check after each test that no request is left, on either side of the sockets."""
    yield
    if "llm" in request.fixturenames:
        assert request.getfixturevalue("run")(is_idle(request.getfixturevalue("llm")))


async def is_idle(llm: AsyncLLM) -> bool:
    """Return whether no request is left on either side; aborts sent before are handled first."""
    counts = await llm.engine_core.call_utility_async("get_request_counts")
    free = await llm.engine_core.call_utility_async("get_num_free_blocks")
    processor = llm.output_processor
    return (list(counts), free, len(processor.request_states), len(processor.parent_requests)) == ([0, 0], 256, 0, 0)


def greedy(max_tokens: int = 12, **arguments: Any) -> SamplingParams:
    """Return greedy parameters with up to `max_tokens` tokens."""
    return SamplingParams(**{"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True} | arguments)


async def outputs_of(stream: AsyncIterator[RequestOutput]) -> list[RequestOutput]:
    """Return all outputs of a stream."""
    return [output async for output in stream]


async def last(stream: AsyncIterator[RequestOutput]) -> RequestOutput:
    """Return the last output of a stream."""
    return (await outputs_of(stream))[-1]


def ids(output: RequestOutput) -> list[list[int]]:
    """Return the tokens of each sequence."""
    return [list(completion.token_ids) for completion in output.outputs]


def test_the_same_tokens_as_llm(run, llm):
    """Greedy and seeded requests run at once get the tokens and log probabilities that `LLM` gives."""
    params = [
        greedy(logprobs=2),
        SamplingParams(seed=7, max_tokens=9, n=2),
        greedy(stop=["."]),
        greedy(prompt_logprobs=1),
    ]
    expected = LLM("tiny", **ENGINE).generate(PROMPTS, params, use_tqdm=False)

    async def all_at_once() -> list[RequestOutput]:
        jobs = zip(PROMPTS, params, strict=True)
        return await asyncio.gather(*(last(llm.generate(p, s, str(i))) for i, (p, s) in enumerate(jobs)))

    params[1].output_kind = FINAL_ONLY
    outputs = run(all_at_once())
    for output, wanted in zip(outputs, expected, strict=True):
        assert ids(output) == ids(wanted)
        assert [c.text for c in output.outputs] == [c.text for c in wanted.outputs]
        assert [c.finish_reason for c in output.outputs] == [c.finish_reason for c in wanted.outputs]
        assert (output.prompt, output.prompt_token_ids) == (wanted.prompt, wanted.prompt_token_ids)
    got, of_llm = outputs[0].outputs[0], expected[0].outputs[0]
    assert got.cumulative_logprob == pytest.approx(of_llm.cumulative_logprob, abs=1e-3)
    assert [len(of_token) for of_token in got.logprobs or ()] == [len(of_token) for of_token in of_llm.logprobs or ()]
    assert len(outputs[3].prompt_logprobs or ()) == len(expected[3].prompt_logprobs or ()) > 1
    assert all(output.metrics is not None for output in outputs)  # AsyncLLM keeps statistics by default


@pytest.mark.parametrize("n", [1, 3])
def test_kinds_of_output(run, llm, n):
    """DELTA outputs add up to the FINAL_ONLY output, as does the last CUMULATIVE one, for each of n sequences."""

    def params(kind: RequestOutputKind) -> SamplingParams:
        return SamplingParams(seed=3, n=n, max_tokens=8, ignore_eos=True, output_kind=kind)

    async def all_kinds() -> list[list[RequestOutput]]:
        kinds = (FINAL_ONLY, DELTA, CUMULATIVE)
        return await asyncio.gather(*(outputs_of(llm.generate(PROMPTS[0], params(k), k.name)) for k in kinds))

    final, deltas, cumulative = run(all_kinds())
    (whole,) = final
    assert [completion.index for completion in whole.outputs] == [*range(n)]
    for index, completion in enumerate(whole.outputs):
        of_index = [c for output in deltas for c in output.outputs if c.index == index]
        assert [token for c in of_index for token in c.token_ids] == completion.token_ids
        assert "".join(c.text for c in of_index) == completion.text
        (end,) = [c for output in cumulative for c in output.outputs if c.index == index and c.finished()]
        assert (end.token_ids, end.text) == (completion.token_ids, completion.text)
    for outputs in (final, deltas, cumulative):
        assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
        assert {output.request_id for output in outputs} == {
            (FINAL_ONLY, DELTA, CUMULATIVE)[(final, deltas, cumulative).index(outputs)].name
        }


def test_a_slow_reader_loses_nothing(run, llm):
    """Deltas that arrive while their reader is busy are merged into one output."""

    async def read_slowly() -> list[RequestOutput]:
        stream = llm.generate(PROMPTS[0], greedy(20, output_kind=DELTA), "slow")
        outputs = [await anext(stream)]
        await last(llm.generate(PROMPTS[1], greedy(40), "other"))
        return outputs + await outputs_of(stream)

    outputs = run(read_slowly())
    assert len(outputs) == 2
    expected = run(last(llm.generate(PROMPTS[0], greedy(20), "whole")))
    assert ids(outputs[0])[0] + ids(outputs[1])[0] == ids(expected)[0]
    assert outputs[1].finished


def test_a_reader_that_stops_gives_its_blocks_back(run, llm):
    """After `break` and `aclose` no block is held, and the next request with this id is served."""

    async def leave() -> None:
        for _ in range(2):
            stream = llm.generate(PROMPTS[0], greedy(200), "left")
            async for output in stream:
                assert not output.finished
                break
            await stream.aclose()
            assert await is_idle(llm)

    run(leave())


def test_an_error_that_is_thrown_into_a_stream_gives_the_request_up(run, llm):
    """Any exception thrown into a stream aborts its request, even one that looks like a refusal."""

    async def throw() -> None:
        for error in (ValueError("mine"), EngineGenerateError, KeyError("mine")):
            stream = llm.generate(PROMPTS[0], greedy(200), "thrown")
            await anext(stream)
            with pytest.raises((ValueError, EngineGenerateError)):
                await stream.athrow(error)
            assert not llm.output_processor.has_unfinished_requests()

    run(throw())


def test_a_forgotten_stream_is_given_up_too(run, llm):
    """A stream that is garbage-collected without `aclose` aborts its request."""

    async def forget() -> None:
        async for _ in llm.generate(PROMPTS[0], greedy(200, n=1), "forgotten"):
            break
        while llm.output_processor.has_unfinished_requests():
            await asyncio.sleep(0)

    run(forget())


@pytest.mark.parametrize("n", [1, 3])
def test_a_cancelled_task_gives_its_request_up(run, llm, n):
    """A cancelled task aborts all sequences of its request, and others continue."""
    params = SamplingParams(seed=1, n=n, max_tokens=200, ignore_eos=True)

    async def cancel() -> RequestOutput:
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in llm.generate(PROMPTS[0], params, "cancelled"):
                begun.set()

        other = asyncio.create_task(last(llm.generate(PROMPTS[1], greedy(30), "other")))
        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [state for state in llm.output_processor.request_states if "cancelled" in state] == []
        return await other

    assert len(ids(run(cancel()))[0]) == 30


def test_abort_from_outside(run, llm):
    """`abort` gives the reader a last output with the tokens so far, and ignores unknown ids."""

    async def abort() -> list[list[RequestOutput]]:
        streams = {name: llm.generate(PROMPTS[0], greedy(200), name) for name in ("a", "b", "c")}
        several = SamplingParams(n=2, max_tokens=200, ignore_eos=True, output_kind=FINAL_ONLY)
        streams["n"] = llm.generate(PROMPTS[0], several, "n")
        tasks = [asyncio.create_task(outputs_of(stream)) for stream in streams.values()]
        while len(llm.output_processor.request_states) < 5 or any(
            state.is_prefilling for state in llm.output_processor.request_states.values()
        ):
            await asyncio.sleep(0)
        await llm.abort("a")
        await llm.abort(["b", "never-was", "c", "n"])
        return await asyncio.gather(*tasks)

    *outputs, several = run(abort())
    for of_request in outputs:
        (completion,) = of_request[-1].outputs
        assert (of_request[-1].finished, completion.finish_reason) == (True, "abort")
        assert 1 <= len(completion.token_ids) < 200
    assert [c.finish_reason for c in several[-1].outputs] == ["abort"] * 2


def test_abort_while_a_request_of_many_sequences_is_being_added(run, llm):
    """An abort while sequences are being added stops adding them, and the reader gets the end."""
    params = SamplingParams(n=200, seed=1, max_tokens=100, ignore_eos=True)

    async def abort() -> RequestOutput:
        reading = asyncio.create_task(last(llm.generate(PROMPTS[0], params, "many")))
        while not llm.output_processor.parent_requests:
            await asyncio.sleep(0)
        await llm.abort("many")
        output = await reading
        assert not llm.output_processor.has_unfinished_requests()
        assert llm.output_processor.parent_requests == {}
        return output

    output = run(abort())
    assert output.finished
    assert 0 < len(output.outputs) < 200
    assert {completion.finish_reason for completion in output.outputs} == {"abort"}


def test_a_thousand_quick_aborts(run, llm):
    """A thousand requests aborted before, at and after their first token lose no block."""

    async def quick(number: int) -> None:
        stream = llm.generate(PROMPTS[number % 4], greedy(3), f"quick-{number}")
        if number % 3 == 0:
            task = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        elif number % 3 == 1:
            await anext(stream)
        else:
            queue = await llm.add_request(f"quick-{number}", PROMPTS[number % 4], greedy(3))
            await llm.abort(f"quick-{number}")
            assert (await queue.get()).outputs[0].finish_reason == "abort"
        await stream.aclose()

    async def all_of_them() -> None:
        for start in range(0, 1000, 50):
            await asyncio.gather(*(quick(number) for number in range(start, start + 50)))

    run(all_of_them())


def test_an_id_is_taken_while_its_request_runs(run, llm):
    """A second request with an id in use is refused and the first continues, also with several sequences."""

    async def twice(n: int) -> RequestOutput:
        params = SamplingParams(seed=1, n=n, max_tokens=10, ignore_eos=True, output_kind=FINAL_ONLY)
        first = asyncio.create_task(last(llm.generate(PROMPTS[0], params, "twice")))
        await asyncio.sleep(0)
        for second in (greedy(), SamplingParams(n=2)):
            with pytest.raises(InvalidRequestError, match="Request id twice already running"):
                await anext(llm.generate(PROMPTS[1], second, "twice"))
        return await first

    for n in (1, 2):
        assert [len(tokens) for tokens in ids(run(twice(n)))] == [10] * n


def test_one_that_fails_leaves_the_others_alone(run, llm):
    """A request refused by either side, or failed while it ran, raises its own error, and the others finish."""
    stuck = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["ab"]), allowed_token_ids=[5], n=2)
    jobs: list[tuple[Any, SamplingParams]] = [
        ("", greedy()),
        ({"prompt_token_ids": [10**9]}, greedy()),
        (PROMPTS[0], stuck),
        (PROMPTS[0], greedy()),
        (PROMPTS[1], "no params"),  # type: ignore[list-item]
        (PROMPTS[0], greedy()),
    ]

    async def all_at_once() -> list[RequestOutput | BaseException]:
        streams = [last(llm.generate(prompt, params, str(i))) for i, (prompt, params) in enumerate(jobs)]
        return await asyncio.gather(*streams, return_exceptions=True)

    results = run(all_at_once())
    for index in (0, 1, 2, 4):
        assert isinstance(results[index], InvalidRequestError)
    assert "no token is left" in str(results[2])
    assert ids(results[3])[0] == ids(results[5])[0]
    assert not llm.errored


def test_what_vllm_has_and_tracellm_has_not_is_refused_by_name(run, llm):
    """LoRA and pooling are refused, and a misspelled name is answered with the intended one."""
    with pytest.raises(InvalidRequestError, match="`lora_request`"):
        run(anext(llm.generate(PROMPTS[0], greedy(), "1", lora_request="x")))
    with pytest.raises(InvalidRequestError, match="Did you mean `priority`"):
        run(anext(llm.generate(PROMPTS[0], greedy(), "1", prioritty=1)))
    with pytest.raises(InvalidRequestError, match="This model does not support pooling"):
        run(anext(llm.encode("x", PoolingParams(task="embed"), "1")))
    for name, value in (("request_id", 5), ("priority", "high")):
        arguments: dict[str, Any] = {"request_id": "1", name: value}
        with pytest.raises(InvalidRequestError, match=f"`{name}` must be"):
            run(anext(llm.generate(PROMPTS[0], greedy(), **arguments)))


def test_what_can_be_asked_of_it(run, llm):
    """Health, tokenizer and settings are available, and the prefix cache can be reset when no request holds blocks."""
    run(llm.check_health())
    assert (llm.is_running, llm.errored, llm.is_stopped) == (True, False, False)
    assert run(llm.get_tokenizer()).encode("a") == llm.tokenizer.encode("a")
    assert run(llm.get_vllm_config()).model_config is run(llm.get_model_config())
    assert llm.vllm_config.cache_config.num_gpu_blocks == 257

    async def reset_while_running() -> bool:
        stream = llm.generate(PROMPTS[0], greedy(200), "1")
        await anext(stream)
        done = await llm.reset_prefix_cache()
        await stream.aclose()
        return done

    assert not run(reset_while_running())
    assert run(llm.reset_prefix_cache())


def test_trace_headers_go_there_and_back(run, llm):
    """Trace headers of a request come back on every output of the engine core."""
    seen: list[tuple[str, Any]] = []
    process_outputs = llm.output_processor.process_outputs

    def watched(outputs: Any, *arguments: Any) -> Any:
        seen.extend((output.request_id, output.trace_headers) for output in outputs)
        return process_outputs(outputs, *arguments)

    llm.output_processor.process_outputs = watched
    try:
        headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        run(last(llm.generate(PROMPTS[0], greedy(2), "traced", trace_headers=headers)))
        run(last(llm.generate(PROMPTS[0], greedy(2), "bare")))
    finally:
        del llm.output_processor.process_outputs
    assert seen == [("traced", headers)] * 2 + [("bare", None)] * 2


def test_another_loop_is_refused_while_this_one_lives(run, llm):
    """A second event loop is refused with advice, and the engine continues in its own loop."""
    run(llm.check_health())
    with pytest.raises(EngineError, match="in use in another event loop"):
        asyncio.run(anext(llm.generate(PROMPTS[0], greedy(), "1")))
    assert run(last(llm.generate(PROMPTS[0], greedy(), "1"))).finished


def test_one_loop_after_another_then_shutdown():
    """Requests left by one `asyncio.run` are aborted, and the next has all blocks; shutdown can be repeated."""
    llm = AsyncLLM(**ENGINE, disable_log_stats=True)  # made outside an event loop
    assert llm.is_running
    assert llm.prometheus_registry is None

    async def leave() -> None:
        for number in range(3):
            asyncio.create_task(outputs_of(llm.generate(PROMPTS[0], greedy(200), str(number))))  # noqa: RUF006
        while not llm.output_processor.request_states:
            await asyncio.sleep(0)

    async def shut_down_while_reading() -> None:
        assert await is_idle(llm)
        stream = llm.generate(PROMPTS[0], greedy(200), "1")
        await anext(stream)
        llm.shutdown()
        llm.shutdown()
        assert llm.errored
        with pytest.raises(EngineDeadError, match="shut down"):
            await last(stream)
        for attempt in (anext(llm.generate(PROMPTS[0], greedy(), "2")), llm.check_health()):
            with pytest.raises(EngineDeadError, match="has been shut down"):
                await attempt

    asyncio.run(asyncio.wait_for(leave(), HANG_GUARD))
    asyncio.run(asyncio.wait_for(shut_down_while_reading(), HANG_GUARD))
    llm.shutdown()


def test_when_the_engine_process_is_killed():
    """After the engine process is killed, all calls raise `EngineDeadError`, `errored` is True, and shutdown works."""

    async def kill() -> None:
        llm = AsyncLLM(**ENGINE)
        streams = [llm.generate(PROMPTS[0], greedy(200), str(number)) for number in range(5)]
        await asyncio.gather(*(anext(stream) for stream in streams))
        manager = llm.engine_core.resources.engine_manager
        assert manager is not None
        assert manager.processes[0].pid is not None
        os.kill(manager.processes[0].pid, signal.SIGKILL)
        results = await asyncio.gather(*(last(stream) for stream in streams), return_exceptions=True)
        assert {type(result) for result in results} == {EngineDeadError}
        assert len({id(result) for result in results}) == 5
        assert llm.errored
        for attempt in (anext(llm.generate(PROMPTS[0], greedy(), "x")), llm.check_health(), llm.reset_prefix_cache()):
            with pytest.raises(EngineDeadError):
                await attempt
        assert not llm.output_processor.has_unfinished_requests()
        llm.shutdown()

    asyncio.run(asyncio.wait_for(kill(), HANG_GUARD))


def test_a_constraint_is_compiled_beside_other_requests(run, llm, monkeypatch):
    """While the constraint of one request is compiled, another request gets its tokens."""
    compiled = threading.Event()
    validate = llm.processor.validate_structured_output

    def compile_for_long(params: SamplingParams) -> None:
        if params.structured_outputs is not None:
            assert compiled.wait(HANG_GUARD / 2), "the event loop waits for the compilation"
        validate(params)

    monkeypatch.setattr(llm.processor, "validate_structured_output", compile_for_long)

    async def last(params: SamplingParams, request_id: str) -> RequestOutput:
        return [output async for output in llm.generate("Hello", params, request_id)][-1]

    async def both() -> tuple[RequestOutput, RequestOutput]:
        constrained = greedy(structured_outputs=StructuredOutputsParams(choice=["yes", "no"]))
        waiting = asyncio.create_task(last(constrained, "constrained"))
        await asyncio.sleep(0)
        free = await last(greedy(3), "free")
        assert not waiting.done()
        compiled.set()
        return free, await waiting

    free, constrained = run(both())
    assert len(free.outputs[0].token_ids) == 3
    assert constrained.outputs[0].text.startswith(("yes", "no"))
