"""Wrong, huge or hostile bodies: always OpenAI's JSON error with a status of 4xx, and the server lives on."""

import asyncio
import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.faults.http import CHAT, COMPLETIONS, Answer, Connection, ask, post, request, run, stream
from tests.faults.processes import rss_of
from tracellm.engine.entrypoints.openai.protocol import ChatCompletionRequest, CompletionRequest

pytestmark = pytest.mark.usefixtures("lives_on")

HELLO = [{"role": "user", "content": "Hello"}]
DEEP = 100_000


def is_openai_error(answer: Answer) -> bool:
    """Return whether the answer is OpenAI's error, with its 4xx status repeated in the body."""
    error = answer.json()["error"]
    assert answer.headers["content-type"] == "application/json"
    return (
        400 <= answer.status < 500
        and set(error) == {"message", "type", "param", "code"}
        and error["code"] == answer.status
        and bool(error["message"])
        and "Traceback" not in error["message"]
    )


BODIES: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400),
    "no JSON": (b"hello", 400),
    "cut off": (b'{"prompt": "a"', 400),
    "a list": (b"[1, 2]", 400),
    "null": (b"null", 400),
    "nested lists": (b"[" * DEEP + b"]" * DEEP, 400),
    "nested objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, 400),
    "a nested field": (b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
    "not UTF-8": (b'{"prompt": "\xff\xfe"}', 400),
    "UTF-16": ('{"prompt": "a"}'.encode("utf-16"), 400),
    "half a character": (rb'{"prompt": "\ud800"}', 400),
    "NaN": (b'{"prompt": "a", "temperature": NaN}', 400),
    "Infinity": (b'{"prompt": "a", "temperature": -Infinity}', 400),
    "a number beyond all floats": (b'{"prompt": "a", "temperature": 1e999}', 400),
    "a number of many digits": (b'{"prompt": "a", "max_tokens": ' + b"9" * 100_000 + b"}", 400),
    "a number of 19 digits": (b'{"prompt": "a", "seed": 99999999999999999999}', 400),
    "zero bytes": (b"\0" * 1000, 400),
    "no prompt": (b"{}", 400),
    "a model that there is not": (b'{"model": "gpt-17", "prompt": "a"}', 404),
    "a prompt too long": (json.dumps({"prompt": "word " * 3000}).encode(), 400),
    "a prompt far too long": (json.dumps({"prompt": "a" * 900_000}).encode(), 400),
    "far too many prompts": (json.dumps({"prompt": ["a"] * 100_000}).encode(), 400),
    "a prompt of no tokens": (b'{"prompt": []}', 400),
    "tokens that there are not": (b'{"prompt": [999999999]}', 400),
    "negative tokens": (b'{"prompt": [-1]}', 400),
    "tokens of more than 64 bits": (b'{"prompt": [99999999999999999999999]}', 400),
    "more tokens than there is room for": (b'{"prompt": "a", "max_tokens": 100000}', 400),
    "a million continuations": (b'{"prompt": "a", "n": 1000000}', 400),
    "a schema that is none": (
        b'{"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"name": "x", '
        b'"schema": {"type": "no type"}}}}',
        400,
    ),
    "a schema that refers to itself": (
        b'{"prompt": "a", "max_tokens": 2, "response_format": {"type": "json_schema", "json_schema": {"name": "x", '
        b'"schema": {"$ref": "#"}}}}',
        400,
    ),
    "a megabyte too much": (b" " * 1_100_000, 413),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_cannot_be_served(server, body):
    """Each body gets the right status with a message; the next request is served."""
    data, status = BODIES[body]
    answer = post(server.port, data)
    assert is_openai_error(answer)
    assert answer.status == status, answer.json()
    assert post(server.port, {"prompt": "a", "max_tokens": 1}).status == 200


def test_a_hundred_megabytes(server):
    """A body of a hundred megabytes is refused with 413 and not kept in memory."""
    before = rss_of(server.pid)
    answer = post(server.port, b"[" + b"1," * 50_000_000 + b"1]")
    assert is_openai_error(answer)
    assert answer.status == 413
    assert rss_of(server.pid) < before + (20 << 20)


def json_values() -> st.SearchStrategy[Any]:
    """Return small JSON values of all types."""
    numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False))
    scalars = st.one_of(
        st.none(), st.booleans(), numbers, st.text(max_size=5), st.sampled_from(["auto", "json_object"])
    )
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner)
        ),
        max_leaves=5,
    )


