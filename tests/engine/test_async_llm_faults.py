"""Tests of `AsyncLLM` with a fake engine core, for rare faults, and of the ways to construct one."""

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from tracellm import AsyncLLM, SamplingParams
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineDeadError, EngineError, EngineGenerateError, InvalidRequestError
from tracellm.engine.ipc.core_client import EngineCoreClient
from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from tracellm.engine.metrics.loggers import StatLoggerBase
from tracellm.engine.sample.sampling_params import RequestOutputKind

PROMPT = {"prompt_token_ids": [5, 6, 7]}
HANG_GUARD = 30  # seconds


class MadeUpClient:
    """Client that records its calls, and returns the test's `outputs`; an exception among them is raised."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.added: list[EngineCoreRequest] = []
        self.aborted: list[str] = []
        self.outputs: asyncio.Queue[EngineCoreOutputs | Exception] = asyncio.Queue()
        self.refuse: dict[str, Exception] = {}
        """Exceptions that `add_request_async` raises, by request id."""
        self.resources = SimpleNamespace(engine_dead=False, dead_error=lambda: EngineDeadError("it is dead"))

    async def get_output_async(self) -> EngineCoreOutputs:
        outputs = await self.outputs.get()
        if isinstance(outputs, Exception):
            raise outputs
        return outputs

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        if request.request_id in self.refuse:
            raise self.refuse[request.request_id]
        self.added.append(request)

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        self.aborted += request_ids

    def shutdown(self) -> None:
        self.resources.engine_dead = True

    def bring(self, *outputs: EngineCoreOutput) -> None:
        """Add a step's outputs."""
        self.outputs.put_nowait(EngineCoreOutputs(outputs=list(outputs)))


@pytest.fixture(autouse=True)
def made_up(monkeypatch) -> None:
    """Use the fake client; no engine core is started in these tests."""
    monkeypatch.setattr(EngineCoreClient, "make_async_mp_client", staticmethod(MadeUpClient))


def make(**arguments: Any) -> tuple[AsyncLLM, Any]:
    """Make an engine without tokenizer, and return it with its client."""
    llm = AsyncLLM(**{"max_model_len": 64, "skip_tokenizer_init": True, "disable_log_stats": True} | arguments)
    return llm, llm.engine_core


def run(coroutine: Any) -> Any:
    """Run a coroutine in a new event loop."""
    return asyncio.run(asyncio.wait_for(coroutine, HANG_GUARD))


def params(n: int = 1) -> SamplingParams:
    """Return parameters for deltas."""
    return SamplingParams(n=n, max_tokens=9, output_kind=RequestOutputKind.DELTA)


def nothing_is_left(llm: AsyncLLM) -> bool:
    """Return whether the front end has no request left."""
    return not llm.output_processor.request_states and not llm.output_processor.parent_requests


async def until(condition: Any) -> None:
    """Let other tasks run until the condition holds."""
    while not condition():
        await asyncio.sleep(0)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("error", [InvalidRequestError("too large"), EngineDeadError("gone"), OSError("no luck")])
def test_a_request_that_cannot_be_sent_leaves_nothing_behind(n, error):
    """A request that cannot be sent is removed here, and its sequences are aborted in the engine core."""

    async def refused() -> None:
        llm, client = make()
        client.refuse = {"r": error, "1_r": error}
        wanted = EngineGenerateError if isinstance(error, OSError) else type(error)
        with pytest.raises(wanted, match=str(error)):
            await anext(llm.generate(PROMPT, params(n), "r"))
        assert nothing_is_left(llm)
        assert client.aborted == (["r"] if n == 1 else ["0_r", "1_r"])

    run(refused())


def test_a_child_that_is_done_early_does_not_end_the_request():
    """All sequences are registered before the first is sent, so an early finished child does not end the request."""

    async def early() -> None:
        llm, client = make()
        stream = llm.generate(PROMPT, params(200), "r")
        reading = asyncio.create_task(anext(stream))
        await until(lambda: client.added)
        assert len(client.added) < 200  # other tasks run in between
        client.bring(EngineCoreOutput("0_r", [1], finish_reason=FinishReason.LENGTH))
        output = await reading
        assert ([c.index for c in output.outputs], output.finished) == ([0], False)
        assert len(client.added) == 200
        await stream.aclose()
        assert len(client.aborted) == 199
        assert nothing_is_left(llm)

    run(early())


