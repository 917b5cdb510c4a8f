"""The candidates of benchmarks/probe_cost.py: loops of calls, instrumented in different ways.

All candidates of a group call the same function; ratios are to the append of a `(name, start, end)` tuple around it.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.probe_cost_names import BARE, PROBE, TUPLE, Group
from tracellm.probes.context.call_context import state
from tracellm.probes.decorator import probe as own_probe
from tracellm.probes.wrapping.probe import Probe
from tracellm.probes.wrapping.summary import arguments_and_result
from tracellm.probes.wrapping.wrapper import wrap
from tracellm.trace.names import Level

__all__ = ["Candidate", "candidates", "exporting"]

Function = Callable[..., Any]
Loop = Callable[[int], None]
_clock = time.perf_counter_ns


def _nothing() -> None: ...


@dataclass
class Candidate:
    """A measured `loop(calls)`, and what runs `before` and `after` it. `keeps`: the records stay in memory."""

    loop: Loop
    before: Callable[[], None] = _nothing
    after: Callable[[], None] = _nothing
    keeps: bool = False


# -- the functions ----------------------------------------------------------------------------------------------------


def work(x: int, y: int) -> int:
    """Return at once."""
    return x


async def waits(x: int, y: int) -> int:
    """Return at once, as a coroutine."""
    return x


def yields(x: int, y: int) -> Iterator[int]:
    """Yield once, as a generator."""
    yield x


async def streams(x: int, y: int) -> AsyncIterator[int]:
    """Yield once, as an asynchronous generator."""
    yield x


class Layer:
    """Owner of the function as a method."""

    def forward(self, x: int, y: int) -> int:
        """Return at once."""
        return x


# -- the reference: two clock readings and a tuple in a list ---------------------------------------------------------


def _append_tuple(function: Function, append: Callable[[Any], None]) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = _clock()
        result = function(*args, **kwargs)
        append(("work", start, _clock()))
        return result

    return wrapper


def _append_tuple_coroutine(function: Function, append: Callable[[Any], None]) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = _clock()
        result = await function(*args, **kwargs)
        append(("work", start, _clock()))
        return result

    return wrapper


def _append_tuple_generator(function: Function, append: Callable[[Any], None]) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = _clock()
        result = yield from function(*args, **kwargs)
        append(("work", start, _clock()))
        return result

    return wrapper


def _append_tuple_stream(function: Function, append: Callable[[Any], None]) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        start = _clock()
        async for item in function(*args, **kwargs):
            yield item
        append(("work", start, _clock()))

    return wrapper


# -- the others -------------------------------------------------------------------------------------------------------


def _probed(function: Function, level: Level = "kernel", receiver: str = "", captured: bool = True) -> Function:
    capture = arguments_and_result(function, receiver)[0] if captured else None
    probe = Probe("work", level, span_name=None if receiver else "work", capture=capture)
    probe.receiver = receiver  # type: ignore[assignment]
    return wrap(function, probe)


def _with_wrapt(function: Function) -> Function:
    import wrapt

    @wrapt.decorator  # type: ignore[untyped-decorator]  # its types depend on the version
    def passes(wrapped: Function, instance: Any, args: Any, kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    wrapped: Function = passes(function)
    return wrapped


def _in_span(function: Function, tracer: Any) -> Function:
    def wrapper(x: int, y: int) -> Any:
        with tracer.start_as_current_span("work") as span:
            result = function(x, y)
            span.set_attribute("x", x)
            span.set_attribute("y", y)
            span.set_attribute("result", result)
            return result

    return wrapper


def _in_span_coroutine(function: Function, tracer: Any) -> Function:
    async def wrapper(x: int, y: int) -> Any:
        with tracer.start_as_current_span("work") as span:
            result = await function(x, y)
            span.set_attribute("x", x)
            span.set_attribute("y", y)
            span.set_attribute("result", result)
            return result

    return wrapper


def exporting(file: Path | None) -> tuple[Any, list[int]]:
    """Return a provider of the SDK with a batch processor, and a counter of exported spans; None discards them."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    num_exported = [0]
    stream = file.open("w", encoding="utf-8") if file is not None else None

    class Counting(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            num_exported[0] += len(spans)
            if stream is not None:
                stream.write("".join(f"{span.to_json(indent=None)}\n" for span in spans))
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            if stream is not None:
                stream.close()

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Counting()))
    return provider, num_exported


