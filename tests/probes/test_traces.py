"""The trace of each call: an HTTP request begins one, and tasks, threads and generators keep it."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.probes.tracing import outline, record
from tracellm import probe
from tracellm.probes.catalog.engine.http import ENTRIES
from tracellm.probes.context.traceparent import parse, write
from tracellm.trace import names
from tracellm.trace.model import Span, Trace

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@probe
def leaf(x: int = 0) -> int:
    """A function to record."""
    return x


@probe
async def numbers(n: int) -> AsyncIterator[int]:
    """An asynchronous generator with calls in it."""
    for i in range(n):
        yield leaf(i)


# -- HTTP -------------------------------------------------------------------------------------------------------------


async def ask(app: Any, path: str, headers: dict[str, str] | None = None) -> list[Any]:
    """Return the response of an ASGI application to a GET."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        await asyncio.Event().wait()  # the client never disconnects

    bodies = [b""]
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "scheme": "http", "http_version": "1.1", "server": ("test", 80), "client": ("test", 1),
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
    }  # fmt: skip
    await app(scope, receive, send)
    return sent


def serve(folder: Path, use: Callable[[Any], Awaitable[Any]], record: Callable[..., Trace] = record) -> Trace:
    """Return the trace of `use` with an application."""
    from fastapi import FastAPI, HTTPException
    from fastapi.responses import StreamingResponse

    async def main() -> None:
        app = FastAPI()

        @app.get("/plain")
        async def plain() -> int:
            return leaf(1)

        @app.get("/thread")
        def thread() -> int:
            return leaf(2)

        @app.get("/stream")
        async def stream() -> StreamingResponse:
            async def lines() -> AsyncIterator[str]:
                async for number in made:
                    yield f"{number}\n"

            made = numbers(2)
            return StreamingResponse(lines())

        @app.get("/missing")
        async def missing() -> None:
            raise HTTPException(404)

        @app.get("/broken")
        async def broken() -> None:
            raise ValueError("broken")

        await use(app)

    return record(folder, lambda: asyncio.run(main()), catalog=ENTRIES)


def of_http(trace: Trace) -> list[Span]:
    """Return the spans of HTTP requests."""
    return [span for span in trace.spans if names.HTTP_METHOD in span.attributes]


def test_an_http_request_begins_a_trace(tmp_path: Path):
    """A request's span is a root named by method and path; its calls, also in threads, are in its trace."""

    async def use(app: Any) -> None:
        leaf(0)
        for path in ("/plain", "/thread"):
            await ask(app, path)

    trace = serve(tmp_path, use)
    assert outline(trace, names.HTTP_STATUS, names.LIFELINE).splitlines() == [
        "script.py lifeline=script.py",
        f"  leaf lifeline={__name__}",
        "GET /plain status_code=200 lifeline=FastAPI",
        f"  leaf lifeline={__name__}",
        "GET /thread status_code=200 lifeline=FastAPI",
        f"  leaf lifeline={__name__}",
    ]
    script, first, second = trace.roots
    assert len({script.trace_id, first.trace_id, second.trace_id}) == 3
    for root in trace.roots:
        assert {span.trace_id for _, span in trace.walk(root)} == {root.trace_id}
    assert first.attributes[names.HTTP_PATH] == "/plain"
    assert trace.orphans == []


def test_a_traceparent_has_queue(tmp_path: Path):
    """With a traceparent, trace and parent are the caller's; a damaged header counts as none."""

    async def use(app: Any) -> None:
        await ask(app, "/plain", {"traceparent": f"00-{TRACE}-{PARENT}-01"})
        await ask(app, "/plain", {"traceparent": f"00-{TRACE}-{PARENT[:-1]}-01"})

    trace = serve(tmp_path, use)
    followed, own = of_http(trace)
    assert (followed.trace_id, followed.parent_span_id) == (TRACE, PARENT)
    assert own.trace_id not in (TRACE, trace.spans[0].trace_id)
    assert own.parent_span_id is None
    assert {span.trace_id for span in trace.children(followed)} == {TRACE}
    assert trace.orphans == []


def test_a_stream_belongs_to_its_request(tmp_path: Path):
    """An asynchronous generator made in the handler and read by the server is in the request's trace."""
    trace = serve(tmp_path, lambda app: ask(app, "/stream"))
    assert outline(trace).splitlines() == ["script.py", "GET /stream", "  numbers", "    leaf", "    leaf"]
    [http] = of_http(trace)
    assert {span.trace_id for _, span in trace.walk(http)} == {http.trace_id}


def test_requests_side_by_side(tmp_path: Path):
    """Concurrent requests do not mix."""

    async def use(app: Any) -> None:
        await asyncio.gather(*(ask(app, path) for path in ("/stream", "/thread", "/stream")))

    trace = serve(tmp_path, use)
    found = {http.trace_id: [span.name for _, span in trace.walk(http)] for http in of_http(trace)}
    stream = ["GET /stream", "numbers", "leaf", "leaf"]
    assert sorted(found.values()) == sorted([stream, stream, ["GET /thread", "leaf"]])
    assert all(span.trace_id == http.trace_id for http in of_http(trace) for _, span in trace.walk(http))


