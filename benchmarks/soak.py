"""Soak test of `tracellm serve`: an hour of mixed traffic, after which nothing has grown, failed or been kept.

    python benchmarks/soak.py [--minutes 60] [--warm-up 3000] [--clients 4] [--health 0.5] [OPTION OF THE SERVER ...]

The clients send short and long prompts, conversations with a list of tools, streams, structured outputs, and requests
that the server refuses; they leave streams in the middle and requests before the answer. Some constraints are tried in
a process of their own, and a few of them until its limits. Idle connections stay open beside them. After the warm-up,
whose requests touch all of the KV cache and fill the allocator's pools, the time is divided into rounds. After each the
clients pause, and the server is measured at rest.

Criteria, for the exit status: memory of each process has grown by less than 3 % or 4 MiB along the line fitted to all
rounds; as many descriptors are open as after the warm-up; each request got the answer that it should; 99 of 100
requests for /health took less than `--health` seconds; no request is left, and all KV cache blocks are free.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import asyncio
import json
import os
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests' server and their HTTP

from benchmarks.pages import machine, table
from tests.faults.http import CHAT, COMPLETIONS, Connection, ask, idle, request, stream
from tests.faults.processes import Server, rss_of, session_of

__all__ = ["GROWTH", "SLACK", "Round", "growth", "main", "problems"]

GROWTH = 0.03
"""Part of its memory by which a process may grow after the warm-up; the allocator's pools vary by 1 to 2 %."""
SLACK = 4 << 20
"""Bytes by which a small process may grow: that for trials of constraints is another one after each that it refused."""
_ROUNDS = 20
_IDLE = 8
"""Connections without a request."""
_REST = 60.0
"""Seconds in which the server must come to rest when the clients pause."""
_SECONDS = 120.0
"""Seconds after which a request counts as lost."""
_MEBIBYTE = 1 << 20

_TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@dataclass
class Round:
    """State of the server at rest, after the warm-up or a round."""

    minute: float
    requests: int
    memory: dict[str, int]
    """Resident bytes by process."""
    descriptors: dict[str, int]
    """Open descriptors by process."""
    health: list[float]
    """Seconds of each request for /health in the round."""


@dataclass
class _Traffic:
    """Requests so far, and those that failed."""

    port: int
    sent: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Number of failures by kind of request and error."""

    async def client(self, requests: int, end: float) -> None:
        """Send one request after another until there were so many in all and `time.monotonic` is at `end`."""
        while self.sent < requests or time.monotonic() < end:
            number, self.sent = self.sent, self.sent + 1
            kind = _KINDS[number % len(_KINDS)]
            try:
                await asyncio.wait_for(kind(self.port, number), _SECONDS)
            except Exception as error:  # of any kind: it is counted
                self.failed[f"{kind.__name__.strip('_')}: {type(error).__name__}: {str(error)[:300]}"] += 1

    async def idle_connection(self) -> None:
        """Keep a connection open without a request; open another when the server closes it."""
        while True:
            connection = await Connection.open(self.port)
            try:
                await connection.reader.read()
            finally:
                await connection.close()


class _Health(threading.Thread):
    """Asks for /health twice a second, in a thread of its own so that the clients do not delay it."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self._ends = threading.Event()
        self.seconds: list[float] = []
        self.failures = 0

    def run(self) -> None:
        while not self._ends.wait(0.5):
            start = time.perf_counter()
            connection = HTTPConnection("127.0.0.1", self._port, timeout=_SECONDS)
            try:
                connection.request("GET", "/health")
                self.failures += connection.getresponse().status != 200
            except (OSError, HTTPException):
                self.failures += 1
            finally:
                connection.close()
            self.seconds.append(time.perf_counter() - start)

    def end(self) -> None:
        """End the thread, before the server ends and refuses its connections."""
        self._ends.set()
        self.join()


