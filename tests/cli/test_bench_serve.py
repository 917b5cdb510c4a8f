"""`tracellm bench serve`, with a small server that streams as OpenAI's does."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.cli.conftest import Command


class Handler(BaseHTTPRequestHandler):
    """Handler that completes with `a`, one event for each token, and refuses prompts of 13 tokens."""

    bodies: list[dict[str, Any]]
    headers_seen: list[str | None]

    def do_GET(self) -> None:
        """Return the list of models."""
        self._send(json.dumps({"data": [{"id": "small"}]}).encode())

    def do_POST(self) -> None:
        """Return a completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).bodies.append(body)
        type(self).headers_seen.append(self.headers["Authorization"])
        if len(body["prompt"]) == 13:
            self._send(b'{"error": {"message": "13 brings \x1b bad luck"}}', 400)
            return
        events: list[dict[str, Any]] = [{"choices": [{"text": "a"}]} for _ in range(body["max_tokens"])]
        events.append({"choices": [], "usage": {"completion_tokens": body["max_tokens"]}})
        self._send("".join(f"data: {json.dumps(one)}\n\n" for one in events).encode() + b"data: [DONE]\n\n")

    def _send(self, content: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """The server's address; `Handler.bodies` has its requests."""
    Handler.bodies, Handler.headers_seen = [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()


def test_figures_of_a_server(command: Command, server: str) -> None:
    """All requests are sent, after a warm-up, and all their tokens are counted."""
    lengths = ["--num-prompts", "6", "--input-len", "3-5", "--output-len", "2-4"]
    said = command("bench", "serve", "--base-url", f"{server}/v1", *lengths, "--api-key", "secret", "--json")
    figures = json.loads(said.out)
    warming, *asked = Handler.bodies
    assert said.status == 0
    assert (figures["requests"], figures["failed"], figures["model"], warming["max_tokens"]) == (6, 0, "small", 1)
    assert sum(body["max_tokens"] for body in asked) == round(figures["output_tokens_per_second"] * figures["seconds"])
    assert {3, 4, 5} >= {len(body["prompt"]) for body in asked}
    assert all(body["ignore_eos"] and body["temperature"] == 0 and body["stream"] for body in asked)
    assert set(Handler.headers_seen) == {"Bearer secret"}
    assert list(figures["latency_seconds"]) == ["first", "token", "between", "whole"]


def test_arrivals_and_room(command: Command, server: str) -> None:
    """With random arrivals and a limit of concurrent requests, the figures cover all requests."""
    further = ["--num-prompts", "5", "--request-rate", "500", "--max-concurrency", "2", "--output-len", "1"]
    said = command("bench", "serve", "--base-url", server, "--input-len", "2", *further)
    assert said.status == 0
    assert "5 requests, 10 tokens in, 5 out" in said.out
    assert "time to first token" in said.out


def test_requests_that_fail(command: Command, server: str) -> None:
    """Refused requests are counted and reported, and the exit status is 1."""
    said = command("bench", "serve", "--base-url", server, "--num-prompts", "2", "--input-len", "13", "--json")
    assert said.status == 1
    assert json.loads(said.out)["failed"] == 2
    assert "2 requests failed" in said.err
    assert "bad luck" in said.err
    assert "\x1b" not in said.err


def test_no_server(command: Command, server: str) -> None:
    """Without a server, the message explains how to start one."""
    said = command("bench", "serve", "--base-url", "http://127.0.0.1:1")
    assert said.status == 2
    assert "tracellm serve" in said.err
    Handler.do_GET, usual = Handler.do_POST, Handler.do_GET  # type: ignore[method-assign]
    try:
        assert "no OpenAI-compatible server answers" in command("bench", "serve", "--base-url", server).err
    finally:
        Handler.do_GET = usual  # type: ignore[method-assign]
