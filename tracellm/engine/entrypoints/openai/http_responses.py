"""Answers on their way out, and clients that go away before they have them: then the request is given up.

`respond` watches a client while its answer is being made, `EventStream` while it is being sent. Either way
the task that generates is cancelled, and `AsyncLLM.generate` frees what the request had. The same happens when the
server ends and does not wait any longer; then the client is told.

vLLM: `with_cancellation`, `load_aware_call` of vllm/entrypoints/utils.py, and starlette's StreamingResponse, which
leaves it to the garbage collector to close the generator.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel

from tracellm.engine.entrypoints.openai.http_errors import create_error_response, json_response
from tracellm.engine.entrypoints.openai.protocol import ErrorResponse

__all__ = ["Answer", "EventStream", "Receive", "Send", "respond"]

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Answer = BaseModel | AsyncGenerator[str, None]
"""A whole answer, an `ErrorResponse` among them, or a stream of events."""

_CLIENT_CLOSED = 499
"""For a client that has gone: nobody reads it but the access log."""


async def _disconnected(receive: Receive) -> None:
    """Return when the client has gone. Its body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended, so that what it held is free."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task


async def _unless_gone(work: Coroutine[Any, Any, Any], receive: Receive) -> tuple[bool, Any]:
    """Do `work`; when the client goes away first, cancel it. Returns whether it was done, and its result."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return True, working.result()
        return False, None
    finally:
        await _cancel(watching)
        if not working.done():
            await _cancel(working)


async def respond(raw_request: Request, making: Coroutine[Any, Any, Answer]) -> Response:
    """What a serving class makes of a request, as it is sent. Counts as load until it is sent.

    The request's body must have been read: this reads on, to see when the client goes away.
    """
    state = raw_request.app.state
    state.server_load_metrics += 1
    stream = None
    try:
        done, answer = await _unless_gone(making, raw_request.receive)
        if not done:
            return Response(status_code=_CLIENT_CLOSED)
        if isinstance(answer, ErrorResponse):
            return json_response(answer)
        if isinstance(answer, BaseModel):
            return Response(answer.model_dump_json(), media_type="application/json")
        stream = EventStream(answer, on_end=lambda: _less_load(state))
        return stream
    except asyncio.CancelledError:
        return json_response(_shutting_down())
    finally:
        if stream is None:
            _less_load(state)


def _shutting_down() -> ErrorResponse:
    message = "The server is shutting down, and did not wait for this request to finish."
    return create_error_response(message, HTTPStatus.SERVICE_UNAVAILABLE)


def _less_load(state: Any) -> None:
    state.server_load_metrics -= 1


class EventStream(Response):
    """Server-sent events. When the client goes away, or anything else ends the sending, `events` is closed."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None], on_end: Callable[[], None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.events = events
        self.on_end = on_end

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send all events."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                await _unless_gone(self._send_events(send), receive)
            except asyncio.CancelledError:
                last = f"data: {_shutting_down().model_dump_json()}\n\n"
                await send({"type": "http.response.body", "body": last.encode(), "more_body": False})
        finally:
            await self.events.aclose()
            self.on_end()

    async def _send_events(self, send: Send) -> None:
        async for event in self.events:
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