WORDS = ["type", "role", "content", "text", "json_schema", "schema", "name", "include_usage", "1", "json", "regex"]
FIELDS = {CHAT: [*ChatCompletionRequest.model_fields], COMPLETIONS: [*CompletionRequest.model_fields]}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_any_type_in_any_field(server, path):
    """Any value in any field gives an answer or OpenAI's error, never a server error."""
    good: dict[str, Any] = {"max_tokens": 2} | ({"messages": HELLO} if path == CHAT else {"prompt": "a"})
    statuses = set()

    @settings(
        max_examples=150,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.dictionaries(st.sampled_from(FIELDS[path]), json_values(), min_size=1, max_size=3))
    def any_type(fields: dict[str, Any]) -> None:
        answer = post(server.port, good | fields, path)
        statuses.add(answer.status)
        assert answer.status == 200 or is_openai_error(answer), (fields, answer)

    any_type()
    assert {200, 400} <= statuses


WIRE: dict[str, bytes] = {
    "garbage": b"\x00\xff\x16\x03\x01" * 100,
    "TLS": bytes.fromhex("1603010200010001fc0303") + b"\0" * 200,
    "a line that does not end": b"GET /" + b"a" * 200_000,
    "a header that does not end": b"GET /health HTTP/1.1\r\nx: " + b"a" * 200_000,
    "no length, no chunks": b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\r\n{}",
    "a negative length": request("POST", COMPLETIONS, b"{}", content_length="-5"),
    "a length that is no number": request("POST", COMPLETIONS, b"{}", content_length="many"),
    "two lengths": request("POST", COMPLETIONS, b"{}", content_length="2\r\ncontent-length: 3"),
    "length and chunks": request("POST", COMPLETIONS, b"0\r\n\r\n", transfer_encoding="chunked"),
    "chunks without sizes": request(
        "POST", COMPLETIONS, b"zz\r\nhello\r\n", content_length="", transfer_encoding="chunked"
    ),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a websocket": b"GET /v1/completions HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: YWFhYWFhYWFhYWFhYWFhYQ==\r\nsec-websocket-version: 13\r\n\r\n",
}


@pytest.mark.parametrize("kind", WIRE)
def test_what_is_no_http(server, kind):
    """Raw bytes on the port are refused or cut off; other clients are served throughout."""

    async def speak() -> bytes:
        connection = await Connection.open(server.port)
        await connection.send(WIRE[kind])
        assert (await ask(server.port, "POST", COMPLETIONS, {"prompt": "a", "max_tokens": 1})).status == 200
        connection.writer.write_eof()
        try:
            return await connection.reader.read()
        except ConnectionResetError:
            return b""
        finally:
            await connection.close()

    response = run(speak())
    assert response == b"" or response.startswith(b"HTTP/1.1 4"), response[:200]


def test_bodies_that_never_come(server):
    """Fifty clients with half-sent bodies delay no others, and leave nothing behind."""

    async def linger() -> None:
        slow = [await Connection.open(server.port) for _ in range(50)]
        for connection in slow:
            await connection.send(request("POST", COMPLETIONS, b'{"prompt": ', content_length="500"))
        answers = await asyncio.gather(
            *(ask(server.port, "POST", COMPLETIONS, {"prompt": "a", "max_tokens": 2}) for _ in range(5))
        )
        assert [answer.status for answer in answers] == [200] * 5
        await asyncio.gather(*(connection.close() for connection in slow))

    run(linger())


