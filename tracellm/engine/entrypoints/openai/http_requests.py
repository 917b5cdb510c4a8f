"""HTTP requests before a serving class handles them: API key, request id, and the validated body.

The middleware runs first. `read_request` then reads the body up to the size limit, parses it as strict JSON and
validates it against a model of `protocol.py`. It rejects NaN, deep nesting and lone surrogates.

vLLM: `AuthenticationMiddleware`, `XRequestIdMiddleware` and `validate_json_request` of
vllm/entrypoints/openai/api_server.py. There FastAPI reads the body.
"""

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from fastapi.datastructures import Headers
from pydantic import BaseModel

from tracellm.engine.entrypoints.openai.http_responses import (
    HttpError,
    Receive,
    Send,
    create_error_response,
    json_error,
)
from tracellm.engine.entrypoints.openai.protocol import random_uuid

__all__ = ["AuthenticationMiddleware", "XRequestIdMiddleware", "parse_json", "read_body", "read_request"]

logger = logging.getLogger("tracellm.server")

ASGIApp = Callable[[Any, Receive, Send], Awaitable[None]]
Model = TypeVar("Model", bound=BaseModel)

_MAX_DEPTH = 100
"""Maximum nesting of lists and objects; JSON schemas are the deepest bodies in use."""
_MAX_COUNTS = {"opening brackets": (b"{[", 50_000), "colons": (b":", 100_000), "commas": (b",", 500_000)}
"""Characters, and their maximum number. Python reads JSON in one go, and nothing else runs meanwhile: 0.1 s
for so many lists, objects, keys or numbers, which is more than any model's request has."""
_LONG_BODY = 1 << 16
"""Length of a body, in bytes, from which its parsing pauses for other requests."""
_MAX_FIELDS = 1000
_MAX_ITEMS = {
    "messages": 10_000,
    "logit_bias": 1 << 15,
    "stop_token_ids": 1 << 17,
    "allowed_token_ids": 1 << 18,
}
"""Maximum items of fields; the event loop works on each item."""
_SURROGATES = (rb"\ud", rb"\uD")
_MAX_LOGGED_FIELDS = 100

_logged_fields: set[str] = set()


# -- middleware -------------------------------------------------------------------------------------------------------


