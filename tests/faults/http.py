"""HTTP by hand: requests and streams over sockets that a test can close at any byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tests.faults.processes import HANG_GUARD

_open: list[Connection] = []

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@dataclass
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The parsed JSON body."""
        return json.loads(self.body)


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """Return a request as bytes; a header `content_length` replaces the right one."""
    lines = {"host": "127.0.0.1", "content-type": "application/json", "content-length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


class Connection:
    """A connection to a server, for one request after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect; `run` closes connections left open."""
        connection = cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))
        _open.append(connection)
        return connection

    async def close(self) -> None:
        """Close the connection."""
        if self in _open:
            _open.remove(self)
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def head(self) -> tuple[int, dict[str, str]]:
        """Return status and headers of the response."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        return int(lines[0].split()[1]), headers

    async def body(self, headers: dict[str, str]) -> bytes:
        """Return the rest of the response."""
        if headers.get("transfer-encoding") == "chunked":
            return b"".join([chunk async for chunk in self.chunks()])
        return await self.reader.readexactly(int(headers.get("content-length", 0)))

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body of a chunked response as it arrives."""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    async def events(self) -> AsyncIterator[str]:
        """Yield the server-sent events of a response as they arrive, without `data: `."""
        text = ""
        async for chunk in self.chunks():
            *events, text = (text + chunk.decode()).split("\n\n")
            for event in events:
                yield event.removeprefix("data: ")
        assert text == ""

    async def send(self, data: bytes) -> None:
        """Send bytes, ignoring a closed connection: the server may have answered already."""
        with suppress(ConnectionResetError, BrokenPipeError):
            self.writer.write(data)
            await self.writer.drain()

    async def answer(self) -> Answer:
        """Return the whole response."""
        status, headers = await self.head()
        return Answer(status, headers, await self.body(headers))


async def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """Make one request over its own connection. `body` is JSON, unless it is bytes."""
    connection = await Connection.open(port)
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    try:
        await connection.send(request(method, path, data, **headers))
        return await connection.answer()
    finally:
        await connection.close()


async def stream(port: int, body: dict[str, Any], path: str = COMPLETIONS) -> Connection:
    """Return a connection whose response has begun as a stream of events."""
    connection = await Connection.open(port)
    await connection.send(request("POST", path, json.dumps(body | {"stream": True}).encode()))
    status, headers = await connection.head()
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    return connection


def post(port: int, body: Any, path: str = COMPLETIONS, **headers: str) -> Answer:
    """`ask` with POST, for synchronous callers."""
    return run(ask(port, "POST", path, body, **headers))


def get(port: int, path: str) -> Answer:
    """`ask` with GET, for synchronous callers."""
    return run(ask(port, "GET", path))


def run(work: Any) -> Any:
    """Run a coroutine in its own event loop."""

    async def guarded() -> Any:
        try:
            return await asyncio.wait_for(work, HANG_GUARD)
        finally:
            for connection in list(_open):
                await connection.close()

    return asyncio.run(guarded())


async def gauges(port: int) -> dict[str, float]:
    """Return the values of /metrics, without labels."""
    values: dict[str, float] = {}
    for line in (await ask(port, "GET", "/metrics")).body.decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            values[name.partition("{")[0]] = float(value)
    return values


async def idle(port: int) -> None:
    """Wait until no request is left and no block is held."""

    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
    while any([(await gauges(port))[name] for name in names]):
        await asyncio.sleep(0.02)
