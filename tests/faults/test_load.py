"""Many concurrent clients, and disconnecting ones: the rest get the right tokens, and every block is freed."""

import asyncio
import json
from typing import Any

import pytest

from tests.faults.http import COMPLETIONS, Answer, Connection, ask, gauges, idle, post, request, run, stream
from tests.faults.processes import rss_of

pytestmark = pytest.mark.usefixtures("lives_on")

PROMPTS = ["The capital of France is", "Hello", "1, 2, 3,", "法国的首都是", "a b c", "In the beginning", "x = ", "Why"]
STREAMS, ABORTS = 200, 100
MEBIBYTE = 1 << 20


def body(prompt: str, max_tokens: int, **further: Any) -> dict[str, Any]:
    """Return a greedy request for exactly so many tokens."""
    return {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True} | further


async def text_of(connection: Connection) -> str:
    """Return the text of a stream, which must come to its end."""
    events = [event async for event in connection.events()]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    await connection.close()
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


def test_two_hundred_streams(server):
    """Two hundred streams, three times the running limit, each get the text of a lone stream in bounded memory."""
    expected = [post(server.port, body(prompt, 12)).json()["choices"][0]["text"] for prompt in PROMPTS]
    pids = (server.pid, server.engine())
    before = [rss_of(pid) for pid in pids]

    async def all_at_once() -> list[str]:
        async def one(number: int) -> str:
            return await text_of(await stream(server.port, body(PROMPTS[number % len(PROMPTS)], 12)))

        return await asyncio.gather(*map(one, range(STREAMS)))

    texts = run(all_at_once())
    assert texts == [expected[number % len(PROMPTS)] for number in range(STREAMS)]
    assert all(rss_of(pid) < start + 64 * MEBIBYTE for pid, start in zip(pids, before, strict=True))


def test_a_client_that_leaves_in_the_middle_of_a_stream(server):
    """A client that disconnects within a stream ends its request and frees its blocks; another goes on."""

    async def leave() -> tuple[dict[str, float], int]:
        stays = await stream(server.port, body("Hello", 1000))
        aborted = await stream(server.port, body("Why", 1000))
        await anext(aiter(aborted.events()))
        await aborted.close()
        reading = asyncio.create_task(text_of(stays))
        while (values := await gauges(server.port))["vllm:num_requests_running"] > 1:
            await asyncio.sleep(0)
        assert not reading.done(), "it was noticed too late to say anything"
        return values, len(await reading)

    values, length = run(leave())
    assert values["vllm:num_requests_running"] == 1
    assert length > 400


@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_leaves_before_its_answer(server, n):
    """A client that disconnects before its whole answer aborts its request long before the last token."""
    before = run(gauges(server.port))["vllm:generation_tokens_total"]

    async def leave() -> None:
        connection = await Connection.open(server.port)
        await connection.send(request("POST", COMPLETIONS, _json(body("Why", 1000, n=n, temperature=1))))
        while (await gauges(server.port))["vllm:num_requests_running"] < n:
            await asyncio.sleep(0)
        await connection.close()
        await idle(server.port)

    run(leave())
    assert run(gauges(server.port))["vllm:generation_tokens_total"] - before < 1000 * n


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_quick_aborts(server):
    """A hundred clients that disconnect before, at or after their first token lose no block."""

    async def quick(number: int) -> None:
        connection = await Connection.open(server.port)
        data = _json(body(PROMPTS[number % len(PROMPTS)], 900, stream=number % 2 == 0))
        message = request("POST", COMPLETIONS, data)
        match number % 6:
            case 0:
                await connection.send(message)
                await connection.head()
                await anext(aiter(connection.chunks()))
            case 2:
                await connection.send(message)
                await connection.head()
            case 5:
                await connection.send(message[:-1])
            case _:
                await connection.send(message)
        if number % 4 > 1:
            connection.writer.transport.abort()  # RST instead of FIN
        await connection.close()

    async def all_of_them() -> Answer:
        for start in range(0, ABORTS, 20):
            await asyncio.gather(*(quick(number) for number in range(start, start + 20)))
        await idle(server.port)
        return await ask(server.port, "POST", COMPLETIONS, body("Hello", 3))

    assert run(all_of_them()).status == 200


def test_memory_after_many_short_requests(server):
    """After a warm-up, further requests use no more memory in either process (for an hour: benchmarks/soak.py)."""
    pids = (server.pid, server.engine())

    async def some(count: int) -> None:
        async def worker(number: int) -> None:
            for index in range(count // 10):
                answer = await ask(server.port, "POST", COMPLETIONS, body(f"{PROMPTS[number % 8]} {index}", 2))
                assert answer.status == 200

        await asyncio.gather(*map(worker, range(10)))

    run(some(100))
    before = [rss_of(pid) for pid in pids]
    run(some(300))
    grown = [rss_of(pid) / start - 1 for pid, start in zip(pids, before, strict=True)]
    assert max(grown) < 0.05, f"grown by {grown}"
