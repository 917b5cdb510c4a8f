"""Tests of several engine cores behind one `AsyncLLM`: real processes, their coordinator, waves and load."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest

from tests.faults.processes import HANG_GUARD, wait_until
from tracellm import LLM, AsyncLLM, SamplingParams
from tracellm.engine.config.errors import EngineDeadError, EngineError, InvalidRequestError
from tracellm.engine.core.core import EngineCore
from tracellm.engine.core.dp_core_proc import DPEngineCoreProc
from tracellm.engine.ipc.coordinator import DPCoordinatorProc
from tracellm.engine.ipc.dp_client import DPLBAsyncMPClient
from tracellm.engine.ipc.messages import EngineCoreOutputs
from tracellm.engine.metrics.stats import SchedulerStats

ENGINE: dict[str, Any] = {"dtype": "float32", "max_model_len": 256, "num_gpu_blocks_override": 65}
PROMPTS = ["The capital of France is", "Hello", "1, 2, 3,", "法国的首都是"]

Run = Callable[[Awaitable[Any]], Any]


def greedy(max_tokens: int) -> SamplingParams:
    """Return greedy parameters for exactly `max_tokens` tokens."""
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


async def tokens(llm: AsyncLLM, prompt: str, max_tokens: int, request_id: str, rank: int | None = None) -> list[int]:
    """Return the generated tokens."""
    async for output in llm.generate(prompt, greedy(max_tokens), request_id, data_parallel_rank=rank):
        if output.finished:
            return list(output.outputs[0].token_ids)
    raise AssertionError("the stream ended early")


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Run a coroutine in this module's event loop."""
    with asyncio.Runner() as runner:
        yield lambda awaitable: runner.run(asyncio.wait_for(awaitable, HANG_GUARD))


@pytest.fixture(scope="module")
def llm(run: Run) -> Iterator[AsyncLLM]:
    """Return an `AsyncLLM` with two engine cores."""
    engine = AsyncLLM("tiny", data_parallel_size=2, **ENGINE)
    yield engine
    engine.shutdown()


def client_of(llm: AsyncLLM) -> DPLBAsyncMPClient:
    """Return the client, with the statistics that have arrived."""
    client = llm.engine_core
    assert isinstance(client, DPLBAsyncMPClient)
    client._update_stats()
    return client


async def until_idle(llm: AsyncLLM) -> int:
    """Wait until the wave has ended and no request is counted; return the next wave."""
    while client_of(llm).engines_running or client_of(llm).lb_engines != [(0, 0), (0, 0)]:
        await asyncio.sleep(0.01)
    return client_of(llm).current_wave


def served(llm: AsyncLLM) -> list[float]:
    """Return the number of finished requests of each engine core."""
    registry = llm.prometheus_registry
    assert registry is not None
    lines = generate_latest(registry).decode().splitlines()
    done = [line for line in lines if line.startswith("vllm:request_success_total") and 'reason="length"' in line]
    return [sum(float(line.split()[-1]) for line in done if f'engine="{index}"' in line) for index in range(2)]


def test_tokens_are_those_of_one_engine_core(run: Run, llm: AsyncLLM) -> None:
    """Both engine cores serve requests, and the tokens are those of an `LLM`."""

    async def together() -> list[list[int]]:
        return await asyncio.gather(*(tokens(llm, prompt, 40, prompt) for prompt in PROMPTS))

    before = served(llm)
    found = run(together())
    expected = LLM("tiny", **ENGINE).generate(PROMPTS, greedy(40), use_tqdm=False)
    assert found == [output.outputs[0].token_ids for output in expected]
    assert [now - then for now, then in zip(served(llm), before, strict=True)] == [2, 2]


def test_a_request_goes_to_the_engine_core_it_names(run: Run, llm: AsyncLLM) -> None:
    """`data_parallel_rank` chooses the engine core; a rank that does not exist is refused."""
    before = served(llm)
    for number in range(2):
        run(tokens(llm, "Hello", 4, f"named-{number}", rank=1))
    assert [now - then for now, then in zip(served(llm), before, strict=True)] == [0, 2]
    with pytest.raises(InvalidRequestError, match=r"data_parallel_rank 2 is out of range \[0, 2\)"):
        run(tokens(llm, "Hello", 4, "nowhere", rank=2))


def test_a_request_goes_to_the_smallest_load(run: Run, llm: AsyncLLM) -> None:
    """A waiting request counts as much as four running ones; of equal loads the first engine core is chosen."""
    run(until_idle(llm))
    client, request = client_of(llm), llm.processor.process_inputs("1", "Hello", greedy(4))
    for counts, index in (([(0, 0)] * 2, 0), ([(1, 0), (0, 3)], 1), ([(1, 0), (0, 5)], 0), ([(0, 4), (1, 0)], 0)):
        client.lb_engines = list(counts)
        assert client.get_core_engine_for_request(request) == client.core_engines[index]
    client.lb_engines = [(0, 0)] * 2


def test_waves_begin_and_end_together(run: Run, llm: AsyncLLM) -> None:
    """A wave starts with a request for any engine core, and ends for all when no request is left."""

    async def waves() -> list[int]:
        found = [await until_idle(llm)]
        for rank in (0, 1, 1, 0):
            await tokens(llm, "Hello", 4, "one", rank=rank)
            found.append(await until_idle(llm))
        return found

    first, *later = run(waves())
    assert later == [first + number for number in range(1, 5)]