def test_how_a_request_was_answered(tmp_path: Path):
    """Refusals record their status; uncaught errors record their exception too."""

    async def use(app: Any) -> None:
        await ask(app, "/missing")
        with pytest.raises(ValueError, match="broken"):
            await ask(app, "/broken")

    missing, broken = of_http(serve(tmp_path, use))
    assert (missing.attributes[names.HTTP_STATUS], missing.error) == (404, None)
    assert (broken.attributes[names.HTTP_STATUS], broken.error) == (500, "ValueError: broken")


def test_what_is_no_request_is_no_span(tmp_path: Path):
    """An application's lifespan is neither recorded nor changed."""

    async def use(app: Any) -> None:
        async def startup() -> Any:
            return messages.pop(0)

        async def note(message: Any) -> None:
            sent.append(message["type"])

        messages, sent = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}], []  # type: ignore[var-annotated]
        await app({"type": "lifespan"}, startup, note)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    assert outline(serve(tmp_path, use)) == "script.py"


def test_an_application_objects_to_being_a_factory(tmp_path: Path):
    """A recorded application called without arguments raises its own error, by which uvicorn detects applications."""

    async def use(app: Any) -> None:
        with pytest.raises(TypeError):
            app()
        assert asyncio.iscoroutinefunction(app.__call__)

    serve(tmp_path, use)


@pytest.mark.parametrize(
    "header",
    [None, "", "x", f"00-{TRACE}-{PARENT}", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01",
     f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more"],
)  # fmt: skip
def test_headers_that_are_not_valid(header: str | None):
    """Headers invalid by the standard are ignored."""
    assert parse(header) is None


def test_headers_that_are_valid():
    """Written headers can be read; a later version may have more fields."""
    assert parse(write(TRACE, PARENT)) == (TRACE, PARENT)
    assert parse(f"01-{TRACE}-{PARENT}-00-more") == (TRACE, PARENT)


# -- threads and generators -------------------------------------------------------------------------------------------


@probe
def starts_a_thread(n: int) -> None:
    """Start a thread that starts another."""
    thread = threading.Thread(target=starts_a_thread if n else leaf, args=(n - 1,), name=f"thread-{n}")
    thread.start()
    thread.join()


def test_threads_belong_to_who_started_them(tmp_path: Path):
    """The outermost calls of a thread are children of the call that started it."""
    trace = record(tmp_path, lambda: starts_a_thread(1))
    assert outline(trace, names.THREAD_NAME).splitlines() == [
        "script.py", "  starts_a_thread", "    starts_a_thread name=thread-1", "      leaf name=thread-0"
    ]  # fmt: skip


def test_pools_work_for_who_submitted(tmp_path: Path):
    """Work in a pool's thread is a child of the call that submitted it, not of the first submitter."""
    pool = ThreadPoolExecutor(1)

    @probe
    def submits(x: int) -> None:
        assert pool.submit(leaf, x=x).result() == x

    with pool:
        trace = record(tmp_path, lambda: (submits(1), submits(2)))
        assert pool.submit(leaf, 3).result() == 3  # as before, without a recording
    assert outline(trace, names.ARGUMENTS).splitlines()[1:] == [
        "  test_pools_work_for_who_submitted.submits arguments=['x=1']", "    leaf arguments=['x=1']",
        "  test_pools_work_for_who_submitted.submits arguments=['x=2']", "    leaf arguments=['x=2']",
    ]  # fmt: skip


def test_the_standard_library_is_left_as_it_was(tmp_path: Path):
    """Threads and pools are patched only during a recording; patches put over ours stay."""
    before = threading.Thread.start, ThreadPoolExecutor.submit
    seen = []
    record(tmp_path / "a", lambda: seen.append((threading.Thread.start, ThreadPoolExecutor.submit)))
    assert seen[0][0] is not before[0]
    assert seen[0][1] is not before[1]
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == before

    def another() -> None:
        threading.Thread.start = lambda self: before[0](self)  # type: ignore[method-assign]

    try:
        record(tmp_path / "b", another)
        assert threading.Thread.start.__name__ == "<lambda>"
    finally:
        threading.Thread.start = before[0]  # type: ignore[method-assign]


def test_generators_keep_their_trace(tmp_path: Path):
    """A generator begun in a request keeps the request's trace wherever it is resumed."""

    @probe
    def doubles() -> Iterator[int]:
        for i in range(2):
            yield leaf(i)

    async def use(app: Any) -> None:
        kept: list[Iterator[int]] = []

        @app.get("/begin")  # type: ignore[untyped-decorator]  # the application may be any
        async def begin() -> int:
            kept.append(doubles())
            return next(kept[0])

        await ask(app, "/begin")
        assert contextvars.copy_context().run(next, kept[0]) == 1
        leaf(5)

    trace = serve(tmp_path, use)
    [http] = of_http(trace)
    assert [span.method for _, span in trace.walk(http)] == ["GET /begin", "doubles", "leaf", "leaf"]
    assert {span.trace_id for _, span in trace.walk(http)} == {http.trace_id}
    assert [span.name for span in trace.children(trace.roots[0])] == ["leaf"]
