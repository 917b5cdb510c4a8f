"""The wrapper: every kind of function keeps its kind, metadata, results and exceptions, and nests correctly."""

import asyncio
import contextvars
import inspect
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.probes.tracing import outline, record, times
from tracellm import probe
from tracellm.probes import catalog
from tracellm.probes.context import exceptions as errors
from tracellm.probes.wrapping.probe import Probe
from tracellm.probes.wrapping.wrapper import wrap
from tracellm.trace import names


@probe
def leaf(x: int) -> int:
    """Doubles."""
    return 2 * x


@probe
def fails(x: int) -> int:
    """Raise KeyError."""
    raise KeyError("broken")


@probe
def counts(n: int) -> Generator[int, None, str]:
    """Yield doubles."""
    for i in range(n):
        yield leaf(i)
    return "all"


@probe
async def waits(x: int) -> int:
    """Double in two steps."""
    leaf(x)
    await asyncio.sleep(0)
    return leaf(x)


@probe
async def streams(n: int) -> AsyncGenerator[int, None]:
    """Yield doubles, waiting for each."""
    for i in range(n):
        yield await waits(i)


def test_kinds_and_metadata():
    """A probed function keeps its kind, name, docstring, module and signature."""
    assert inspect.isgeneratorfunction(counts)
    assert inspect.iscoroutinefunction(waits)
    assert inspect.isasyncgenfunction(streams)
    assert not inspect.isgeneratorfunction(leaf)
    assert (leaf.__name__, leaf.__qualname__, leaf.__module__, leaf.__doc__) == ("leaf", "leaf", __name__, "Doubles.")
    assert str(inspect.signature(leaf)) == "(x: int) -> int"


def test_nothing_happens_when_nothing_is_recorded():
    """Without a recording, probed functions of every kind behave as unprobed."""
    generator = counts(2)
    assert list(generator) == [0, 2]
    assert asyncio.run(waits(2)) == 4
    assert asyncio.run(collect(streams(2))) == [0, 2]
    with pytest.raises(KeyError, match="broken"):
        fails(1)


async def collect(stream: AsyncIterator[int]) -> list[int]:
    """Return all items of a stream."""
    return [item async for item in stream]


def test_calls_nest(tmp_path: Path):
    """A whole trace has the right names, tree, times and source lines."""

    @probe
    def outer() -> None:
        leaf(1)
        leaf(x=2)

    trace = record(tmp_path, outer)
    assert outline(trace, names.ARGUMENTS, names.RESULT) == (
        "script.py\n  test_calls_nest.outer\n    leaf arguments=['x=1'] result=2\n    leaf arguments=['x=2'] result=4"
    )
    first = trace.spans[2]
    assert [times(span) for span in trace.spans] == [(0, 7), (1, 6), (2, 3), (4, 5)]
    assert [int(span.span_id, 16) for span in trace.spans] == [1, 2, 3, 4]
    assert {span.trace_id for span in trace.spans} == {f"{1:032x}"}
    assert first.attributes[names.CODE_FUNCTION] == f"{__name__}.leaf"
    assert first.attributes[names.CODE_FILE].endswith("test_wrap.py")
    assert first.attributes[names.CODE_LINE] == inspect.unwrap(leaf).__code__.co_firstlineno
    assert first.attributes[names.LEVEL] == "request"


def test_exceptions_are_recorded_and_pass(tmp_path: Path):
    """The span closes with the exception; the same exception is raised, without an added context."""
    original = ValueError("no such thing")

    @probe
    def raises() -> None:
        raise original

    @probe
    def outer() -> None:
        raises()

    caught = []

    def run() -> None:
        try:
            outer()
        except ValueError as error:
            caught.append(error)
        leaf(1)

    trace = record(tmp_path, run)
    assert caught == [original]
    assert original.__context__ is None
    assert original.__cause__ is None
    name = "test_exceptions_are_recorded_and_pass"
    assert outline(trace) == (
        f"script.py\n  {name}.outer !ValueError: no such thing\n    {name}.raises !ValueError: no such thing\n  leaf"
    )
    span = trace.named(f"{name}.raises")[0]
    assert span.attributes[names.ERROR_TYPE] == "ValueError"
    [event] = span.events
    assert event.name == "exception"
    assert event.attributes[names.EXCEPTION_TYPE] == "ValueError"
    assert event.attributes[names.EXCEPTION_MESSAGE] == "no such thing"
    stack = str(event.attributes[names.EXCEPTION_STACKTRACE])
    assert stack.startswith("Traceback (most recent call last):\n")
    assert stack.endswith("    raise original\nValueError: no such thing")
    assert "tracellm/probes/wrapping/wrapper.py" not in stack


def test_tracebacks_lose_the_frames_of_probes(tmp_path: Path):
    """An exception that leaves the recording, and its causes, have only the user's frames."""

    @probe
    def outer() -> None:
        try:
            fails(1)
        except KeyError as error:
            raise RuntimeError("outer") from error

    from tracellm.probes.recording import Recording

    with pytest.raises(RuntimeError) as caught, Recording(tmp_path, catalog=()):
        outer()
    text = "".join(traceback.format_exception(caught.value))
    assert "tracellm/probes/wrapping/wrapper.py" not in text
    assert "fails(1)" in text
    assert 'raise KeyError("broken")' in text