def test_a_request_after_the_end_of_its_wave_starts_the_next(run: Run, llm: AsyncLLM) -> None:
    """A request that the client sent in a wave that has ended is served, in a wave of all engine cores."""

    async def late() -> tuple[int, list[int], int]:
        before = await until_idle(llm)
        client = client_of(llm)
        client.current_wave, client.engines_running = before - 1, True  # the end of the wave has not arrived
        found = await tokens(llm, "Hello", 40, "late", rank=1)
        return before, found, await until_idle(llm)

    run(tokens(llm, "Hello", 4, "early"))
    before, found, after = run(late())
    assert len(found) == 40
    assert after == before + 1


def test_an_abort_goes_to_the_engine_core_of_its_request(run: Run, llm: AsyncLLM) -> None:
    """After early exits no engine core has a request or a block left, and an id can be used again at once."""

    async def leave(rank: int) -> None:
        stream = llm.generate("Hello", greedy(200), "left", data_parallel_rank=rank)
        await anext(stream)
        await stream.aclose()

    async def leave_and_come_back() -> list[int]:
        await leave(0)
        await leave(1)
        return await tokens(llm, "Hello", 8, "left", rank=0)

    assert run(leave_and_come_back()) == run(tokens(llm, "Hello", 8, "other"))
    run(until_idle(llm))
    client = client_of(llm)
    assert run(client._call_all("get_request_counts")) == [[0, 0], [0, 0]]
    assert run(client._call_all("get_num_free_blocks")) == [64, 64]
    assert run(llm.reset_prefix_cache())
    assert client.reqs_in_flight == {}


def test_llm_has_one_engine_core() -> None:
    """`LLM` refuses several engine cores, as vLLM's does, and names what has them."""
    with pytest.raises(EngineError, match=r"LLM has one engine core, got data_parallel_size=2"):
        LLM("tiny", data_parallel_size=2)


@pytest.mark.parametrize("victim", ["EngineCore_DP0", "EngineCore_DP1", "DP_Coordinator"])
def test_the_death_of_one_process_ends_all(run: Run, victim: str) -> None:
    """When an engine core or the coordinator is killed, every caller gets its name, and no process is left."""
    llm = AsyncLLM("tiny", data_parallel_size=2, **ENGINE)
    manager = llm.engine_core.resources.engine_manager
    assert manager is not None
    processes = {process.name: process for process in manager.processes}

    async def kill() -> list[Any]:
        streams = [llm.generate("Hello", greedy(200), str(number)) for number in range(4)]
        await asyncio.gather(*(anext(stream) for stream in streams))
        pid = processes[victim].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        rest = [tokens(llm, "Hello", 200, "later"), *(_rest(stream) for stream in streams)]
        return await asyncio.gather(*rest, return_exceptions=True)

    for error in run(kill()):
        assert isinstance(error, EngineDeadError)
        assert f"The engine process {victim} was killed by SIGKILL while it was needed" in str(error)
    wait_until(lambda: not any(process.is_alive() for process in processes.values()), "the end of all processes")
    llm.shutdown()


async def _rest(stream: Any) -> None:
    async for _ in stream:
        pass


def test_an_error_at_start_up_ends_all(run: Run) -> None:
    """An engine core that cannot start gives its own error, and ends the others and the coordinator."""
    before = multiprocessing.active_children()
    with pytest.raises(EngineError, match="KV cache"):
        AsyncLLM("tiny", data_parallel_size=2, kv_cache_memory_bytes=1024)
    wait_until(lambda: multiprocessing.active_children() == before, "the end of all processes")


class _Sent(list[Any]):
    """A socket that keeps its messages."""

    def send(self, message: bytes) -> None:
        self.append(message)

    send_multipart = send


def test_the_coordinator_starts_a_wave_once() -> None:
    """The earliest of several first requests starts the wave; an end that is older than a start changes nothing."""
    coordinator = DPCoordinatorProc(2)
    published: Any = _Sent()
    sent: Any = _Sent()
    coordinator.publish_front, coordinator.publish_back = published, sent
    coordinator._handle_first_request(engine_index=1, wave=0)
    coordinator._handle_first_request(engine_index=0, wave=0)
    assert len(sent) == 1
    coordinator._handle_outputs(EngineCoreOutputs(engine_index=1, start_wave=1))
    coordinator._handle_outputs(EngineCoreOutputs(engine_index=0, wave_complete=0))
    assert (coordinator.current_wave, coordinator.engines_running) == (1, True)
    coordinator._handle_outputs(EngineCoreOutputs(engine_index=0, wave_complete=1))
    assert (coordinator.current_wave, coordinator.engines_running) == (2, False)
    coordinator._handle_outputs(EngineCoreOutputs(engine_index=1, scheduler_stats=SchedulerStats(3, 2)))
    assert coordinator.counts == [(0, 0), (2, 3)]
    assert coordinator.stats_changed


def test_a_request_starts_its_engine_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine core runs on after a request that is aborted before its first step, as the others have been started."""
    core: Any = object.__new__(DPEngineCoreProc)
    core.request_waves, core.current_wave, core.engines_running = {"a": 0}, 0, False
    monkeypatch.setattr(EngineCore, "add_request", lambda self, request: None)
    core.add_request(SimpleNamespace(request_id="a"))
    assert core.engines_running
