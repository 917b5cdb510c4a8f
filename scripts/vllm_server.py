"""A real vLLM in its own processes, for scripts and tests: a program that ends, or a server.

Each leads a session. After GUARD seconds without start, response or end, all of its processes are killed.
"""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.processes import completed

__all__ = ["GUARD", "Server", "completed", "free_port", "serving"]

GUARD = 600.0
"""Seconds after which a real vLLM counts as hung; on a busy machine it starts in minutes. Not used for measurements."""


@dataclass(frozen=True)
class Server:
    """A running server."""

    process: subprocess.Popen[bytes]
    url: str

    def post(self, path: str, asked: Mapping[str, Any], **headers: str) -> str:
        """Return its response to a request."""
        sent = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(asked).encode(), sent)
        with urllib.request.urlopen(request, timeout=GUARD) as answer:
            text: str = answer.read().decode()
            return text

    def end(self, signum: signal.Signals) -> int:
        """Send a signal, SIGINT to all of its processes as a terminal does; wait, and return the exit status."""
        if signum is signal.SIGINT:
            os.killpg(self.process.pid, signum)
        else:
            self.process.send_signal(signum)
        return self.process.wait(GUARD)


@contextmanager
def serving(
    command: Sequence[str | Path], port: int, log: Path, *, cwd: Path, env: Mapping[str, str]
) -> Iterator[Server]:
    """Context with a server that is ready on this port; all its processes are killed at the end.

    Raises:
        RuntimeError: it ended, or another error occurred; the message has the end of its log.
    """
    with log.open("wb") as said:
        process = subprocess.Popen(command, cwd=cwd, stdout=said, stderr=said, env=env, start_new_session=True)
    try:
        server = Server(process, f"http://127.0.0.1:{port}")
        _wait_for(server)
        yield server
    except Exception as error:
        raise RuntimeError(f"vllm serve failed:\n{log.read_text(encoding='utf-8')[-5000:]}") from error
    finally:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(server: Server) -> None:
    deadline = time.monotonic() + GUARD
    while time.monotonic() < deadline:
        if (status := server.process.poll()) is not None:
            raise RuntimeError(f"it ended by itself, with status {status}")
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{server.url}/health", timeout=GUARD).close()
            return
        time.sleep(0.2)
    raise TimeoutError(f"it was not ready in {GUARD:.0f} seconds")


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