@pytest.mark.parametrize("file", ["<tracellm probe: shop.buy #3>", errors.__file__, catalog.__file__])
def test_frames_of_probes_are_known_by_their_files(file: str):
    """Frames of generated wrappers and of the package's files are left out, printed and recorded."""
    scope: dict[str, Any] = {"fails": fails}
    exec(compile("def between(): fails(1)", file, "exec"), scope)
    with pytest.raises(KeyError) as caught:
        scope["between"]()
    _, _, lines = errors.remember(caught.value)
    errors.without_probes(caught.value)
    files = [one.filename for one in traceback.extract_tb(caught.value.__traceback__)]
    assert files == [one[0] for one in lines] == [__file__, __file__]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_exceptions_that_are_not_errors(tmp_path: Path, kind: type[BaseException]):
    """Exceptions outside `Exception` close spans too, and pass; an exit with status 0 is no failure."""

    @probe
    def raises() -> None:
        raise kind

    def run() -> None:
        with pytest.raises(kind):
            raises()

    trace = record(tmp_path, run)
    assert not trace.spans[1].open
    assert [error.rpartition(".")[2] for error in trace_errors(trace)] == [kind.__name__] * (kind is not SystemExit)


def test_an_exception_whose_text_fails(tmp_path: Path):
    """An exception with a broken `__str__` is recorded by its type."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @probe
    def raises() -> None:
        raise Broken

    def run() -> None:
        with pytest.raises(Broken):
            raises()

    assert trace_errors(record(tmp_path, run)) == [f"{__name__}.test_an_exception_whose_text_fails.<locals>.Broken"]


def trace_errors(trace: Any) -> list[str]:
    """Return the errors of a trace."""
    return [span.error for span in trace.spans if span.error]


def test_generators(tmp_path: Path):
    """A generator's span is current only while its body runs; calls between its items are not its children."""
    results = []

    @probe
    def consumer() -> None:
        generator = counts(2)
        while True:
            try:
                item = next(generator)
            except StopIteration as stop:
                results.append(stop.value)
                break
            results.append(leaf(item))

    trace = record(tmp_path, consumer)
    assert results == [0, 4, "all"]
    assert outline(trace) == (
        "script.py\n  test_generators.consumer\n    counts\n      leaf\n      leaf\n    leaf\n    leaf"
    )


def test_a_generator_method_of_a_class_without_a_hash(tmp_path: Path):
    """A method of a class that cannot be a key of a dictionary is recorded, and nothing is raised."""

    class Comparable(type):
        def __eq__(cls, other: object) -> bool:
            return cls is other

    class Counter(metaclass=Comparable):
        def counts(self) -> Generator[int, None, None]:
            yield 1

    counts = wrap(Counter.counts, Probe(method="Counter.counts", level="request", receiver="self"))
    trace = record(tmp_path, lambda: list(counts(Counter())))
    assert len(trace.spans) == 2


def test_generators_end_in_every_way(tmp_path: Path):
    """A generator closes its span when exhausted, closed, dropped or failed, and behaves as unprobed."""
    closed = []

    @probe
    def stubborn() -> Generator[int, int, None]:
        sent = 0
        while True:
            try:
                sent = yield sent
            except KeyError:
                sent = -1
            finally:
                closed.append(sent)

    def run() -> None:
        generator: Any = stubborn()
        assert next(generator) == 0
        assert generator.send(5) == 5
        assert generator.throw(KeyError) == -1
        generator.close()
        with pytest.raises(StopIteration):
            next(generator)
        dropped = stubborn()
        next(dropped)
        del dropped
        failing: Any = stubborn()
        next(failing)
        with pytest.raises(ValueError, match="stop"):
            failing.throw(ValueError("stop"))
        stubborn()  # never begun: nothing happened

    trace = record(tmp_path, run)
    name = "test_generators_end_in_every_way.stubborn"
    assert outline(trace) == f"script.py\n  {name}\n  {name}\n  {name} !ValueError: stop"
    assert closed == [5, -1, -1, 0, 0]


def test_coroutines_and_tasks(tmp_path: Path):
    """Concurrent tasks keep their calls apart; each is a child of its starter."""

    @probe
    async def gathers() -> None:
        await asyncio.gather(*(waits(i) for i in range(3)))
        leaf(9)

    trace = record(tmp_path, lambda: asyncio.run(gathers()))
    wait = "    waits arguments=['x={}']\n      leaf arguments=['x={}']\n      leaf arguments=['x={}']\n"
    assert outline(trace, names.ARGUMENTS) == (
        "script.py\n  test_coroutines_and_tasks.gathers\n"
        + "".join(wait.format(i, i, i) for i in range(3))
        + "    leaf arguments=['x=9']"
    )
    starts = [times(span)[0] for span in trace.named("waits")]
    ends = [times(span)[1] for span in trace.named("waits")]
    assert max(starts) < min(ends)  # they ran concurrently