def _viztracer(loop: Loop) -> Candidate:
    from viztracer import VizTracer

    tracer = VizTracer(verbose=0, tracer_entries=1_000_000)
    return Candidate(loop, tracer.start, lambda: (tracer.stop(), tracer.clear())[1])


# -- loops ------------------------------------------------------------------------------------------------------------


def _calls(function: Function) -> Loop:
    def loop(calls: int) -> None:
        for _ in range(calls):
            function(1, 2)

    return loop


def _runs(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that never waits, without the cost of an event loop."""
    with contextlib.suppress(StopIteration):
        coroutine.send(None)


def _awaits(function: Function) -> Loop:
    async def awaits(calls: int) -> None:
        for _ in range(calls):
            await function(1, 2)

    return lambda calls: _runs(awaits(calls))


def _goes_through(function: Function) -> Loop:
    def loop(calls: int) -> None:
        for _ in range(calls):
            for _ in function(1, 2):
                pass

    return loop


def _goes_through_stream(function: Function) -> Loop:
    async def loop(calls: int) -> None:
        for _ in range(calls):
            async for _ in function(1, 2):
                pass

    return lambda calls: _runs(loop(calls))


def candidates(records: list[Any], folder: Path) -> dict[Group, dict[str, Candidate]]:
    """Return all candidates by group and name. Recordings go to `records`, files to `folder`."""
    from opentelemetry.trace import NoOpTracer

    def recording(loop: Loop) -> Candidate:
        def before() -> None:
            state.clock, state.append = _clock, records.append

        def after() -> None:
            state.append = None

        return Candidate(loop, before, after, keeps=True)

    def exported(loop_of: Callable[[Function], Loop], around: Function, function: Function, name: str) -> Candidate:
        provider, _ = exporting(folder / name if name else None)
        tracer = provider.get_tracer("benchmark")
        return Candidate(loop_of(around(function, tracer)), after=lambda: (provider.force_flush(), None)[1])

    append = records.append
    layer = Layer()
    timed, probed = _append_tuple(Layer.forward, append), _probed(Layer.forward, receiver="self")
    return {
        "function": {
            BARE: Candidate(_calls(work)),
            "off": Candidate(_calls(own_probe(work))),
            TUPLE: Candidate(_calls(_append_tuple(work, append)), keeps=True),
            "plain": recording(_calls(_probed(work, captured=False))),
            PROBE: recording(_calls(_probed(work))),
            "step": recording(_calls(_probed(work, "step"))),
            "own": recording(_calls(own_probe(work))),
            "wrapt": Candidate(_calls(_with_wrapt(work))),
            "viztracer": _viztracer(_calls(work)),
            "otel": Candidate(_calls(_in_span(work, NoOpTracer()))),
            "null": exported(_calls, _in_span, work, ""),
            "file": exported(_calls, _in_span, work, "spans.jsonl"),
        },
        "method": {
            BARE: Candidate(_calls(layer.forward)),
            TUPLE: Candidate(_calls(timed.__get__(layer)), keeps=True),
            PROBE: recording(_calls(probed.__get__(layer))),
        },
        "coroutine": {
            BARE: Candidate(_awaits(waits)),
            TUPLE: Candidate(_awaits(_append_tuple_coroutine(waits, append)), keeps=True),
            PROBE: recording(_awaits(_probed(waits))),
            "own": recording(_awaits(own_probe(waits))),
            "null": exported(_awaits, _in_span_coroutine, waits, ""),
        },
        "generator": {
            BARE: Candidate(_goes_through(yields)),
            TUPLE: Candidate(_goes_through(_append_tuple_generator(yields, append)), keeps=True),
            PROBE: recording(_goes_through(_probed(yields))),
        },
        "async generator": {
            BARE: Candidate(_goes_through_stream(streams)),
            TUPLE: Candidate(_goes_through_stream(_append_tuple_stream(streams, append)), keeps=True),
            PROBE: recording(_goes_through_stream(_probed(streams))),
        },
    }
