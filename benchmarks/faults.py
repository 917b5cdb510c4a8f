"""Reaction times to faults: a killed engine process, and a client that disconnects.

    python benchmarks/faults.py [--kills 3] [--leaves 50]

The first is the time in milliseconds until the error arrives: in `LLM`, in the last of five readers of an `AsyncLLM`,
and in the last of five streams of a server. Target: below a second. The second is the number of steps in which the
engine core still has a request of a client that disconnected. Target: at most two.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import asyncio
import os
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the tests' server and their HTTP

from tests.faults.http import stream
from tests.faults.processes import ENGINE, Server, engine_of
from tracellm import LLM, AsyncLLM, SamplingParams
from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.metrics.loggers import StatLoggerBase

__all__ = ["main"]

LONG = SamplingParams(max_tokens=900, ignore_eos=True)
READERS = 5


def kill_engine(pid: int) -> float:
    """Kill the engine process of a process; return the time."""
    engine = engine_of(pid)
    assert engine is not None
    os.kill(engine, signal.SIGKILL)
    return time.perf_counter()


def kill_under_llm() -> float:
    """Return the seconds until `LLM.generate` raises."""
    llm = LLM(multiprocess_mode=True, **ENGINE)
    killed: list[float] = []
    timer = threading.Timer(0.5, lambda: killed.append(kill_engine(os.getpid())))
    timer.start()
    try:
        while True:
            llm.generate(["a"] * 4, LONG, use_tqdm=False)
    except EngineDeadError:
        return time.perf_counter() - killed[0]


async def last_error(stream: AsyncIterator[Any]) -> float:
    """Return the time when a stream of outputs ends by EngineDeadError."""
    try:
        async for _ in stream:
            pass
    except EngineDeadError:
        return time.perf_counter()
    raise AssertionError("the stream ended without an error")


async def kill_under_async_llm() -> float:
    """Return the seconds until the last of several readers gets its error."""
    llm = AsyncLLM(**ENGINE)
    streams = [llm.generate("a", LONG, str(number)) for number in range(READERS)]
    await asyncio.gather(*(anext(stream) for stream in streams))
    killed = kill_engine(os.getpid())
    ends = await asyncio.gather(*map(last_error, streams))
    llm.shutdown()
    return max(ends) - killed


async def kill_under_server(server: Server) -> float:
    """Return the seconds until the last of several streams gets its error event."""
    body = {"prompt": "a", "max_tokens": 900, "ignore_eos": True}
    connections = [await stream(server.port, body) for _ in range(READERS)]
    readers = [connection.events() for connection in connections]
    await asyncio.gather(*(anext(reader) for reader in readers))
    killed = kill_engine(server.pid)

    async def error(reader: AsyncIterator[str]) -> float:
        async for event in reader:
            if "EngineDeadError" in event:
                return time.perf_counter()
        raise AssertionError("the stream ended without an error")

    ends = await asyncio.gather(*map(error, readers))
    for connection in connections:
        await connection.close()
    return max(ends) - killed


class Running(StatLoggerBase):
    """Stat logger that keeps the number of running requests after each step."""

    steps: list[int]

    def __init__(self, *_: Any) -> None:
        self.steps = []
        Running.latest = self

    latest: "Running"

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        """Add a step."""
        if scheduler_stats is not None:
            self.steps.append(scheduler_stats.num_running_reqs)

    def log_engine_initialized(self) -> None:
        """Do nothing."""


async def leave(times: int) -> Counter[int]:
    """Abort `times` requests, one by one, beside one that stays; count the steps that still had them."""
    llm = AsyncLLM(**ENGINE, stat_loggers=[Running])
    stays = llm.generate("a", SamplingParams(max_tokens=1000, ignore_eos=True), "stays")
    await anext(stays)
    counts: Counter[int] = Counter()
    number = 0
    while sum(counts.values()) < times:
        number += 1
        aborted = llm.generate("b", LONG, f"leaves-{number}")
        for _ in range(3):
            await anext(aborted)
        running_counts = Running.latest.steps
        before = len(running_counts)
        await aborted.aclose()
        while len(running_counts) < before + 1 or running_counts[-1] > 1:
            if (await anext(stays)).finished:
                stays = llm.generate("a", SamplingParams(max_tokens=1000, ignore_eos=True), f"stays-{number}")
                break
        else:
            counts[sum(running > 1 for running in running_counts[before:])] += 1
    llm.shutdown()
    return counts


def report(name: str, measure: Callable[[], float], times: int) -> None:
    """Measure several times, and print the median and the maximum."""
    values = [measure() * 1000 for _ in range(times)]
    print(f"{name:<10} {statistics.median(values):>7.1f} ms   worst {max(values):>7.1f} ms", flush=True)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--leaves", type=int, default=50)
    options = parser.parse_args()

    def of_a_server() -> float:
        with Server() as server:
            return asyncio.run(kill_under_server(server))

    print("From kill -9 of the engine process to the error:")
    report("LLM", kill_under_llm, options.kills)
    report("AsyncLLM", lambda: asyncio.run(kill_under_async_llm()), options.kills)
    report("server", of_a_server, options.kills)
    steps = asyncio.run(leave(options.leaves))
    print("Steps that still had a request whose client had left, and how often:")
    print(", ".join(f"{count} times {number}" for number, count in sorted(steps.items())))


if __name__ == "__main__":
    main()
