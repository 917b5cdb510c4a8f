"""The body of a request: read up to a bound, parsed as strict JSON, checked against its model.

Everything that a hostile body can be is refused here, with a status and a sentence: too long (413), no JSON at all,
numbers that JSON does not have (NaN), nesting without end, half characters that no tokenizer and no socket can take.

vLLM: FastAPI does it there, and the middleware `validate_json_request`.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, TypeAdapter

from tracellm.engine.entrypoints.openai.http_errors import HttpError

__all__ = ["parse_json", "read_body", "read_request"]

logger = logging.getLogger("tracellm.server")

Model = TypeVar("Model", bound=BaseModel)

_DEEPEST = 100
"""Lists and objects inside each other. JSON schemas are the deepest that anyone needs."""
_DISCARDED = 256 << 20
"""So many bytes of a body that is too long are still taken and dropped: a client that is writing does not listen."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MOST_LOGGED = 100

_ignored: set[str] = set()


async def read_request(
    raw_request: Request, adapter: TypeAdapter[Model] | Callable[[dict[str, Any]], TypeAdapter[Model]]
) -> Model:
    """The request that the body holds.

    Args:
        raw_request: the HTTP request, with its body still unread.
        adapter: what the body must be; or a function that says so when it has seen it.

    Raises:
        HttpError: it is too long (413), not JSON (400), or not said to be (415).
        pydantic.ValidationError: a field is wrong or missing.
    """
    kind = raw_request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"The body must be JSON, with the header `Content-Type: application/json`; got {kind[:100] or 'none'!r}.",
        )
    body = await read_body(raw_request, raw_request.app.state.max_request_bytes)
    data = parse_json(body)
    if not isinstance(data, dict):
        raise HttpError(HTTPStatus.BAD_REQUEST, f"The body must be a JSON object, got a {type(data).__name__}.")
    request = (adapter if isinstance(adapter, TypeAdapter) else adapter(data)).validate_python(data)
    _log_ignored(request)
    return request


async def read_body(raw_request: Request, limit: int) -> bytes:
    """All of the body.

    Raises:
        HttpError: it has more than `limit` bytes, or does not come to its end while the server runs.
    """
    chunks: list[bytes] = []
    length, more = 0, True
    while more:
        try:
            message = await raw_request.receive()
        except asyncio.CancelledError:  # the server ends, and has waited as long as it was to
            raise HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE, "The server is shutting down, and did not wait for all of this request."
            ) from None
        if message["type"] == "http.disconnect":
            raise HttpError(HTTPStatus.BAD_REQUEST, "The client went away before all of its request was here.")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        length += len(chunk)
        if length <= limit:
            chunks.append(chunk)
        else:
            chunks.clear()
        if length > _DISCARDED:
            break
    if length > limit:
        raise HttpError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body is too large: at most {limit} bytes are read (`--max-request-bytes`).",
            {"Connection": "close"},
        )
    return b"".join(chunks)


def parse_json(body: bytes) -> Any:
    """The value that the body stands for.

    Raises:
        HttpError: it is no JSON, or JSON that cannot be passed on.
    """
    try:
        data = json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant)
        if _SURROGATE.search(body):
            json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        _refuse(r"it holds half a surrogate pair (\ud800 to \udfff), which is no character")
    except UnicodeDecodeError as error:
        _refuse(f"it is not UTF-8 (byte {error.start})")
    except json.JSONDecodeError as error:
        _refuse(f"{error.msg} (line {error.lineno}, column {error.colno})")
    except RecursionError:
        _refuse(f"it is nested more than {_DEEPEST} deep")
    except ValueError as error:  # a number of more digits than Python reads
        _refuse(str(error).partition(";")[0])
    if _is_deeper(data, _DEEPEST):
        _refuse(f"it is nested more than {_DEEPEST} deep")
    return data


def _refuse(reason: str) -> NoReturn:
    raise HttpError(HTTPStatus.BAD_REQUEST, f"The body is not JSON that can be used: {reason}.") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _is_deeper(data: Any, limit: int) -> bool:
    """Is it nested more than `limit` deep? Looks at one level after the other."""
    level = [data]
    for _ in range(limit):
        parts = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, (dict, list))]
        level = [item for part in parts for item in part if isinstance(item, (dict, list))]
        if not level:
            return False
    return True


def _log_ignored(request: BaseModel) -> None:
    """Say which fields nobody knows, each name once, and not more of them than fit on a screen."""
    new = [name for name in (request.model_extra or {}) if name not in _ignored][: _MOST_LOGGED - len(_ignored)]
    if new:
        _ignored.update(new)
        names = ", ".join(repr(name[:50]) for name in new)
        logger.warning("Ignored in a request, since there are no such fields: %s.", names)
