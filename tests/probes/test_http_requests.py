"""HTTP requests: how each was answered, as OpenTelemetry's attributes, and the ids by which it is found."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
import pytest

from tests.faults.processes import HANG_GUARD
from tests.probes.tracing import record
from tests.server.process import Server
from tracellm.probes.catalog.engine.http import ENTRIES
from tracellm.probes.catalog.engine.request import assign_request_span
from tracellm.probes.record import recorder
from tracellm.probes.recording import Recording
from tracellm.trace import names, otlp
from tracellm.trace.model import Span
from tracellm.trace.run_folder import RunFolder

OPENAI = {"error": {"message": "max_tokens must be at least 1", "type": "BadRequestError", "param": None, "code": 400}}


def application() -> Any:
    """Return an application that answers in every way that servers of either engine do."""
    from fastapi import FastAPI, HTTPException, Response
    from fastapi.responses import JSONResponse, StreamingResponse

    app = FastAPI()

    @app.get("/plain")
    async def plain() -> Response:
        return Response("{}", headers={"X-Request-Id": "given"})

    @app.get("/openai")
    async def openai() -> Response:
        return JSONResponse(OPENAI, 400)

    @app.get("/long")
    async def long() -> Response:
        return JSONResponse({"error": {"message": "a" * 100_000, "type": "BadRequestError"}}, 400)

    @app.get("/fastapi")
    async def fastapi() -> None:
        raise HTTPException(404, "nothing here")

    @app.get("/vllm")
    async def vllm() -> Response:
        return JSONResponse({"error": "Unauthorized"}, 401)

    @app.get("/dead")
    async def dead() -> Response:
        return JSONResponse({"error": {"message": "It has died.", "type": "EngineDeadError"}}, 503)

    @app.get("/stream/{last}")
    async def stream(last: str) -> StreamingResponse:
        async def events() -> AsyncIterator[str]:
            yield 'data: {"id": "cmpl-1"}\n\n'
            if last == "wait":
                await asyncio.Event().wait()
            event = "event: error\n" if last.startswith('{"type": "error"') else ""
            yield f"{event}data: {last}\n\n"

        return StreamingResponse(events())

    return app


async def ask(app: Any, path: str, headers: dict[str, str], leaves: bool) -> None:
    """Send a GET to an ASGI application; a client that `leaves` does so after the first part of the body."""
    left = asyncio.Event()
    bodies = [b""]

    async def send(message: Any) -> None:
        if leaves and message.get("body"):
            left.set()

    async def receive() -> Any:
        if bodies:
            return {"type": "http.request", "body": bodies.pop(), "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "scheme": "http", "http_version": "1.1", "server": ("test", 80), "client": ("test", 1),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    await app(scope, receive, send)


def http_span(folder: Path, path: str, *, leaves: bool = False, text: bool = True, **headers: str) -> Span:
    """Return the span of one request to the application."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    trace = record(folder, lambda: asyncio.run(ask(application(), path, sent, leaves)), catalog=ENTRIES, text=text)
    [span] = [span for span in trace.spans if names.HTTP_METHOD in span.attributes]
    return span


ANSWERS = {
    "/openai": (400, "BadRequestError", "max_tokens must be at least 1", None),
    "/fastapi": (404, "404", "nothing here", None),
    "/vllm": (401, "401", "Unauthorized", None),
    "/dead": (503, "EngineDeadError", "It has died.", "EngineDeadError: It has died."),
    "/unknown": (404, "404", "Not Found", None),
    '/stream/{"error": {"message": "x", "type": "EngineGenerateError"}}': (
        *(200, "EngineGenerateError", "x"),
        "EngineGenerateError: x",
    ),
    '/stream/{"type": "error", "error": {"message": "x", "type": "EngineGenerateError"}}': (
        *(200, "EngineGenerateError", "x"),
        "EngineGenerateError: x",
    ),
    "/plain": (200, None, None, None),
    "/stream/[DONE]": (200, None, None, None),
}
"""By path: status, error type, message, and error of the span, which only the server's own faults have."""