def test_a_fault_of_ours_is_an_engine_generate_error():
    """An internal fault raises `EngineGenerateError` with the request's id, and the engine continues."""

    async def fail() -> None:
        llm, client = make()
        stream = llm.generate(PROMPT, params(), "r")
        reading = asyncio.create_task(anext(stream))
        await until(lambda: client.added)
        del vars(llm.output_processor.request_states["r"])["logprobs_processor"]  # internal fault
        client.bring(EngineCoreOutput("r", [1]))
        with pytest.raises(EngineGenerateError, match=r"Request 'r' has failed.*AttributeError.*can be used again"):
            await reading
        assert client.aborted == ["r"]
        assert nothing_is_left(llm)
        reading = asyncio.create_task(anext(llm.generate(PROMPT, params(), "r")))
        await until(lambda: len(client.added) == 2)
        client.bring(EngineCoreOutput("r", [4]))
        assert list((await reading).outputs[0].token_ids) == [4]

    run(fail())


@pytest.mark.parametrize("error", [EngineDeadError("it was killed"), RuntimeError("a fault")])
def test_when_no_more_outputs_come_everybody_is_told(error, caplog):
    """When outputs end, readers get the error, later calls a dead engine, and only a fault is logged."""

    async def end() -> None:
        llm, client = make()
        reading = [asyncio.create_task(anext(llm.generate(PROMPT, params(n), str(n)))) for n in (1, 2, 3)]
        await until(lambda: len(client.added) == 6)
        client.outputs.put_nowait(error)
        results = await asyncio.gather(*reading, return_exceptions=True)
        wanted = EngineDeadError if isinstance(error, EngineDeadError) else EngineGenerateError
        assert {type(result) for result in results} == {wanted}
        assert all(str(error) in str(result) for result in results)
        assert llm.errored
        assert not llm.is_running
        for attempt in (anext(llm.generate(PROMPT, params(), "later")), llm.check_health()):
            with pytest.raises(EngineDeadError):
                await attempt

    run(end())
    assert bool(caplog.records) == isinstance(error, RuntimeError)
    caplog.clear()


def test_other_tasks_run_while_many_outputs_are_processed():
    """The outputs of a large step are processed in chunks, with other tasks in between."""

    async def many() -> None:
        llm, client = make()
        queues = [await llm.add_request(str(number), PROMPT, params()) for number in range(300)]
        llm._run_output_handler()
        client.bring(*(EngineCoreOutput(str(number), [1]) for number in range(300)))
        seen = set()
        while (done := sum(queue.output is not None for queue in queues)) < 300:
            seen.add(done)
            await asyncio.sleep(0)
        assert seen - {0} == {128, 256}

    run(many())


def test_a_stop_string_ends_the_request_in_the_engine_core_too():
    """A stop string aborts the request in the engine core, which has no text."""

    async def stop() -> None:
        llm, client = make(skip_tokenizer_init=False)
        token_ids = llm.tokenizer.encode("Paris. It", add_special_tokens=False)  # type: ignore[union-attr]
        stream = llm.generate("France", SamplingParams(stop=["."]), "r")
        reading = asyncio.create_task(anext(stream))
        await until(lambda: client.added)
        client.bring(EngineCoreOutput("r", token_ids))
        output = await reading
        assert (output.outputs[0].text, output.finished) == ("Paris", True)
        await until(lambda: client.aborted)
        assert client.aborted == ["r"]

    run(stop())


