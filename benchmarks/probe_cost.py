"""What a probed call costs, beside a bare call, an append of a tuple, and a span of the OpenTelemetry SDK.

    python benchmarks/probe_cost.py [--repeats 60] [--calls 2000]

Everything is measured in turn, many times over, in CPU time of this thread, so that other work on the machine matters
little; told are medians, the spread (the quartiles), and the ratio to the append of a `(name, start, end)` tuple. The
garbage collector runs as it does in a program. The aim: at most 2.5 times the tuple, attributes included.
"""

# ruff: noqa: T201  (it prints a table)
import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracellm.probes.brief import arguments_and_result
from tracellm.probes.build import Builder
from tracellm.probes.clock import Clock, Ids
from tracellm.probes.spec import Probe, code_constants
from tracellm.probes.state import next_call, state
from tracellm.probes.wrap import wrap
from tracellm.probes.writer import Writer
from tracellm.trace.model import Process

__all__ = ["main"]

Function = Callable[..., Any]
_clock = time.perf_counter_ns


def work(x: int, y: int) -> int:
    """What is called: nothing that takes time."""
    return x


async def waits(x: int, y: int) -> int:
    """The same as a coroutine."""
    return x


def tuple_append(function: Function, records: list[Any]) -> Function:
    """The yardstick: two readings of the clock and a tuple in a list."""
    append = records.append

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = _clock()
        result = function(*args, **kwargs)
        append(("work", start, _clock()))
        return result

    return wrapper


def tuple_append_async(function: Function, records: list[Any]) -> Function:
    """The yardstick for coroutines."""
    append = records.append

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = _clock()
        result = await function(*args, **kwargs)
        append(("work", start, _clock()))
        return result

    return wrapper


def probed(function: Function, attributes: bool) -> Function:
    """One of our probes; with `attributes` it keeps arguments and result, else name, parent and times."""
    capture = arguments_and_result(function, "")[0] if attributes else None
    return wrap(function, Probe(method="work", level="request", span_name="work", capture=capture))


def sdk_span(function: Function) -> Function | None:
    """A span of the OpenTelemetry SDK with two attributes, exported to nowhere; None when it is not installed."""
    with contextlib.suppress(ImportError):
        from opentelemetry.sdk.trace import TracerProvider

        tracer = TracerProvider().get_tracer("benchmark")

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with tracer.start_as_current_span("work") as span:
                result = function(*args, **kwargs)
                span.set_attribute("x", args[0])
                span.set_attribute("result", result)
                return result

        return wrapper
    return None


def measure(candidates: dict[str, Function], records: list[Any], calls: int, repeats: int) -> dict[str, list[float]]:
    """Nanoseconds of CPU time a call, for each candidate and repeat; the candidates take turns."""
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, function in candidates.items():
            records.clear()
            start = time.thread_time_ns()
            function(calls)
            times[name].append((time.thread_time_ns() - start) / calls)
    return times


def repeated(function: Function) -> Function:
    """A loop of calls."""

    def loop(calls: int) -> None:
        for _ in range(calls):
            function(1, 2)

    return loop


def repeated_async(function: Function) -> Function:
    """A loop of awaited calls in one task."""

    async def awaits(calls: int) -> None:
        for _ in range(calls):
            await function(1, 2)

    return lambda calls: asyncio.run(awaits(calls))


def deferred(calls: int) -> float:
    """Nanoseconds of CPU time to build, encode and write one span of a call with arguments and a result."""
    capture, attributes = arguments_and_result(work, "")
    probe = Probe("work", "kernel", "work", "", "work", "work", code_constants(work), capture, attributes)
    root = next_call()
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(
            Path(folder) / "t.jsonl", Process(1, "main"), Builder(Clock.real(), Ids(), root, True), [], ""
        )
        for i in range(calls):
            facts = capture((i % 7, 2), {}, i % 5)
            writer.buffer.append((probe, next_call(), root, None, None, i, i + 1, i + 1, facts, None))
        start = time.thread_time_ns()
        writer._write(writer._withheld.release(writer._drain(pause=False)))
        return (time.thread_time_ns() - start) / calls


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print the medians as JSON")
    options = parser.parse_args()
    records: list[Any] = []
    state.clock, state.append = _clock, records.append
    candidates = {
        "bare call": repeated(work),
        "tuple append": repeated(tuple_append(work, records)),
        "probe": repeated(probed(work, attributes=False)),
        "probe, arguments and result": repeated(probed(work, attributes=True)),
    }
    if (span := sdk_span(work)) is not None:
        candidates["OpenTelemetry SDK span"] = repeated(span)
    coroutines = {
        "bare coroutine": repeated_async(waits),
        "tuple append, coroutine": repeated_async(tuple_append_async(waits, records)),
        "probe, coroutine, arguments and result": repeated_async(probed(waits, attributes=True)),
    }
    results = {}
    for group, yardstick in ((candidates, "tuple append"), (coroutines, "tuple append, coroutine")):
        times = measure(group, records, options.calls, options.repeats)
        unit = statistics.median(times[yardstick])
        for name, values in times.items():
            low, middle, high = statistics.quantiles(values, n=4)
            results[name] = {"ns": round(middle), "ratio": round(middle / unit, 2)}
            if not options.json:
                print(f"{name:40} {middle:8.0f} ns  ({low:.0f} to {high:.0f})  {middle / unit:6.2f} times the tuple")
    state.append = None
    built = statistics.median(deferred(5000) for _ in range(5))
    if options.json:
        print(json.dumps({**results, "build, encode, write": {"ns": round(built)}}))
    else:
        print(f"{'build, encode, write (not in the call)':40} {built:8.0f} ns a span")


if __name__ == "__main__":
    main()
