"""`kill -9` of one of two processes: callers get an error, nothing hangs or is left, the recording can be read.

benchmarks/faults.py measures the time until callers get the error; here a guard only prevents a hang.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.http import CHAT, COMPLETIONS, ask, run, stream
from tests.faults.processes import ENGINE, HANG_GUARD, Program, Server, is_running, wait_until
from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.ipc.mp_client import SyncMPClient
from tracellm.probes.spans.converter import convert_folder
from tracellm.trace.run_folder import RunFolder

LONG = SamplingParams(max_tokens=900, ignore_eos=True)
STREAMS = 6


def test_an_llm_whose_engine_is_killed(monkeypatch):
    """`generate` and every later call raise EngineDeadError with the cause of death; all is cleaned up."""
    threads = set(threading.enumerate())
    llm = LLM("tiny", multiprocess_mode=True, **ENGINE)
    client = llm.llm_engine.engine_core
    assert isinstance(client, SyncMPClient)
    manager, directory = client.resources.engine_manager, Path(client.resources.directory)
    assert manager is not None
    process = manager.processes[0]
    assert process.pid is not None
    pid = process.pid
    get_output = client.get_output

    def kill_after_the_first_step():
        outputs = get_output()
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
        return outputs

    with monkeypatch.context() as patch:
        patch.setattr(client, "get_output", kill_after_the_first_step)
        with pytest.raises(EngineDeadError, match="was killed by SIGKILL while it was needed"):
            llm.generate(["a", "b"], LONG, use_tqdm=False)
    for call in (lambda: llm.generate("a", LONG), llm.reset_prefix_cache, lambda: client.call_utility("anything")):
        with pytest.raises(EngineDeadError, match="was killed by SIGKILL"):
            call()
    assert not llm.llm_engine.has_unfinished_requests()
    client.shutdown()
    assert process.exitcode == -signal.SIGKILL
    assert not directory.exists()
    wait_until(lambda: set(threading.enumerate()) <= threads, "the end of its threads")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The run folder of a recorded server whose engine was killed under several streams."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    with Server("--explain", "--quiet", f"--out={folder}") as server:

        async def kill() -> None:
            streams = [await stream(server.port, {"prompt": "Hello", "max_tokens": 900, "ignore_eos": True})]
            for _ in range(STREAMS - 1):
                messages = [{"role": "user", "content": "Hello"}]
                streams.append(
                    await stream(server.port, {"messages": messages, "max_tokens": 900, "ignore_eos": True}, CHAT)
                )
            readers = [connection.events() for connection in streams]
            await asyncio.gather(*(anext(reader) for reader in readers))
            wait_until(lambda: has_steps(folder), "the first steps in the recording")
            os.kill(server.engine(), signal.SIGKILL)

            async def remaining_events(reader) -> list[str]:
                return [event async for event in reader]

            for events in await asyncio.gather(*map(remaining_events, readers)):
                assert events[-1] == "[DONE]"
                assert '"type":"EngineDeadError"' in events[-2]
                assert "was killed by SIGKILL" in events[-2]
            assert (await ask(server.port, "GET", "/health")).status == 503
            refused = await ask(server.port, "POST", COMPLETIONS, {"prompt": "a"})
            assert (refused.status, refused.json()["error"]["type"]) == (503, "EngineDeadError")
            for connection in streams:
                await connection.close()

        run(kill())
        assert server.end() == 1
        assert "was killed by SIGKILL" in server.stderr()
        assert "Traceback" not in server.stderr()
        assert server.leftovers() == []
    return folder


def test_every_client_of_a_server_is_told(killed):
    """Streams end with an error event, other requests and /health get 503; the server exits with status 1."""
    assert (killed / "report.html").exists()


def test_what_a_killed_engine_recorded_can_be_read(killed):
    """The engine process's steps up to the last flush are in the recording, and no span lacks its parent."""
    assert {span.process.name for span in engine_steps(killed)} == {"EngineCore_0"}
    assert "EngineCore_0" in show(killed)


def test_a_front_that_is_killed(tmp_path_factory):
    """The engine process ends by itself and removes the sockets; both recordings can be read and reported."""
    folder = tmp_path_factory.mktemp("front") / "run"
    with Server("--explain", "--quiet", f"--out={folder}") as server:
        engine = server.engine()

        async def read_a_little() -> None:
            connection = await stream(server.port, {"prompt": "Hello", "max_tokens": 900, "ignore_eos": True})
            reader = connection.events()
            for _ in range(3):
                await anext(reader)
            os.kill(server.pid, signal.SIGKILL)
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                async for event in reader:
                    assert event != "[DONE]"
            await connection.close()

        run(read_a_little())
        assert server.end() == -signal.SIGKILL
        wait_until(lambda: not is_running(engine), "the end of the engine process")
        assert server.leftovers() == []
    assert engine_steps(folder)
    assert "[process EngineCore" in show(folder)


def has_steps(folder: Path) -> bool:
    """Return whether the engine process has written a step yet."""
    files = (folder / "trace").glob("EngineCore_0-*.records")
    return any(b"EngineCore.step_fn" in file.read_bytes() for file in files)


def engine_steps(folder: Path):
    """Return the engine process's steps in the run folder."""
    convert_folder(folder)
    trace = RunFolder.open(folder).trace
    return [
        span for span in trace.spans if span.name.endswith("step_fn") or span.name.endswith("._process_engine_step")
    ]


def show(folder: Path) -> str:
    """Run `tracellm show FOLDER tree` after the run."""
    done = subprocess.run(
        [sys.executable, "-m", "tracellm", "show", str(folder), "tree"],
        capture_output=True,
        encoding="utf-8",
        timeout=HANG_GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_an_engine_that_is_killed_while_it_starts():
    """The error names the kill without waiting for a time limit; nothing is left."""
    code = "from tracellm import LLM\nLLM(multiprocess_mode=True)\n"
    with Program.of_code(code) as program:
        os.kill(program.engine(), signal.SIGKILL)
        assert program.end() == 1
        assert "EngineDeadError" in program.stderr()
        assert "was killed by SIGKILL before it was ready" in program.stderr()
        assert program.leftovers() == []