def test_a_coroutine_that_is_moved(tmp_path: Path):
    """A coroutine driven in one context and ended in another returns its result, and leaves no state there."""

    @probe
    def outer() -> None:
        coroutine: Any = waits(4)
        contextvars.copy_context().run(coroutine.send, None)
        elsewhere = contextvars.copy_context()
        with pytest.raises(StopIteration) as ended:
            elsewhere.run(coroutine.send, None)
        assert ended.value.value == 8
        elsewhere.run(leaf, 5)
        leaf(6)

    trace = record(tmp_path, outer)
    assert outline(trace, names.ARGUMENTS).splitlines()[1:] == [
        "  test_a_coroutine_that_is_moved.outer",
        "    waits arguments=['x=4']",
        "      leaf arguments=['x=4']",
        "    leaf arguments=['x=4']",
        "    leaf arguments=['x=5']",
        "    leaf arguments=['x=6']",
    ]


def test_a_cancelled_task(tmp_path: Path):
    """A cancelled task's span closes with the cancellation."""

    @probe
    async def sleeps() -> None:
        await asyncio.sleep(3600)

    async def run() -> None:
        task = asyncio.create_task(sleeps())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    trace = record(tmp_path, lambda: asyncio.run(run()))
    assert trace_errors(trace) == ["asyncio.exceptions.CancelledError"]


def test_async_generators(tmp_path: Path):
    """An asynchronous generator's span is current while its body runs, and closes in every way."""

    @probe
    async def consumer() -> None:
        async for item in streams(2):
            leaf(item)
        stream = streams(5)
        await anext(stream)
        await stream.aclose()

    trace = record(tmp_path, lambda: asyncio.run(consumer()))
    waits_twice = "      waits\n        leaf\n        leaf\n"
    assert outline(trace) == (
        "script.py\n  test_async_generators.consumer\n"
        f"    streams\n{waits_twice}{waits_twice}    leaf\n    leaf\n    streams\n{waits_twice}"
    ).rstrip("\n")


def test_threads(tmp_path: Path):
    """A thread's calls are children of the script with the thread's name, apart from the main thread's calls."""
    inside, go_on = threading.Event(), threading.Event()

    @probe
    def in_thread() -> None:
        inside.set()
        assert go_on.wait(60)
        leaf(1)

    @probe
    def in_main() -> None:
        thread = threading.Thread(target=in_thread, name="second")
        thread.start()
        assert inside.wait(60)
        leaf(2)
        go_on.set()
        thread.join()
        leaf(3)

    trace = record(tmp_path, in_main)
    assert outline(trace, names.THREAD_NAME, names.ARGUMENTS).splitlines() == [
        "script.py",
        "  test_threads.in_main",
        "    test_threads.in_thread name=second",
        "      leaf name=second arguments=['x=1']",
        "    leaf arguments=['x=2']",
        "    leaf arguments=['x=3']",
    ]


def test_a_thread_that_carries_its_context(tmp_path: Path):
    """A call run by asyncio in a thread is a child of its submitter."""

    @probe
    async def asks() -> None:
        await asyncio.to_thread(leaf, 1)

    trace = record(tmp_path, lambda: asyncio.run(asks()))
    assert outline(trace) == "script.py\n  test_a_thread_that_carries_its_context.asks\n    leaf"
    assert names.THREAD_NAME in trace.named("leaf")[0].attributes


def test_methods(tmp_path: Path):
    """Methods are named by their receiver's class, static ones by the defining class."""

    class Base:
        @probe
        def method(self) -> int:
            return leaf(1)

        @probe
        @classmethod
        def of_class(cls) -> str:
            return cls.__name__

        @staticmethod
        @probe
        def static(x: int) -> int:
            return x

    class Derived(Base):
        @probe
        def method(self) -> int:
            return super().method()

    def run() -> None:
        thing = Derived()
        assert (thing.method(), Derived.of_class(), thing.static(3)) == (2, "Derived", 3)

    trace = record(tmp_path, run)
    assert outline(trace, names.LIFELINE).replace("test_methods.", "") == (
        "script.py lifeline=script.py\n"
        "  Derived.method lifeline=Derived\n"
        "    Derived.method lifeline=Derived\n"
        f"      leaf lifeline={__name__}\n"
        "  Derived.of_class lifeline=Derived\n"
        "  Base.static lifeline=Base"
    )


def test_deep_recursion(tmp_path: Path):
    """A probed function can recurse as deep as Python allows."""

    @probe
    def dives(n: int) -> int:
        return n if n == 0 else dives(n - 1)

    deep = sys.getrecursionlimit() // 3
    trace = record(tmp_path, lambda: dives(deep))
    assert len(trace.spans) == deep + 2
    assert max(depth for depth, _ in trace.walk(trace.roots[0])) == deep + 1
