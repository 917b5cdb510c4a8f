"""Run `tracellm serve` in a new process."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = str(Path(__file__).parents[2])
FAKE = """
import asyncio, contextlib, sys
from types import SimpleNamespace
from tracellm.engine.entrypoints.openai import api_server, launcher
from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput

class Engine:
    '''Two tokens for every prompt, and then nothing, or its death.'''
    errored, dead_error, prometheus_registry = False, EngineDeadError("It has died."), None
    processor = SimpleNamespace(input_preprocessor=None, supported_tasks=("generate",))
    model_config = SimpleNamespace(
        max_model_len=64, skip_tokenizer_init=True, get_vocab_size=lambda: 64, get_diff_sampling_param=dict
    )

    async def check_health(self):
        if self.errored:
            raise self.dead_error

    async def generate(self, prompt, sampling_params, request_id, **further):
        for _ in range(2):
            output = CompletionOutput(0, "a", [1])
            yield RequestOutput(request_id, None, prompt["prompt_token_ids"], None, [output], False)
        if prompt["prompt_token_ids"] == [13]:
            self.errored = True
            raise self.dead_error
        await asyncio.Event().wait()

@contextlib.asynccontextmanager
async def build(args):
    try:
        yield Engine()
    finally:
        print("the engine was shut down", file=sys.stderr)

api_server.build_async_engine_client = build
launcher._WATCHDOG_SECONDS = 600
from tracellm.cli import main
sys.argv = ["tracellm", *sys.argv[1:]]
main()
"""
"""Command with an engine that starts at once."""


@dataclass
class Server:
    """Running server, which the end of a `with` block terminates, by a kill if needed."""

    process: subprocess.Popen[str]
    url: str = ""
    stderr: str = ""
    """Output until the server was ready."""

    @classmethod
    def start(cls, *options: str, program: tuple[str, ...] = ("-m", "tracellm")) -> Self:
        """Start the server on a free port, and wait until it is ready."""
        quiet = "--disable-uvicorn-access-log"
        command = [sys.executable, *program, "serve", "--port", "0", quiet, *options]
        environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        server = cls(process)
        assert process.stderr is not None
        for line in process.stderr:  # ends with the process
            server.stderr += line
            if "http://" in line:
                server.url = line.partition("http://")[2].partition("/")[0]
                server.url = f"http://{server.url}"
                server.stderr += process.stderr.readline()
                return server
        process.communicate()
        raise AssertionError(f"the server ended with {process.returncode}: {server.stderr}")

    @classmethod
    def fake(cls, *options: str) -> Self:
        """Start a server whose engine answers twice and then stalls."""
        return cls.start(*options, program=("-c", FAKE))

    def signal(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def end(self) -> tuple[int, str]:
        """Wait for the server's end; return the exit status, and the output since it was ready."""
        _, stderr = self.process.communicate(timeout=60)
        return self.process.returncode, stderr

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
