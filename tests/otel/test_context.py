"""The current span inside probed calls and users' spans, and the parent of each."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN

from tests.otel.users import Program, current, current_id, leaf, one, program, record, tracer, tree
from tracellm import probe

__all__ = ["program", "tracer"]


@probe
def function() -> Any:
    """Return the current span of a function."""
    return current()


@probe
async def coroutine() -> Any:
    """Return the current span of a coroutine."""
    await asyncio.sleep(0)
    return current()


@probe
def generator() -> Iterator[Any]:
    """Yield the current span of a generator."""
    yield current()


@probe
async def stream() -> AsyncIterator[Any]:
    """Yield the current span of an asynchronous generator."""
    yield current()


async def in_thread() -> Any:
    """Return the current span of a call in a thread."""
    return await asyncio.to_thread(function)


async def first(values: AsyncIterator[Any]) -> Any:
    """Return the first value."""
    seen = [value async for value in values]
    return seen[0]


KINDS = {
    "function": function,
    "coroutine": lambda: asyncio.run(coroutine()),
    "generator": lambda: next(generator()),
    "stream": lambda: asyncio.run(first(stream())),
    "function ": lambda: asyncio.run(in_thread()),
    " function": lambda: ThreadPoolExecutor(1).submit(function).result(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_current_span_is_the_call(kind: str, tmp_path: Path):
    """Inside a probed call of any kind the current span has the recorded ids of the call."""
    seen: list[Any] = []
    recorded = record(tmp_path, lambda: seen.append(KINDS[kind]()))
    span = one(recorded, kind.strip())
    assert seen == [(span.trace_id, span.span_id)]
    assert trace.get_current_span() is INVALID_SPAN


def test_outside_of_calls_the_script_is_current(tmp_path: Path):
    """Outside of probed calls the current span is the script's."""
    seen: list[Any] = []
    recorded = record(tmp_path, lambda: seen.append(current()))
    assert seen == [(recorded.roots[0].trace_id, recorded.roots[0].span_id)]


def test_spans_and_calls_are_one_tree(tracer: trace.Tracer, tmp_path: Path):
    """Spans in calls and calls in spans are children of each other in one trace."""
    seen: dict[str, Any] = {}

    @probe(name="buys")
    def buys() -> None:
        with tracer.start_as_current_span("orders"):
            seen["orders"] = current()
            seen["leaf"] = leaf()
            with tracer.start_as_current_span("pays"):
                seen["pays"] = current()
            assert current() == seen["orders"]
        seen["buys"] = current()

    recorded = record(tmp_path, buys)
    assert tree(recorded) == ["script.py", "  buys", "    orders", "      leaf", "      pays"]
    assert seen == {name: (one(recorded, name).trace_id, one(recorded, name).span_id) for name in seen}
    assert len({span.trace_id for span in recorded.spans}) == 1


def test_what_is_exported_has_the_recorded_ids(program: Program, tmp_path: Path):
    """The program's own exporter gets its span with the recorded ids and parent."""

    @probe(name="buys")
    def buys() -> None:
        program.tracer.start_span("orders").end()

    recorded = record(tmp_path, buys)
    exported = program.exported["orders"]
    ids, parent, span = exported.context, exported.parent, one(recorded, "orders")
    assert ids is not None
    assert parent is not None
    assert (f"{ids.trace_id:032x}", f"{ids.span_id:016x}") == (span.trace_id, span.span_id)
    assert f"{parent.span_id:016x}" == span.parent_span_id == one(recorded, "buys").span_id


def test_coroutines_pause_in_spans(tracer: trace.Tracer, tmp_path: Path):
    """Concurrent tasks with a span each do not enter one another's spans."""

    async def works(name: str) -> None:
        with tracer.start_as_current_span(name):
            for _ in range(2):
                await asyncio.sleep(0)
                leaf()
                await coroutine()

    @probe(name="both")
    async def both() -> None:
        await asyncio.gather(works("a"), works("b"))
        leaf()

    recorded = record(tmp_path, lambda: asyncio.run(both()))
    calls = ["      leaf", "      coroutine"] * 2
    assert tree(recorded) == ["script.py", "  both", "    a", *calls, "    b", *calls, "    leaf"]


def test_tasks_keep_the_span_they_were_made_in(tracer: trace.Tracer, tmp_path: Path):
    """A task belongs to the span in which it was created, also after the span's end."""

    async def later(ended: asyncio.Event) -> Any:
        await ended.wait()
        leaf()
        return current()

    async def main() -> None:
        ended = asyncio.Event()
        with tracer.start_as_current_span("span") as span:
            task = asyncio.create_task(later(ended))
            inside = current()
        ended.set()
        assert await task == inside == (f"{span.get_span_context().trace_id:032x}", current_id(span))
        leaf()

    recorded = record(tmp_path, lambda: asyncio.run(main()))
    assert tree(recorded) == ["script.py", "  span", "    leaf", "  leaf"]


def test_threads_and_pools_in_spans(tracer: trace.Tracer, tmp_path: Path):
    """Calls of a thread started in a span, or of a pool's work submitted there, are the span's children."""
    pool = ThreadPoolExecutor(1)

    def works() -> None:
        leaf()
        with tracer.start_as_current_span("there"):
            leaf()

    def main() -> None:
        pool.submit(leaf).result()
        with tracer.start_as_current_span("here"):
            thread = threading.Thread(target=works)
            thread.start()
            thread.join()
            pool.submit(works).result()
            asyncio.run(in_thread())
        pool.submit(leaf).result()

    recorded = record(tmp_path, main)
    works_recorded = ["    leaf", "    there", "      leaf"]
    assert tree(recorded) == ["script.py", "  leaf", "  here", *works_recorded * 2, "    function", "  leaf"]


def test_generators_pause_in_spans(tracer: trace.Tracer, tmp_path: Path):
    """While a generator's span is open, calls of the generator and of its consumer are the span's children."""

    @probe(name="counts")
    def counts() -> Iterator[int]:
        with tracer.start_as_current_span("span"):
            for i in range(2):
                leaf()
                yield i
        leaf()

    def main() -> None:
        for _ in counts():
            function()
        function()

    recorded = record(tmp_path, main)
    inside = ["      leaf", "      function"] * 2
    assert tree(recorded) == ["script.py", "  counts", "    span", *inside, "    leaf", "  function"]


def test_asynchronous_generators_pause_in_spans(tracer: trace.Tracer, tmp_path: Path):
    """While an asynchronous generator's span is open, its and its consumer's calls are the span's children."""

    @probe(name="counts")
    async def counts() -> AsyncIterator[int]:
        with tracer.start_as_current_span("span"):
            for i in range(2):
                leaf()
                yield i
        leaf()

    async def main() -> None:
        async for _ in counts():
            function()
        function()

    recorded = record(tmp_path, lambda: asyncio.run(main()))
    inside = ["      leaf", "      function"] * 2
    assert tree(recorded) == ["script.py", "  counts", "    span", *inside, "    leaf", "  function"]
