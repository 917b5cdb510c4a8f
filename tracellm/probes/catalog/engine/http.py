"""HTTP requests to the server: the status of each response, the error in it, and the ids of the request.

An HTTP request begins a trace, or continues the one in its `traceparent` header. Its span is OpenTelemetry's for a
server. ASGI's `send` and `receive` are replaced, since the application itself never sees its response.

vLLM: vllm/entrypoints/openai/api_server.py, whose application is FastAPI's too.
https://opentelemetry.io/docs/specs/semconv/http/http-spans/ has the attributes.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from tracellm.probes.catalog.entries import argument
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.context.traceparent import HEADER
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES"]

_REQUEST_ID = b"x-request-id"
_EVENT = b"data: "
_ERROR_EVENTS = (b'data: {"error"', b"event: error\n")
"""Beginnings of the event with which a stream fails, of completions and of responses; its status has been sent."""
_LONGEST_BODY = 16_384  # bytes of an error's body; tracellm's own have at most 2000 characters of text
_LONGEST_MESSAGE = 500  # characters
_LONGEST_ID = 200  # characters
_MOST_REQUESTS = 64
_FAILED = 400
_SERVER_FAILED = 500


class _Exchange:
    """Messages between an application and its client; `send` and `receive` replace those of ASGI."""

    __slots__ = ("_receive", "_send", "body", "client_left", "complete", "request_id", "status")

    def __init__(self, send: Callable[[Any], Awaitable[None]], receive: Callable[[], Awaitable[Any]]) -> None:
        self._send, self._receive = send, receive
        self.status: int | None = None
        self.request_id = b""
        self.body = b""  # of an error
        self.complete = self.client_left = False

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.request_id = _header(message.get("headers", ()), _REQUEST_ID)
        elif message["type"] == "http.response.body":
            chunk = message.get("body", b"")
            if (self.status or 0) >= _FAILED and len(self.body) < _LONGEST_BODY:
                self.body += chunk[:_LONGEST_BODY]
            elif chunk.startswith(_ERROR_EVENTS):
                self.body = chunk.partition(_EVENT)[2][:_LONGEST_BODY]
            self.complete = self.complete or not message.get("more_body", False)
        await self._send(message)

    async def receive(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self.complete:
            self.client_left = True
        return message


def _header(headers: Any, name: bytes) -> bytes:
    return next((bytes(value) for key, value in headers if bytes(key).lower() == name), b"")


def _begins_trace(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return the `traceparent` header of an HTTP request; None for the lifespan protocol and for web sockets."""
    scope = argument(args, kwargs, 1, "scope")
    if scope["type"] != "http":
        return None
    return _header(scope["headers"], HEADER.encode()).decode("latin-1")


def _replace_channels(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    app, scope, receive, send = args
    exchange = _Exchange(send, receive)
    return (app, scope, exchange.receive, exchange.send), kwargs


def _capture(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    scope = args[1]
    exchange = getattr(args[3], "__self__", None)  # `send` itself, if it was not replaced
    request_id = _header(scope["headers"], _REQUEST_ID)
    facts = (str(scope["method"]), str(scope["path"]), request_id)
    if not isinstance(exchange, _Exchange):
        return *facts, None, b"", b"", False
    left = exchange.client_left and not (exchange.complete and exchange.body)
    return *facts, exchange.status, exchange.request_id, exchange.body, left


def _attributes(facts: Any) -> dict[str, Any]:
    method, path, request_id, status, response_id, body, client_left = facts
    attributes = {names.SPAN_KIND: "server", names.HTTP_METHOD: method, names.HTTP_PATH: path}
    for name, value in ((names.HTTP_SENT_ID, request_id), (names.HTTP_GIVEN_ID, response_id)):
        if value:
            attributes[name] = [value.decode("latin-1")[:_LONGEST_ID]]
    kind, message = "", ""
    if client_left:
        kind = names.CLIENT_DISCONNECTED
    elif body or (status or 0) >= _FAILED:
        kind, message = _read_error(body)
        kind = kind or str(status)
    if status is not None:
        answer = str(status) if kind in ("", str(status)) else f"{status} {kind}"
        attributes |= {names.HTTP_STATUS: status, names.RESULT: answer}
    if kind:
        attributes[names.ERROR_TYPE] = kind
    if message:
        attributes[names.HTTP_ERROR] = message[:_LONGEST_MESSAGE]
    return attributes


def _read_error(body: bytes) -> tuple[str, str]:
    """Return type and message of an error: OpenAI's, FastAPI's `{"detail": ...}`, or a text."""
    text = body.decode(errors="replace").strip()
    try:
        data = json.loads(text)
    except ValueError:  # a text, or a body that was cut
        return "", text
    error = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(error, dict):
        return "", str(error)
    kind, message = error.get("type"), error.get("message", error.get("detail"))
    return kind[:_LONGEST_ID] if isinstance(kind, str) else "", "" if message is None else str(message)


def _complete(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    """Name the span, add the engine's ids of its requests, and mark it failed if the server is at fault."""
    if facts is None:
        return
    span.name = f"{facts[0]} {facts[1]}"
    if child_facts:
        span.attributes[names.HTTP_REQUESTS] = list(child_facts)[:_MOST_REQUESTS]
    kind, status = span.attributes.get(names.ERROR_TYPE), span.attributes.get(names.HTTP_STATUS, 0)
    if span.error is None and kind and (status >= _SERVER_FAILED or (status < _FAILED and facts[5])):
        message = span.attributes.get(names.HTTP_ERROR)
        span.error = f"{kind}: {message}" if tracker.text and message else kind


ENTRIES = (
    Entry(
        "fastapi.applications:FastAPI.__call__",
        "request",
        _capture,
        _attributes,
        observe=_complete,
        even_if_raises=True,
        before=_replace_channels,
        begins_trace=_begins_trace,
    ),
)