def test_an_id_in_other_hands_is_not_aborted():
    """A reader that exits late does not abort a newer request with the same id."""

    async def late() -> None:
        llm, client = make()
        first = llm.generate(PROMPT, params(), "r")
        reading = asyncio.create_task(anext(first))
        await until(lambda: client.added)
        client.bring(EngineCoreOutput("r", [1]))
        await reading
        client.bring(EngineCoreOutput("r", [2], finish_reason=FinishReason.LENGTH))
        await until(lambda: nothing_is_left(llm))
        second = asyncio.create_task(anext(llm.generate(PROMPT, params(), "r")))
        await until(lambda: len(client.added) == 2)
        await first.aclose()
        assert client.aborted == []
        client.bring(EngineCoreOutput("r", [3]))
        assert list((await second).outputs[0].token_ids) == [3]

    run(late())


def test_it_is_collected_while_its_task_runs():
    """The output task does not keep the engine alive, and its engine core ends with it."""

    async def forget() -> tuple[Any, Any]:
        llm, client = make()
        assert llm.output_handler is not None
        return weakref.ref(llm), client

    async def look() -> None:
        reference, client = await forget()
        gc.collect()
        assert reference() is None
        assert client.resources.engine_dead

    run(look())


def test_ways_to_make_one():
    """An engine is made from a model and arguments or from a configuration, as in vLLM, with statistics by default."""
    by_name, _ = make(max_model_len=32, disable_log_stats=False)
    assert (by_name.model_config.max_model_len, by_name.log_stats) == (32, True)
    config = by_name.vllm_config
    by_position = AsyncLLM("tiny", max_model_len=32)
    assert (by_position.model_config.model, by_position.log_stats) == (config.model_config.model, True)
    for made, log_stats in (
        (AsyncLLM(config), True),
        (AsyncLLM(config, None, False), False),
        (AsyncLLM.from_vllm_config(config), True),
        (AsyncLLM.from_vllm_config(config, disable_log_stats=True), False),
    ):
        assert made.vllm_config is config
        assert (made.log_stats, made.engine_core.settings["log_stats"]) == (log_stats, log_stats)  # type: ignore[attr-defined]
        assert (made.prometheus_registry is None) is not log_stats
    scheduler_config = by_position.vllm_config.scheduler_config
    assert (scheduler_config.max_num_batched_tokens, scheduler_config.max_num_seqs) == (2048, 128)  # as in vLLM
    args = EngineArgs(max_model_len=32, disable_log_stats=False)
    assert AsyncLLM.from_engine_args(args).log_stats
    assert not AsyncLLM.from_engine_args(EngineArgs(max_model_len=32)).log_stats


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"modell": "tiny"}, r"no argument `modell`. Did you mean `model`"),
        ({"log_stats": False}, r"`executor_class` and `log_stats` go with a VllmConfig.*disable_log_stats"),
        ({"model": "tiny", "vllm_config": "tiny"}, "two models"),
        ({"enable_lora": True}, "tracellm does not have `enable_lora`"),
    ],
)
def test_what_cannot_be_is_refused(arguments, message):
    """Invalid arguments are refused in one message, before anything starts."""
    with pytest.raises(EngineError, match=message):
        AsyncLLM(**arguments)


def test_the_two_ways_do_not_mix():
    """A configuration with further arguments is refused."""
    llm, _ = make()
    with pytest.raises(EngineError, match="goes without `max_model_len`"):
        AsyncLLM(llm.vllm_config, max_model_len=32)


def test_a_stat_logger_of_ones_own_is_fed():
    """A custom stat logger gets statistics even without the default loggers."""
    seen: list[Any] = []

    class Own(StatLoggerBase):
        def __init__(self, vllm_config, engine_index=0):
            pass

        def record(self, scheduler_stats, iteration_stats, engine_idx=0):
            seen.append(iteration_stats and iteration_stats.num_generation_tokens)

        def log_engine_initialized(self):
            pass

        def log(self):
            seen.append("log")

    async def feed() -> None:
        llm, client = make(stat_loggers=[Own])
        assert llm.log_stats
        reading = asyncio.create_task(anext(llm.generate(PROMPT, params(), "r")))
        await until(lambda: client.added)
        client.bring(EngineCoreOutput("r", [1, 2], finish_reason=FinishReason.LENGTH))
        await reading
        client.bring()
        await until(lambda: len(seen) == 2)
        await llm.do_log_stats()

    run(feed())
    assert seen == [2, None, "log"]
