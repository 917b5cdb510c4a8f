"""Failing starts of an engine: its own error is shown without waiting for a time limit, and nothing is left."""

import socket
import subprocess
import sys

import pytest

from tests.faults import executors
from tests.faults.processes import ENGINE, HANG_GUARD, Server
from tracellm import SamplingParams
from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.frontend.llm_engine import LLMEngine


def engine(executor_class) -> LLMEngine:
    """Make an engine with this executor, in its own process."""
    return LLMEngine(EngineArgs(**ENGINE).create_engine_config(), executor_class, False, multiprocess_mode=True)


def test_an_engine_process_with_a_fault_of_ours_while_it_starts(capfd):
    """The error has the original message, and its traceback is printed for a bug report."""
    with pytest.raises(EngineDeadError, match="could not start: RuntimeError: the device is on fire"):
        engine(executors.Raises)
    assert "in _init_executor" in capfd.readouterr().err


def test_an_engine_process_that_fails_in_a_step(capfd):
    """Waiting callers get EngineDeadError with the original message."""
    failing = engine(executors.FailsInAStep)
    failing.add_request("1", "a", SamplingParams(max_tokens=3))
    with pytest.raises(EngineDeadError, match="has failed: RuntimeError: the device is on fire"):
        failing.step()
    with pytest.raises(EngineDeadError, match="the device is on fire"):
        failing.add_request("2", "a", SamplingParams(max_tokens=3))
    failing.engine_core.shutdown()
    assert "in execute_model" in capfd.readouterr().err


def test_a_port_in_use():
    """A port in use is reported before the model is loaded, with the remedy."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "tracellm", "serve", f"--port={port}"],
            capture_output=True,
            encoding="utf-8",
            timeout=HANG_GUARD,
            check=False,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Port {port} of 127.0.0.1 is in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["/nowhere/at/all"], "/nowhere/at/all"),
        (["--kv-cache-memory-bytes=1000"], "KV cache"),
    ],
)
def test_a_server_whose_engine_cannot_start(options, message):
    """The command prints the engine's own error once, and exits with status 1."""
    with Server(*options, wait=False) as server:
        assert server.end() == 1
        assert server.stderr().count("tracellm: ") == 1, server.stderr()
        assert message in server.stderr()
        assert "Traceback" not in server.stderr()
        assert server.leftovers() == []