@pytest.mark.parametrize("path", ANSWERS)
def test_the_reason_of_a_refusal(tmp_path: Path, path: str) -> None:
    """Status, error type and message are those of the response, whatever form the error has."""
    span = http_span(tmp_path, path)
    get = span.attributes.get
    found = get(names.HTTP_STATUS), get(names.ERROR_TYPE), get(names.HTTP_ERROR), span.error
    assert found == ANSWERS[path]
    assert (get(names.HTTP_METHOD), get(names.HTTP_PATH), get(names.SPAN_KIND)) == ("GET", path, "server")


def test_a_client_that_leaves(tmp_path: Path) -> None:
    """A stream whose client left before its end has the status that was sent, and says so."""
    span = http_span(tmp_path, "/stream/wait", leaves=True)
    assert span.attributes[names.HTTP_STATUS] == 200
    assert span.attributes[names.ERROR_TYPE] == "client_disconnected"
    assert span.error is None


def test_request_ids(tmp_path: Path) -> None:
    """The client's X-Request-Id and the response's are attributes, as OpenTelemetry names headers."""
    attributes = http_span(tmp_path, "/plain", x_request_id="sent").attributes
    assert attributes["http.request.header.x-request-id"] == ["sent"]
    assert attributes["http.response.header.x-request-id"] == ["given"]


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    """An error of any length takes little space in the recording."""
    span = http_span(tmp_path, "/long")
    assert len(span.attributes[names.HTTP_ERROR]) == 500


def test_without_text(tmp_path: Path) -> None:
    """Without text the message, which may quote the request, is left out, and the error's type is kept."""
    span = http_span(tmp_path, "/dead", text=False)
    assert names.HTTP_ERROR not in span.attributes
    assert (span.attributes[names.ERROR_TYPE], span.error) == ("EngineDeadError", "EngineDeadError")


def test_its_kind_in_otlp(tmp_path: Path) -> None:
    """The kind is 2, SERVER, in OTLP and in the trace on disk."""
    span = http_span(tmp_path, "/plain")
    assert otlp.kind_number(span.attributes) == 2
    [line] = [line for file in (tmp_path / "trace").iterdir() for line in file.read_text().splitlines()]
    assert '"name":"GET /plain","kind":2,' in line


def test_the_requests_within_it(tmp_path: Path) -> None:
    """The span lists the ids of the engine's requests, those of a stream and of several outputs too."""
    bodies: list[dict[str, Any]] = [{"stream": True}, {"stream": True, "n": 2, "seed": 0}, {"prompt": ["a", "b"]}]
    with Server.start("--explain", "--out", str(tmp_path / "run")) as server:
        for number, body in enumerate(bodies):
            body = {"prompt": "Hello", "max_tokens": 2, **body}
            headers = {"X-Request-Id": str(number)}
            httpx.post(f"{server.url}/v1/completions", json=body, headers=headers, timeout=60).raise_for_status()
        server.signal(signal.SIGTERM)
        assert server.end()[0] == 0
    spans = RunFolder.open(tmp_path / "run").trace.spans
    assert [span.attributes[names.HTTP_REQUESTS] for span in spans if names.HTTP_METHOD in span.attributes] == [
        ["cmpl-0-0"],
        ["0_cmpl-1-0", "1_cmpl-1-0"],
        ["cmpl-2-0", "cmpl-2-1"],
    ]


def test_the_requests_of_the_first_http_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ids are listed even if the submission is the first record of the HTTP request in the file."""
    from fastapi import FastAPI

    monkeypatch.setattr(recorder, "FLUSH_SECONDS", HANG_GUARD)
    app = FastAPI()

    @app.get("/submit")
    async def submit() -> None:
        assign_request_span((None, SimpleNamespace(request_id="cmpl-0", trace_headers=None)), {})
        recording._recorder.flush()

    with Recording(tmp_path, catalog=ENTRIES) as recording:
        asyncio.run(ask(app, "/submit", {}, leaves=False))
    [span] = [span for span in RunFolder.open(tmp_path).trace.spans if names.HTTP_METHOD in span.attributes]
    assert span.attributes[names.HTTP_REQUESTS] == ["cmpl-0"]