def _prompt(number: int, words: int) -> str:
    return f"Request {number}: " + "the capital of France is " * (words // 5)


async def _expect(port: int, path: str, body: Any, status: int = 200) -> Any:
    answer = await ask(port, "POST", path, body)
    assert answer.status == status, f"{answer.status} instead of {status}: {answer.body.decode()[:200]}"
    return answer.json()


async def _short(port: int, number: int) -> None:
    tokens, n = 1 + number % 32, 1 + number // 12 % 2
    body = {"prompt": _prompt(number, 5), "max_tokens": tokens, "ignore_eos": True, "seed": number, "n": n}
    answer = await _expect(port, COMPLETIONS, body | {"logprobs": number % 3})
    assert answer["usage"]["completion_tokens"] == n * tokens, answer["usage"]


async def _long(port: int, number: int) -> None:
    prompts = [_prompt(3 * number + index, 600) for index in range(3)]  # more than one step takes: the most memory
    await _expect(port, COMPLETIONS, {"prompt": prompts, "max_tokens": 8})


async def _tools(port: int, number: int) -> None:
    messages = [{"role": "user", "content": _prompt(number, 5)}]
    await _expect(port, CHAT, {"messages": messages, "tools": [_TOOL], "tool_choice": "none", "max_tokens": 16})


async def _streamed(port: int, number: int) -> None:
    messages = [{"role": "user", "content": _prompt(number, 10)}]
    connection = await stream(port, {"messages": messages, "max_tokens": 32}, CHAT)
    events = [event async for event in connection.events()]
    await connection.close()
    assert events[-1] == "[DONE]", events[-1]


async def _left_in_the_middle(port: int, number: int) -> None:
    connection = await stream(port, {"prompt": _prompt(number, 10), "max_tokens": 500, "ignore_eos": True})
    events = aiter(connection.events())
    for _ in range(1 + number % 5):
        await anext(events)
    await connection.close()


async def _left_before_the_answer(port: int, number: int) -> None:
    connection = await Connection.open(port)
    body = {"prompt": _prompt(number, 200), "max_tokens": 500, "ignore_eos": True}
    await connection.send(request("POST", COMPLETIONS, json.dumps(body).encode()))
    await asyncio.sleep(0.05)
    await connection.close()


async def _schema(port: int, number: int) -> None:
    turn = number // len(_KINDS)
    city: dict[str, Any] = {"enum": ["Paris", "Berlin", f"City {turn % 2000}"]}  # more than the server remembers
    if turn % 3 == 0:
        city["pattern"] = "^[PBC]"  # tried in a process of its own
    schema = {"type": "object", "properties": {"city": city, "sure": {"type": "boolean"}}, "required": ["city", "sure"]}
    structured = {"json": schema, "disable_any_whitespace": True}
    body = {"prompt": "Paris?", "max_tokens": 64, "seed": number, "structured_outputs": structured}
    choice = (await _expect(port, COMPLETIONS, body))["choices"][0]
    assert choice["finish_reason"] == "stop", choice
    assert json.loads(choice["text"])["city"] in city["enum"], choice


async def _refused(port: int, number: int) -> None:
    body, status = [
        ({"prompt": _prompt(number, 2000)}, 400),  # longer than the context
        ({"prompt": "Hello", "temperature": -1}, 400),
        ({"prompt": "Hello", "model": "unknown"}, 404),
        ({"prompt": "Hello", "structured_outputs": {"json": {"type": f"kind {number}"}}}, 400),
        ({"prompt": "Hello", "structured_outputs": {"json": _slow_schema(number)}}, 400),
        (b'{"prompt": "Hel', 400),
    ][number // len(_KINDS) % 6]
    await _expect(port, COMPLETIONS, body, status)


def _slow_schema(number: int) -> dict[str, Any]:
    """Return a schema that takes more than the limits allow, another for each 2000 requests; others are remembered.

    The automaton of a number without the factors 2 and 5 has as many states.
    """
    return {"multipleOf": 1_000_003 + number // 2000 * 10}


def _new_trial(number: int) -> dict[str, Any]:
    """Return a request whose constraint is tried, so that the process for trials runs when memory is measured."""
    return {"prompt": "Paris?", "max_tokens": 8, "structured_outputs": {"json": {"pattern": f"^{number}$"}}}


async def _tokens(port: int, number: int) -> None:
    answer = await _expect(port, "/tokenize", {"prompt": _prompt(number, 50)})
    assert answer["count"] == len(answer["tokens"]), answer


_KINDS: list[Callable[[int, int], Awaitable[None]]] = [
    *(_short, _streamed, _left_in_the_middle, _long, _schema, _refused),
    *(_short, _streamed, _left_before_the_answer, _tools, _refused, _tokens),
]
"""Kinds of requests, sent in this order again and again."""


def growth(seconds: Sequence[float], sizes: Sequence[float]) -> float:
    """Return by what part of its first value the line fitted to `sizes` grows."""
    slope, start = statistics.linear_regression(seconds, sizes)
    first = start + slope * seconds[0]
    return slope * (seconds[-1] - seconds[0]) / first


def problems(rounds: Sequence[Round], health: float) -> list[str]:
    """Return the criteria that are not met; `rounds[0]` is the warm-up, and `health` the limit in seconds."""
    found = []
    for name, first in rounds[0].descriptors.items():
        grown = growth([one.minute for one in rounds], [one.memory[name] for one in rounds])
        if grown > GROWTH and grown * rounds[0].memory[name] > SLACK:
            found.append(f"the memory of {name} has grown by {grown:.1%}")
        if (last := rounds[-1].descriptors[name]) > first:
            found.append(f"{name} had {first} descriptors, and has {last}")
    slow = _p99([seconds for one in rounds[1:] for seconds in one.health])
    if slow > health:
        found.append(f"/health took {slow:.2f} s (99th percentile)")
    return found


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))]