class AuthenticationMiddleware:
    """Middleware that requires `Authorization: Bearer KEY` under /v1, except for OPTIONS, which has no key."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str]) -> None:
        self.app = app
        self.api_tokens = [_digest(token) for token in tokens]

    def verify_token(self, authorization: str | None) -> bool:
        """Return whether the header contains a valid key, in constant time."""
        scheme, _, key = (authorization or "").partition(" ")
        digest = _digest(key.strip())
        matches = [secrets.compare_digest(digest, token) for token in self.api_tokens]
        return scheme.lower() == "bearer" and any(matches)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Pass the request on, or respond with status 401."""
        if not _needs_key(scope) or self.verify_token(Headers(scope=scope).get("Authorization")):
            await self.app(scope, receive, send)
            return
        message = (
            "Unauthorized: the API key is missing or wrong. Send `Authorization: Bearer KEY` with a key of this server."
        )
        error = create_error_response(message, HTTPStatus.UNAUTHORIZED)
        await json_error(error, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


def _needs_key(scope: Any) -> bool:
    if scope["type"] != "http" or scope["method"] == "OPTIONS":
        return False
    path: str = scope["path"]  # uvicorn prepends --root-path
    return path.startswith("/v1") or path.removeprefix(scope.get("root_path", "")).startswith("/v1")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


class XRequestIdMiddleware:
    """Middleware that adds X-Request-Id to every response: the request's own id, or a random one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the header to its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = Headers(scope=scope).get("X-Request-Id") or random_uuid()

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode("latin-1"))]
            await send(message)

        await self.app(scope, receive, send_with_id)


# -- body -------------------------------------------------------------------------------------------------------------


async def read_request(raw_request: Request, model: type[Model], chat_model: type[Model] | None = None) -> Model:
    """Read and validate the body.

    Args:
        raw_request: HTTP request with an unread body.
        model: Expected model.
        chat_model: Expected model of a body with `messages`, if that is another one.

    Raises:
        HttpError: The body is too large (413), not JSON, or of another content type (400).
        pydantic.ValidationError: A field is invalid or missing.
    """
    content_type = raw_request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HttpError(
            HTTPStatus.BAD_REQUEST,
            "Unsupported Media Type: Only 'application/json' is allowed. Send the header "
            f"`Content-Type: application/json`; got {content_type[:100] or 'none'!r}.",
        )
    state = raw_request.app.state
    body = await read_body(raw_request, state.max_request_bytes, state.receive_timeout)
    async with state.parsing:  # one body after the other
        data = await parse_json(body)
    if not isinstance(data, dict):
        raise HttpError(HTTPStatus.BAD_REQUEST, f"The body must be a JSON object, got a {type(data).__name__}.")
    _check_sizes(data)
    request = (chat_model if chat_model is not None and "messages" in data else model).model_validate(data)
    _log_unknown_fields(request)
    return request


async def read_body(raw_request: Request, limit: int, timeout: float) -> bytes:
    """Return the complete body.

    Raises:
        HttpError: The body has more than `limit` bytes or is announced so, no part of it arrives for `timeout` seconds,
            or the client or the server ends before it is complete.
    """
    announced = raw_request.headers.get("content-length", "")
    is_too_large = announced.isdecimal() and (len(announced) > 18 or int(announced) > limit)
    chunks: list[bytes] = []
    length, more = 0, True
    while more and not is_too_large:
        try:
            async with asyncio.timeout(timeout):  # without a task of its own, as `wait_for` has before Python 3.12
                message = await raw_request.receive()
        except TimeoutError:
            raise HttpError(
                HTTPStatus.REQUEST_TIMEOUT,
                f"The rest of the body did not arrive in {timeout:g} seconds (`--receive-timeout`).",
                {"Connection": "close"},
            ) from None
        except asyncio.CancelledError:  # the shutdown timeout is over
            raise HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE, "The server is shutting down, and did not wait for all of this request."
            ) from None
        if message["type"] == "http.disconnect":
            raise HttpError(HTTPStatus.BAD_REQUEST, "The client disconnected before its request was complete.")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        length += len(chunk)
        chunks.append(chunk)
        is_too_large = length > limit
    if is_too_large:
        raise HttpError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body is too large: at most {limit} bytes are read (`--max-request-bytes`).",
            {"Connection": "close"},
        )
    return b"".join(chunks)


async def parse_json(body: bytes) -> Any:
    """Parse a body as strict JSON.

    Raises:
        HttpError: The body is not JSON, has too many values, is too deep, or contains text that cannot be encoded.
    """
    if not body:
        raise HttpError(HTTPStatus.BAD_REQUEST, "Field required: the body is empty.")
    counts = {name: sum(map(body.count, characters)) for name, (characters, _) in _MAX_COUNTS.items()}
    for name, (_, limit) in _MAX_COUNTS.items():
        if counts[name] > limit:
            _reject_body(f"it has {counts[name]:,} {name}, and at most {limit:,} are read")
    await _pause(body)
    try:
        data = json.loads(body.decode("utf-8-sig"), parse_constant=_reject_constant)
        await _pause(body)
        if any(escape in body for escape in _SURROGATES):
            json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        _reject_body(r"it holds half a surrogate pair (\ud800 to \udfff), which is no character")
    except UnicodeDecodeError as error:
        _reject_body(f"it is not UTF-8 (byte {error.start})")
    except json.JSONDecodeError as error:
        _reject_body(f"{error.msg} (line {error.lineno}, column {error.colno})")
    except RecursionError:
        _reject_body(f"it is nested more than {_MAX_DEPTH} deep")
    except ValueError as error:  # an integer with more digits than Python parses
        _reject_body(str(error).partition(";")[0])
    if counts["opening brackets"] > _MAX_DEPTH and _is_deeper(data, _MAX_DEPTH):
        _reject_body(f"it is nested more than {_MAX_DEPTH} deep")
    await _pause(body)
    return data


async def _pause(body: bytes) -> None:
    """Let other requests run while a long body is parsed."""
    if len(body) >= _LONG_BODY:
        await asyncio.sleep(0)


def _check_sizes(data: dict[str, Any]) -> None:
    """Reject a body with too many fields, or with too many items in one of them."""
    if len(data) > _MAX_FIELDS:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"The body may have at most {_MAX_FIELDS} fields, got {len(data)}.")
    for name, limit in _MAX_ITEMS.items():
        value = data.get(name)
        if isinstance(value, (list, dict)) and len(value) > limit:
            raise HttpError(HTTPStatus.BAD_REQUEST, f"`{name}` may hold at most {limit} items, got {len(value)}.")


def _reject_body(reason: str) -> NoReturn:
    raise HttpError(
        HTTPStatus.BAD_REQUEST, f"JSON decode error: the body is not JSON that can be used: {reason}."
    ) from None


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _is_deeper(data: Any, limit: int) -> bool:
    """Return whether lists and objects are nested more than `limit` deep."""
    level = [data]
    for _ in range(limit):
        parts = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, (dict, list))]
        level = [item for part in parts for item in part if isinstance(item, (dict, list))]
        if not level:
            return False
    return True


def _log_unknown_fields(request: BaseModel) -> None:
    """Log fields that the model lacks: each name once, up to a maximum number of names."""
    unknown = [name for name in (request.model_extra or {}) if name not in _logged_fields]
    unknown = unknown[: _MAX_LOGGED_FIELDS - len(_logged_fields)]
    if unknown:
        _logged_fields.update(unknown)
        logger.warning("Unknown fields of a request are ignored: %s.", ", ".join(repr(name[:50]) for name in unknown))
