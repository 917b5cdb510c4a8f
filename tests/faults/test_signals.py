"""SIGTERM and Ctrl-C at any moment: running requests may finish, and no process, file or shared memory is left."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.faults.http import COMPLETIONS, Connection, request, run, stream
from tests.faults.processes import Program, Server, is_running, wait_until

LLM_SCRIPT = """
from tracellm import LLM, SamplingParams
llm = LLM(multiprocess_mode=True, max_model_len=1024)
print("ready")
while True:
    llm.generate(["a"] * 8, SamplingParams(max_tokens=100, ignore_eos=True), use_tqdm=False)
    print("generated")
"""
ASYNC_SCRIPT = """
import asyncio
from tracellm import AsyncLLM, SamplingParams

async def main():
    llm = AsyncLLM(max_model_len=1024)
    async def generate(name):
        async for output in llm.generate("a", SamplingParams(max_tokens=1000, ignore_eos=True), name):
            if len(output.outputs[0].token_ids) == 2:
                print("generated")
    await asyncio.gather(*(generate(str(number)) for number in range(5)))

asyncio.run(main())
"""


def shared_memory_of(pid: int) -> list[str]:
    """Return the named shared memory of a process, which could be left behind."""
    return [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/dev/shm/" in line]


@pytest.mark.parametrize("script", [LLM_SCRIPT, ASYNC_SCRIPT], ids=["LLM", "AsyncLLM"])
def test_ctrl_c_while_generating(script):
    """A script interrupted by the terminal ends by KeyboardInterrupt, and its engine ends silently."""
    with Program.of_code(script) as program:
        program.lines_until("generated")
        engine = program.engine()
        assert shared_memory_of(program.pid) == shared_memory_of(engine) == []
        program.ctrl_c()
        assert program.end() == -signal.SIGINT
        assert program.leftovers() == []
        # asyncio.run prints a traceback of two parts: the cancelled task, and its cause.
        assert program.stderr().count("Traceback") == (2 if script is ASYNC_SCRIPT else 1)
        assert program.stderr().strip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("script", [LLM_SCRIPT, ASYNC_SCRIPT], ids=["LLM", "AsyncLLM"])
def test_ctrl_c_while_the_engine_starts(script):
    """A script interrupted before the model is loaded ends at once, with its started process."""
    with Program.of_code(script) as program:
        engine = program.engine()
        if script is ASYNC_SCRIPT:  # asyncio would wait for it
            os.kill(engine, signal.SIGSTOP)  # it never becomes ready
        program.ctrl_c()
        assert program.end() == -signal.SIGINT
        assert program.leftovers() == []
        assert program.stderr().strip().endswith("KeyboardInterrupt")


def test_sigterm_lets_streams_finish():
    """After SIGTERM new connections are refused, a running stream gets all its tokens, and the status is 0."""
    with Server("--shutdown-timeout=80") as server:
        engine = server.engine()
        assert shared_memory_of(server.pid) == shared_memory_of(engine) == []

        async def drain() -> list[str]:
            body = {"prompt": "a", "max_tokens": 300, "ignore_eos": True, "stream_options": {"include_usage": True}}
            connection = await stream(server.port, body)
            reader = connection.events()
            events = [await anext(reader)]
            server.send(signal.SIGTERM)
            while True:
                try:
                    await (await Connection.open(server.port)).close()
                except ConnectionRefusedError:
                    break
                events.append(await anext(reader))
            events += [event async for event in reader]
            await connection.close()
            return events

        *_, last, usage, done = run(drain())
        assert done == "[DONE]"
        assert '"finish_reason":"length"' in last
        assert '"completion_tokens":300' in usage
        assert server.end() == 0
        assert not is_running(engine)
        assert server.leftovers() == []
        assert "Traceback" not in server.stderr()


def test_a_second_ctrl_c_gives_up_what_runs():
    """The first Ctrl-C lets a long stream go on; the second ends it with an error or cut off."""
    with Server("--shutdown-timeout=80") as server:

        async def interrupt_twice() -> list[str]:
            connection = await stream(server.port, {"prompt": "a", "max_tokens": 1000, "ignore_eos": True})
            reader = connection.events()
            events = [await anext(reader)]
            server.ctrl_c()
            while True:  # until the first takes effect
                try:
                    await (await Connection.open(server.port)).close()
                except ConnectionRefusedError:
                    break
                events.append(await anext(reader))
            server.ctrl_c()
            try:
                async for event in reader:
                    events.append(event)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            return events

        events = run(interrupt_twice())
        assert not any('"finish_reason":"length"' in event for event in events)
        assert server.end() == 130
        assert server.leftovers() == []
        assert "Traceback" not in server.stderr()


def test_clients_that_hold_it_up_are_not_waited_for():
    """After SIGTERM and its timeout, unfinished bodies and unread streams get an error, and the status is 0."""
    with Server("--shutdown-timeout=1") as server:

        async def hold_up() -> int:
            slow = await Connection.open(server.port)
            await slow.send(request("POST", COMPLETIONS, b'{"prompt": ', content_length="500"))
            unread = {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "logprobs": 5}
            for _ in range(3):
                (await stream(server.port, unread)).writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that reads
            server.send(signal.SIGTERM)
            return (await slow.answer()).status

        assert run(hold_up()) == 503
        assert server.end() == 0
        assert server.leftovers() == []
        assert "Traceback" not in server.stderr()


def test_sigterm_while_the_server_starts():
    """SIGTERM during the loading of the model ends the server and its engine process at once, with status 0."""
    with Server(wait=False) as server:
        engine = server.engine()
        server.send(signal.SIGTERM)
        assert server.end() == 0
        wait_until(lambda: not is_running(engine), "the end of the engine process")
        assert server.leftovers() == []
        assert "Traceback" not in server.stderr()
