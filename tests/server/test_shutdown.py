"""Tests of a server's shutdown while requests run, or with a dead engine.

The engine is a small one that starts at once.
"""

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
import pytest

from tests.server.process import Server
from tracellm.engine.entrypoints.openai import launcher


@contextmanager
def stalled(server: Server) -> Iterator[Iterator[Any]]:
    """Return a stream whose two tokens have come, and that then stalls."""
    body = {"prompt": [1], "stream": True}
    with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
        events = (line.removeprefix("data: ") for line in response.iter_lines() if line)
        assert [json.loads(next(events))["choices"][0]["text"] for _ in range(2)] == ["a", "a"]
        yield events


def test_requests_get_only_so_much_time() -> None:
    """After --shutdown-timeout requests are aborted with an error, and the server exits with status 0."""
    with Server.fake("--shutdown-timeout", "1") as server, stalled(server) as events:
        server.signal(signal.SIGTERM)
        assert json.loads(next(events))["error"]["code"] == 503
        status, stderr = server.end()
    assert status == 0
    assert stderr.splitlines()[-1] == "the engine was shut down"
    assert "Traceback" not in stderr


def test_a_second_interrupt_does_not_wait() -> None:
    """The first Ctrl-C waits for requests, the second aborts them, and only the reason is printed."""
    with Server.fake("--shutdown-timeout", "600") as server, stalled(server) as events:
        server.signal(signal.SIGINT)
        while True:  # until the first is handled: the port closes
            try:
                httpx.get(f"{server.url}/health", timeout=60)
            except httpx.TransportError:  # refused, or accepted but not served any more
                break
        server.signal(signal.SIGINT)
        assert json.loads(next(events))["error"]["code"] == 503
        status, stderr = server.end()
    assert status == 130
    assert stderr.splitlines() == [
        "the engine was shut down",
        "tracellm: stopped at once; running requests were aborted",
    ]


def test_a_dead_engine_ends_the_server() -> None:
    """With a dead engine streams get an error event, later requests a 503, and the server exits with status 1."""
    with Server.fake() as server:
        body = {"prompt": [13], "stream": True}
        events = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).text.split("\n\n")
        assert json.loads(events[2].removeprefix("data: "))["error"]["type"] == "EngineDeadError"
        assert httpx.get(f"{server.url}/health", timeout=60).status_code == 503
        assert httpx.post(f"{server.url}/v1/completions", json={"prompt": [1]}, timeout=60).status_code == 503
        assert server.end() == (1, "the engine was shut down\ntracellm: It has died.\n")


def test_a_dead_engine_ends_a_server_that_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The periodic check leaves /health a whole period to answer 503 before the server exits."""
    engine: Any = SimpleNamespace(errored=False)
    server: Any = SimpleNamespace(should_exit=False)
    states: list[tuple[bool, bool]] = []

    async def sleep(seconds: float) -> None:
        states.append((engine.errored, server.should_exit))
        engine.errored = len(states) > 1

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(launcher._watchdog(server, engine))
    assert states == [(False, False), (False, False), (True, False)]
    assert server.should_exit


def test_an_explained_server_leaves_its_run_folder(tmp_path: Path) -> None:
    """With --explain the reports are written after SIGTERM, without any key."""
    folder = tmp_path / "run"
    with Server.fake("--explain", "--out", str(folder), "--api-key", "one", "--api-key=two") as server:
        assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200
        server.signal(signal.SIGTERM)
        status, stderr = server.end()
    assert status == 0, stderr
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["script"] == "tracellm serve"
    assert manifest["argv"][-3:] == ["--api-key", "***", "--api-key=***"]
    for name in ("sequence.mmd", "calltree.txt", "report.html"):
        assert (folder / name).exists()
