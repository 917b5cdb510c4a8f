"""Many connections, slow connections and large requests: the log stays small, and the server answers again."""

import asyncio
import json
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.faults.http import COMPLETIONS, Connection, ask, get, post, request, run
from tests.faults.processes import ENGINE, Server, wait_until

HELLO: dict[str, Any] = {"prompt": "a", "max_tokens": 1}
MAX_LOG = 20_000
"""Bytes of log for a hundred messages."""


@pytest.fixture(scope="module")
def impatient() -> Iterator[Server]:
    """A server that waits a second for a request."""
    with Server("--receive-timeout=1", "--max-request-bytes=1000000") as server:
        yield server


def test_more_connections_than_descriptors() -> None:
    """A server without free descriptors logs it some times, and accepts connections again when others have ended."""
    with Server() as server, ExitStack() as connections:
        used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 20, hard))
        for _ in range(100):
            connections.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        wait_until(lambda: "Too many open files" in server.stderr(), "a message of the shortage")
        # asyncio tries again every second, and each time 2048 accepts fail
        wait_until(lambda: server.stderr().count("Too many open files") >= 10, "as many messages as pass")
        connections.close()
        assert post(server.port, HELLO).status == 200
        assert "Traceback" not in server.stderr()
        assert server.stderr().count("Too many open files") == 10
        assert len(server.stderr()) < MAX_LOG


def test_a_million_stop_tokens(impatient: Server) -> None:
    """Token ids that the model does not have are accepted as in vLLM, and neither logged nor sent back."""
    before = len(impatient.stderr())
    for first in range(4096, 4099):
        assert post(impatient.port, HELLO | {"stop_token_ids": list(range(first, first + 100_000))}).status == 200
    refused: list[dict[str, Any]] = [
        {"stop_token_ids": [-1] * 100_000},
        {"logit_bias": {str(token): 1 for token in range(10_000, 60_000)}},
        {"allowed_token_ids": [4096] * 100_000},
        {"bad_words": [" "] * 1000},
        {"response_format": {"type": "x" * 900_000}},
        {"structured_outputs": {"regex": "a" * 400_000, "grammar": "b" * 400_000}},
    ]
    for fields in refused:
        answer = post(impatient.port, HELLO | fields)
        assert answer.status == 400
        assert len(answer.body) < 2500
    assert len(impatient.stderr()) - before < MAX_LOG


def test_a_length_far_too_large(impatient: Server) -> None:
    """A body that is announced as too large is refused before it is sent, with the limit."""

    async def announce(length: int) -> tuple[int, str]:
        connection = await Connection.open(impatient.port)
        await connection.send(request("POST", COMPLETIONS, b"{", content_length=str(length)))
        answer = await connection.answer()
        await connection.close()
        return answer.status, answer.json()["error"]["message"]

    for length in (1_000_001, 10**12, 10**18):
        status, message = run(announce(length))
        assert status == 413
        assert "at most 1000000 bytes" in message


def test_a_refused_body_that_does_not_come() -> None:
    """After the refusal of an announced body of which nothing arrives, the connection is closed."""

    async def announce(port: int) -> bytes:
        connection = await Connection.open(port)
        await connection.send(request("POST", COMPLETIONS, content_length="33554433"))
        return await connection.reader.read()

    with Server("--receive-timeout=1000") as server:
        assert run(announce(server.port)).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_sends_all_before_it_reads(impatient: Server) -> None:
    """A client that asks for the connection's end and reads last gets the refusal of a body of 30 MB."""
    body = request("POST", COMPLETIONS, b" " * 30_000_000, connection="close")
    with socket.create_connection(("127.0.0.1", impatient.port)) as connection:
        connection.sendall(body)
        response = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert response.startswith(b"HTTP/1.1 413 ")
    assert b"at most 1000000 bytes" in response


