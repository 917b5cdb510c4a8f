"""HTTP responses: JSON, server-sent events, and every error as `{"error": {"message", "type", "param", "code"}}`.

`respond` watches the client while its response is generated, `EventStream` while it is sent. If the client disconnects,
or the server shuts down without waiting, the generating task is cancelled and `AsyncLLM.generate` aborts the request.

vLLM: `create_error_response` of vllm/entrypoints/openai/serving_engine.py, the handlers in `build_app`, and
`with_cancellation` and `load_aware_call` of vllm/entrypoints/utils.py. vLLM uses status 400 for all errors in a body,
500 for a dead engine, and other bodies for 401, 404 and 405. It leaves closing a stream's generator to the garbage
collector.
"""

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.datastructures import Headers
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ValidationError

from tracellm.engine.config.errors import (
    EngineDeadError,
    EngineGenerateError,
    InvalidRequestError,
    MalformedRequestError,
    shorten,
)
from tracellm.engine.entrypoints.openai.protocol import ErrorInfo, ErrorResponse, random_uuid

__all__ = [
    "EventStream",
    "HttpError",
    "Receive",
    "Send",
    "ServingResult",
    "add_error_handlers",
    "create_error_response",
    "dump_json",
    "error_response",
    "get_serving",
    "json_error",
    "respond",
]

logger = logging.getLogger("tracellm.server")

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

ServingResult = BaseModel | AsyncGenerator[str, None]
"""Complete response, which may be an `ErrorResponse`, or a stream of events."""

_ERROR_TYPES = {
    HTTPStatus.BAD_REQUEST: "BadRequestError",
    HTTPStatus.UNAUTHORIZED: "AuthenticationError",
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowedError",
    HTTPStatus.REQUEST_TIMEOUT: "RequestTimeoutError",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestTooLargeError",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalServerError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
}
_PARAMETER = re.compile(r"(?:^|: )`(\w+)(?:\.\w+)*`|^'?(\w+)'?(?: must be|=| or )")
_INVALID = "Bad Request"
"""vLLM's type for a body that does not have the form of a request. A request with a bad value has another."""
_MAX_FIELD_ERRORS = 3
_MAX_MESSAGE_LENGTH = 2000
_MAX_DISCARDED_BYTES = 256 << 20
"""Bytes of a refused body to receive and discard."""
_DISCARD_IDLE_SECONDS = 5.0
"""Seconds to wait for each next part of a refused body."""
_DISCARD_SECONDS = 60.0
"""Seconds to receive and discard a refused body."""
_VALUES_AT_ONCE = 1024
"""Values in lists that are written at once, which takes some 2 ms."""
_DUMP_SECONDS = 0.005
"""Seconds after which other requests run while a response is written."""
_CLIENT_CLOSED_REQUEST = 499  # nginx's status; appears only in the access log