def test_a_body_longer_than_it_says(server):
    """Bytes after the announced length are no part of the body: they are refused, and the connection is closed."""

    async def speak() -> tuple[list[int], bytes]:
        connection = await Connection.open(server.port)
        body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
        await connection.send(request("POST", COMPLETIONS, body + b"and more\r\n\r\n", content_length=str(len(body))))
        received = await connection.reader.read()
        await connection.close()
        return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", received)], received

    statuses, received = run(speak())
    assert statuses[-1] == 400
    assert set(statuses) <= {200, 400}
    assert b'"Invalid HTTP request received."' in received


HEADS = {
    "a path": b"GET /" + b"a" * (2 << 20) + b" HTTP/1.1\r\n\r\n",
    "a header": b"GET /health HTTP/1.1\r\nx: " + b"a" * (2 << 20) + b"\r\n\r\n",
    "many headers": b"GET /health HTTP/1.1\r\n" + b"x: a\r\n" * 400_000 + b"\r\n",
    "a header without an end": b"GET /health HTTP/1.1\r\nx: " + b"a" * (50 << 20),
}


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_that_is_too_large(server, kind):
    """A request whose line and headers exceed 64 KiB is a 431, which also a client that sends all of it first gets."""

    async def speak() -> Answer:
        connection = await Connection.open(server.port)
        await connection.send(HEADS[kind])
        answer = await connection.answer()
        assert await connection.reader.read() == b""
        return answer

    before = rss_of(server.pid)
    answer = run(speak())
    assert is_openai_error(answer)
    assert (answer.status, answer.headers["connection"]) == (431, "close")
    assert "at most 65536 bytes" in answer.json()["error"]["message"]
    assert rss_of(server.pid) < before + (20 << 20)


def test_trailers_that_do_not_end(server):
    """Headers after a chunked body have the same limit as those before it."""

    async def speak() -> Answer:
        connection = await Connection.open(server.port)
        head = request("POST", COMPLETIONS, content_length="", transfer_encoding="chunked")
        await connection.send(head + b"2\r\n{}\r\n0\r\nx: " + b"a" * 100_000)
        return await connection.answer()

    assert run(speak()).status == 431


def test_a_large_head_within_a_response(server):
    """An error is not written into another response of the same connection, which is closed instead."""

    async def speak() -> bytes:
        connection = await stream(server.port, {"prompt": "a", "max_tokens": 500, "ignore_eos": True})
        await connection.send(b"GET /health HTTP/1.1\r\nx: " + b"a" * 100_000)
        received = b""
        with suppress(ConnectionError):
            while part := await connection.reader.read(1 << 16):
                received += part
        return received

    received = run(speak())
    assert b"data: " in received
    assert b"HTTP/1.1 " not in received


def test_many_requests_over_one_connection(server):
    """The limit of a head is that of one request: all heads, and a body, of a connection may have more together."""

    async def speak() -> list[int]:
        connection = await Connection.open(server.port)
        statuses = []
        for _ in range(4):
            await connection.send(request("POST", COMPLETIONS, b" " * 100_000, x="a" * 40_000))
            statuses.append((await connection.answer()).status)
        return statuses

    assert run(speak()) == [400] * 4


def test_a_length_of_many_digits(server):
    """A Content-Length that no number holds is OpenAI's error too."""
    answer = post(server.port, b"{}", content_length="9" * 31)
    assert is_openai_error(answer)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", COMPLETIONS, 405),
        ("DELETE", "/health", 405),
        ("POST", "/v1/chat", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/v1/models/../../etc/passwd", 404),
        ("GET", "/v1/models/%00", 404),
    ],
)
def test_paths_that_there_are_not(server, method, path, status):
    """An unknown path gives OpenAI's error."""
    answer = run(ask(server.port, method, path))
    assert is_openai_error(answer)
    assert answer.status == status


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_body_that_is_not_said_to_be_json(server, kind):
    """A form, which a website can send without permission, is refused with 400, as in vLLM."""
    answer = post(server.port, {"prompt": "a"}, content_type=kind)
    assert is_openai_error(answer)
    assert answer.status == 400