def test_a_connection_without_a_request(impatient: Server) -> None:
    """Connections on which nothing, or half a head, or a byte now and then arrives are closed."""

    async def idle() -> bytes:
        return await (await Connection.open(impatient.port)).reader.read()

    async def half() -> bytes:
        connection = await Connection.open(impatient.port)
        await connection.send(b"GET /health HTTP/1.1\r\nhost: a\r\n")
        return await connection.reader.read()

    async def slow() -> bytes:
        connection = await Connection.open(impatient.port)
        await connection.send(b"GET /health HTTP/1.1\r\nx: ")
        while not connection.reader.at_eof():
            await connection.send(b"a")
            try:
                await asyncio.wait_for(connection.reader.read(1), 0.1)
            except TimeoutError:
                continue
            except ConnectionResetError:
                break
        return b""

    async def all_of_them() -> list[bytes]:
        return [*await asyncio.gather(idle(), half(), slow())]

    assert run(all_of_them()) == [b"", b"", b""]
    assert get(impatient.port, "/health").status == 200


def test_a_body_that_stops(impatient: Server) -> None:
    """A body of which no more arrives is a 408, and one that arrives in time, part by part, is served."""
    body = json.dumps(HELLO).encode()

    async def stop() -> int:
        connection = await Connection.open(impatient.port)
        await connection.send(request("POST", COMPLETIONS, body[:5], content_length="500"))
        return (await connection.answer()).status

    async def in_parts() -> int:
        connection = await Connection.open(impatient.port)
        await connection.send(request("POST", COMPLETIONS, body[:5], content_length=str(len(body))))
        for part in (body[5:10], body[10:15], body[15:]):
            await asyncio.sleep(0.5)
            await connection.send(part)
        return (await connection.answer()).status

    assert run(stop()) == 408
    assert run(in_parts()) == 200


def test_a_long_response_is_not_cut() -> None:
    """A request that runs longer than `--receive-timeout` is not idle."""

    async def generate(port: int) -> None:
        tokens = {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "temperature": 0}
        answers = await asyncio.gather(*(ask(port, "POST", COMPLETIONS, tokens) for _ in range(16)))
        assert all(answer.json()["usage"]["completion_tokens"] == 900 for answer in answers)

    with Server("--receive-timeout=0.3") as server:
        run(generate(server.port))


def test_an_access_line_for_each_request(impatient: Server) -> None:
    """Each request has a line, as in vLLM, and a long path is cut."""
    run(ask(impatient.port, "GET", "/health?" + "a" * 50_000))
    line = wait_until(lambda: [x for x in impatient.stderr().splitlines() if "aaaaaaaa" in x], "its line")[0]
    assert line.startswith("INFO: 127.0.0.1:")
    assert len(line) < 2500


def test_https(tmp_path: Path) -> None:
    """With a certificate the server speaks TLS, and a wrong file is one message before the model is loaded."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    with Server(f"--ssl-certfile={certificate}", f"--ssl-keyfile={key}", wait=False) as server:
        wait_until(lambda: "https://127.0.0.1:" in server.stderr(), "the address of the server")
        port = int(server.stderr().partition("https://127.0.0.1:")[2].partition("/")[0])
        code = (
            "import ssl, sys, urllib.request; url, ca = sys.argv[1:]\n"
            "print(urllib.request.urlopen(url, context=ssl.create_default_context(cafile=ca)).status)"
        )
        asked = [sys.executable, "-c", code, f"https://127.0.0.1:{port}/health", str(certificate)]
        assert subprocess.run(asked, check=True, capture_output=True, text=True).stdout == "200\n"
    sizes = [f"--{name.replace('_', '-')}={value}" for name, value in ENGINE.items()]
    unusable = "--ssl-certfile and --ssl-keyfile: the certificate cannot be used"
    for options, words in (
        ([f"--ssl-certfile={tmp_path / 'none.pem'}"], unusable),
        ([f"--ssl-certfile={certificate}"], unusable),
        ([f"--ssl-keyfile={key}"], "need --ssl-certfile"),
    ):
        command = [sys.executable, "-m", "tracellm", "serve", "--port=0", *sizes, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def test_logged_requests() -> None:
    """With --enable-log-requests each request has a line with its parameters, and at `debug` its prompt, cut."""
    with Server("--enable-log-requests", "--max-log-len=5", "--uvicorn-log-level=debug") as server:
        assert post(server.port, {"prompt": "The capital", "max_tokens": 1}, x_request_id="mine").status == 200
        wait_until(lambda: "Received request cmpl-mine-0: params: SamplingParams(" in server.stderr(), "its line")
        assert "Request cmpl-mine-0 details: prompt: 'The c', prompt_token_ids: [" in server.stderr()
        assert "The capital" not in server.stderr()