class HttpError(Exception):
    """Error with an HTTP status, raised before a serving class handles the request."""

    def __init__(self, status: HTTPStatus, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


# -- errors -----------------------------------------------------------------------------------------------------------


def create_error_response(
    message: str,
    status_code: HTTPStatus = HTTPStatus.BAD_REQUEST,
    *,
    err_type: str | None = None,
    param: str | None = None,
) -> ErrorResponse:
    """Return the body of an error response. `param` defaults to the parameter that a message begins with."""
    if param is None and status_code is HTTPStatus.BAD_REQUEST and (match := _PARAMETER.search(message)):
        param = match[1] or match[2]
    error_type = err_type or _ERROR_TYPES.get(status_code, status_code.phrase.replace(" ", "") + "Error")
    if len(message) > _MAX_MESSAGE_LENGTH:  # a message may quote the request
        message = f"{message[:_MAX_MESSAGE_LENGTH]}..."
    return ErrorResponse(error=ErrorInfo(message=message, type=error_type, param=param, code=status_code.value))


def error_response(error: Exception) -> ErrorResponse:
    """Return the body for an exception, and log it if the server is at fault."""
    match error:
        case HttpError():
            invalid = error.status is HTTPStatus.BAD_REQUEST
            return create_error_response(str(error), error.status, err_type=_INVALID if invalid else None)
        case ValidationError():
            return _validation_error(error.errors(include_url=False))
        case EngineDeadError():
            return create_error_response(str(error), HTTPStatus.SERVICE_UNAVAILABLE, err_type="EngineDeadError")
        case EngineGenerateError():
            logger.error("%s", error, exc_info=error)
            return create_error_response(str(error), HTTPStatus.INTERNAL_SERVER_ERROR, err_type="EngineGenerateError")
        case MalformedRequestError():
            return create_error_response(str(error), err_type=_INVALID)
        case ValueError():
            return create_error_response(str(error))
    logger.error("%s: %s", type(error).__name__, error, exc_info=error)
    return _internal_error(error)


def _internal_error(error: Exception) -> ErrorResponse:
    message = f"The server has failed ({type(error).__name__}), by a fault of tracellm. Its log has the details."
    return create_error_response(message, HTTPStatus.INTERNAL_SERVER_ERROR)


def _shutting_down() -> ErrorResponse:
    message = "The server is shutting down, and did not wait for this request to finish."
    return create_error_response(message, HTTPStatus.SERVICE_UNAVAILABLE)


def _validation_error(errors: Iterable[Any]) -> ErrorResponse:
    """Return the body for pydantic's errors: one sentence for each of the first invalid fields."""
    sentences: dict[str, str] = {}
    for error in errors:
        names = [part for part in error["loc"] if isinstance(part, int) or str(part).isidentifier()]
        field = str(names[0]) if names else ""
        for part in names[1:]:
            field += f"[{part}]" if isinstance(part, int) else f".{part}"
        sentence = error["msg"].removeprefix("Value error, ").rstrip(".")
        if error["type"] == "missing":
            sentence = f"Field required: `{field}` is missing"
        elif field:
            sentence = f"`{field}`: {sentence}, got {shorten(error['input'])}"
        sentences.setdefault(field, sentence)
    first_field = next(iter(sentences), "")
    message = ". ".join(list(sentences.values())[:_MAX_FIELD_ERRORS]) + "."
    return create_error_response(message, err_type=_INVALID, param=re.split(r"[.\[]", first_field)[0] or None)


def json_error(
    body: ErrorResponse, headers: Mapping[str, str] | None = None, response_class: type[Response] = Response
) -> Response:
    """Return the HTTP response for an error body."""
    return response_class(body.model_dump_json(), body.error.code, headers, media_type="application/json")


class _Refusal(Response):
    """Error response that is sent before the body has arrived, and discards the rest of it.

    Many clients read a response only after sending all of their request; a connection closed before that would lose it.
    """

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send the response, and end it after the request."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        announced = Headers(scope=scope).get("content-length", "")
        discarded, more = 0, not (announced.isdecimal() and int(announced[:20]) > _MAX_DISCARDED_BYTES)
        with suppress(TimeoutError, asyncio.CancelledError):  # no more arrives, or the server ends
            async with asyncio.timeout(_DISCARD_SECONDS):
                while more and discarded < _MAX_DISCARDED_BYTES:
                    message = await asyncio.wait_for(receive(), _DISCARD_IDLE_SECONDS)
                    discarded += len(message.get("body", b""))
                    more = message.get("more_body", False)
        await send({"type": "http.response.body", "body": b""})


def add_error_handlers(app: FastAPI, paths: Sequence[str]) -> None:
    """Convert every exception of a route to an OpenAI error; an unknown path's error lists `paths`."""

    @app.exception_handler(HttpError)
    async def http_error(_: Request, error: HttpError) -> Response:
        response_class = _Refusal if error.status is HTTPStatus.REQUEST_ENTITY_TOO_LARGE else Response
        return json_error(error_response(error), error.headers, response_class)

    @app.exception_handler(HTTPStatus.NOT_FOUND)
    async def not_found(request: Request, _: HTTPException) -> Response:
        message = f"Not Found: there is no {request.url.path[:200]} here. The paths are: {', '.join(paths)}."
        return json_error(create_error_response(message, HTTPStatus.NOT_FOUND))

    @app.exception_handler(HTTPStatus.METHOD_NOT_ALLOWED)
    async def method_not_allowed(request: Request, error: HTTPException) -> Response:
        allowed = (error.headers or {}).get("Allow", "")
        message = (
            f"Method Not Allowed: {request.url.path[:200]} takes {allowed or 'another method'}, not {request.method}."
        )
        return json_error(create_error_response(message, HTTPStatus.METHOD_NOT_ALLOWED), error.headers)

    @app.exception_handler(RequestValidationError)
    async def query_error(_: Request, error: RequestValidationError) -> Response:
        errors = [{**item, "loc": item["loc"][1:]} for item in error.errors()]  # without the word `query`
        return json_error(_validation_error(errors))

    @app.exception_handler(ValueError)
    @app.exception_handler(EngineGenerateError)
    async def request_error(_: Request, error: Exception) -> Response:
        return json_error(error_response(error))

    @app.exception_handler(EngineDeadError)
    async def engine_dead(request: Request, error: EngineDeadError) -> Response:
        request.app.state.on_engine_death()
        return json_error(error_response(error))

    @app.exception_handler(Exception)
    async def internal_error(_: Request, error: Exception) -> Response:
        return json_error(_internal_error(error))  # Starlette raises it again, and uvicorn logs it


# -- responses --------------------------------------------------------------------------------------------------------


def get_serving(raw_request: Request, name: str, api: str) -> Any:
    """Return the serving class with this name in the application's state; `api` is its name in the message.

    Raises:
        InvalidRequestError: The model does not have it: it generates, and the route is for pooling, or the reverse.
    """
    if (serving := getattr(raw_request.app.state, name)) is None:
        raise InvalidRequestError(f"The model does not support {api} API")
    return serving


async def respond(raw_request: Request, serving: Coroutine[Any, Any, ServingResult]) -> Response:
    """Run a serving coroutine and return its HTTP response. The request counts as load until the response is sent.

    The request's body must have been read, since a disconnect is the message after it.
    """
    state = raw_request.app.state
    state.server_load_metrics += 1
    stream = None
    try:
        finished, result = await _run_while_connected(serving, raw_request.receive)
        if not finished:
            return Response(status_code=_CLIENT_CLOSED_REQUEST)
        if isinstance(result, ErrorResponse):
            return json_error(result)
        if isinstance(result, BaseModel):
            return Response(await dump_json(result), media_type="application/json")
        stream = EventStream(result, on_end=lambda: _decrement_load(state))
        return stream
    except asyncio.CancelledError:
        return json_error(_shutting_down())
    finally:
        if stream is None:
            _decrement_load(state)


async def dump_json(response: BaseModel) -> bytes:
    """Return `response.model_dump_json()`; other requests run meanwhile, since log probabilities can fill megabytes."""
    parts, end = [], 0.0
    for part in _json_parts(response):
        parts.append(part)
        if time.perf_counter() > end:
            await asyncio.sleep(0)
            end = time.perf_counter() + _DUMP_SECONDS
    return b"".join(parts)


def _json_parts(model: BaseModel) -> Iterator[bytes]:
    """Yield the JSON of a model in parts; long lists in it, at any depth, are divided."""
    divided = {name: value for name, value in model if _is_divided(value)}
    mark = random_uuid()
    rest = model.model_copy(update=dict.fromkeys(divided, mark)).model_dump_json(warnings=False)
    for name, value in divided.items():
        before, rest = rest.split(f'"{mark}"', 1)
        yield before.encode()
        yield from _json_parts(value) if isinstance(value, BaseModel) else _list_parts(model, name, value)
    yield rest.encode()


def _list_parts(model: BaseModel, name: str, items: list[Any]) -> Iterator[bytes]:
    size = max(1, _VALUES_AT_ONCE // _num_values(items))
    opening = b"["
    start = 0
    while start < len(items):
        yield opening
        opening = b","
        some = items[start : start + size]
        if any(isinstance(item, BaseModel) and _is_divided(item) for item in some):
            some = some[:1]
            yield from _json_parts(some[0])
        else:
            part = model.model_copy(update={name: some}).model_dump_json(include={name})
            yield part[part.index("[") + 1 : -2].encode()
        start += len(some)
    yield b"]"


def _is_divided(value: Any) -> bool:
    """Return whether a value is written in parts, by the first two items of each list in it."""
    if isinstance(value, BaseModel):
        return any(_is_divided(part) for _, part in value)
    if not isinstance(value, list) or not value:
        return False
    return len(value) * _num_values(value) > _VALUES_AT_ONCE or any(map(_is_divided, value[:2]))


def _num_values(items: list[Any]) -> int:
    """Return the number of values in an item of a list, by the first two; that of a model is a guess."""
    return max(
        16 if isinstance(item, BaseModel) else len(item) or 1 if isinstance(item, (dict, list)) else 1
        for item in items[:2]
    )


def _decrement_load(state: Any) -> None:
    state.server_load_metrics -= 1


async def _run_while_connected(work: Coroutine[Any, Any, Any], receive: Receive) -> tuple[bool, Any]:
    """Run `work`, or cancel it when the client disconnects. Return whether it finished, and its result."""
    try:
        async with asyncio.timeout(None) as connection:
            watching = asyncio.create_task(_end_on_disconnect(connection, receive))
            try:
                return True, await work
            finally:
                watching.cancel()
    except Exception:  # TimeoutError, or what the cancelled work raised instead
        if connection.expired():
            return False, None
        raise


async def _end_on_disconnect(connection: asyncio.Timeout, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    connection.reschedule(asyncio.get_running_loop().time())


class EventStream(StreamingResponse):
    """Server-sent events; closes `events` when the response ends for any reason."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None], on_end: Callable[[], None]) -> None:
        super().__init__(events)
        self.events = events
        self.on_end = on_end

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send all events, and one with an error if the server shuts down before the last."""
        try:
            await _run_while_connected(self.stream_response(send), receive)
        except asyncio.CancelledError:
            event = f"data: {_shutting_down().model_dump_json()}\n\n"
            await send({"type": "http.response.body", "body": event.encode(), "more_body": False})
        finally:
            await self.events.aclose()
            self.on_end()