def _processes(server: Server) -> dict[str, list[int]]:
    engine = server.engine()
    others = [pid for pid in session_of(server.pid) if pid not in (server.pid, engine)]
    return {"front end": [server.pid], "engine core": [engine], "others": others}


def _measure(server: Server, minute: float, sent: int, health: list[float]) -> Round:
    memory, descriptors = {}, {}
    for name, pids in _processes(server).items():
        memory[name] = sum(rss_of(pid) for pid in pids)
        descriptors[name] = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)
    return Round(minute, sent, memory, descriptors, health)


async def _round(traffic: _Traffic, clients: int, requests: int, end: float) -> None:
    """Send requests until there were so many in all and `time.monotonic` is at `end`; wait for the server's rest."""
    kept = [asyncio.create_task(traffic.idle_connection()) for _ in range(_IDLE)]
    await asyncio.gather(*(traffic.client(requests, end) for _ in range(clients)))
    for task in kept:
        task.cancel()
    await asyncio.gather(*kept, return_exceptions=True)
    await asyncio.wait_for(idle(traffic.port), _REST)
    await _expect(traffic.port, COMPLETIONS, _new_trial(traffic.sent))
    await asyncio.sleep(1)  # the server notices closed connections


def _rounds(server: Server, traffic: _Traffic, health: _Health, options: argparse.Namespace) -> Iterator[Round]:
    """Yield the state after the warm-up and after each round.

    Raises:
        TimeoutError: the server did not come to rest.
    """
    start = time.monotonic()
    for number in range(_ROUNDS + 1):
        first, end = len(health.seconds), time.monotonic() + options.minutes * 60 / _ROUNDS if number else 0
        asyncio.run(_round(traffic, options.clients, options.warm_up, end))
        yield _measure(server, (time.monotonic() - start) / 60, traffic.sent, health.seconds[first:])
        print(f"round {number} of {_ROUNDS}: {traffic.sent} requests", file=sys.stderr, flush=True)


def main() -> None:
    """Send the traffic, print the table and the verdict; the exit status is 1 if a criterion is not met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="minutes of traffic after the warm-up")
    parser.add_argument("--warm-up", type=int, default=3000, help="requests before the first measurement")
    parser.add_argument("--clients", type=int, default=4, help="requests at a time")
    parser.add_argument("--health", type=float, default=0.5, help="seconds that 99 of 100 /health may take")
    options, of_server = parser.parse_known_args()
    with Server("--disable-uvicorn-access-log", *of_server) as server:
        traffic, health, rounds = _Traffic(server.port), _Health(server.port), list[Round]()
        health.start()
        found = []
        try:
            rounds += _rounds(server, traffic, health, options)
            found += problems(rounds, options.health)
        except TimeoutError:
            found.append(f"requests or KV cache blocks are left {_REST:.0f} s after the last request")
        health.end()
        log = server.log.stat().st_size
    found += [f"{count} times {failure}" for failure, count in traffic.failed.most_common(10)]
    if health.failures:
        found.append(f"/health failed {health.failures} times")
    print(machine(["torch"]), "\n")
    print(_table(rounds))
    print(f"{traffic.sent} requests, {options.clients} at a time; the server logged {log / 1024:.0f} KiB.")
    print("\n".join(f"FAILED: {one}." for one in found) or "PASSED: nothing has grown, failed or been kept.")
    sys.exit(bool(found))


def _table(rounds: list[Round]) -> str:
    """Return every fourth round as a table."""
    names = list(rounds[0].memory) if rounds else []
    heads = ["minute", "requests", *(f"{name}, MiB" for name in names), "descriptors", "/health p50, p99, max (ms)"]
    rows = []
    for one in rounds[::4]:
        times = [1000 * seconds for seconds in sorted(one.health)]
        row = [f"{one.minute:.1f}", str(one.requests), *(f"{one.memory[name] / _MEBIBYTE:.1f}" for name in names)]
        row += [" + ".join(str(one.descriptors[name]) for name in names)]
        row += [f"{statistics.median(times):.1f}, {1000 * _p99(one.health):.0f}, {times[-1]:.0f}"]
        rows.append(row)
    return table(heads, rows)


if __name__ == "__main__":
    main()
