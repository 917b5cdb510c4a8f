"""Refusals over HTTP: which status and which name an error has, and the JSON that says so.

Every answer that is none is `{"error": {"message", "type", "param", "code"}}`, whatever went wrong: a field, the path,
the key, the engine. The message is the error's own; where it names a parameter, `param` does too.

vLLM: create_error_response of vllm/entrypoints/openai/serving_engine.py and the handlers in build_app. There the
status is 400 for everything that is wrong with a body, 500 for a dead engine, and 401, 404 and 405 have other bodies.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from tracellm.engine.config.errors import EngineDeadError, EngineGenerateError
from tracellm.engine.entrypoints.openai.protocol import ErrorInfo, ErrorResponse

__all__ = ["HttpError", "add_error_handlers", "create_error_response", "error_response_of", "json_response"]

logger = logging.getLogger("tracellm.server")

_TYPES = {
    HTTPStatus.BAD_REQUEST: "BadRequestError",
    HTTPStatus.UNAUTHORIZED: "AuthenticationError",
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowedError",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestTooLargeError",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "UnsupportedMediaTypeError",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalServerError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableError",
}
_PARAMETER = re.compile(r"^(?:SamplingParams: |StructuredOutputsParams: )?`(\w+)`")
_MOST_MISTAKES = 3
_SHOWN = 60  # characters of a value
_LONGEST = 2000  # characters of a message


class HttpError(Exception):
    """A refusal that has its status already."""

    def __init__(self, status: HTTPStatus, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def create_error_response(
    message: str,
    status_code: HTTPStatus = HTTPStatus.BAD_REQUEST,
    *,
    err_type: str | None = None,
    param: str | None = None,
) -> ErrorResponse:
    """The body of a refusal; `param` is found in a message that begins with it."""
    if param is None and status_code is HTTPStatus.BAD_REQUEST and (named := _PARAMETER.match(message)):
        param = named[1]
    kind = err_type or _TYPES.get(status_code, status_code.phrase.replace(" ", "") + "Error")
    if len(message) > _LONGEST:  # it quotes what was sent
        message = f"{message[:_LONGEST]}..."
    return ErrorResponse(error=ErrorInfo(message=message, type=kind, param=param, code=status_code.value))


def error_response_of(error: Exception) -> ErrorResponse:
    """The body for an error that somebody raised. What is no refusal is a fault of ours, and logged."""
    match error:
        case HttpError():
            return create_error_response(str(error), error.status)
        case ValidationError():
            return _validation_error(error.errors(include_url=False))
        case EngineDeadError():
            return create_error_response(str(error), HTTPStatus.SERVICE_UNAVAILABLE, err_type="EngineDeadError")
        case EngineGenerateError():
            logger.error("%s", error, exc_info=error)
            return create_error_response(str(error), HTTPStatus.INTERNAL_SERVER_ERROR, err_type="EngineGenerateError")
        case ValueError():
            return create_error_response(str(error))
    logger.error("%s: %s", type(error).__name__, error, exc_info=error)
    return _fault(error)


def _fault(error: Exception) -> ErrorResponse:
    message = f"The server has failed ({type(error).__name__}). This is a fault of tracellm; its log says more."
    return create_error_response(message, HTTPStatus.INTERNAL_SERVER_ERROR)


def _validation_error(mistakes: Iterable[Any]) -> ErrorResponse:
    """The first mistakes in the fields, a sentence each."""
    told: dict[str, str] = {}
    for mistake in mistakes:
        names = [part for part in mistake["loc"] if isinstance(part, int) or str(part).isidentifier()]
        where = str(names[0]) if names else ""
        for part in names[1:]:
            where += f"[{part}]" if isinstance(part, int) else f".{part}"
        said = mistake["msg"].removeprefix("Value error, ").rstrip(".")
        if mistake["type"] == "missing":
            told.setdefault(where, f"`{where}` is missing")
            continue
        if where:
            said = f"`{where}`: {said[:1].lower()}{said[1:]}, got {_short(mistake['input'])}"
        told.setdefault(where, said)
    sentences = list(told.values())[:_MOST_MISTAKES]
    first = next(iter(told), "")
    message = ". ".join(sentences) + "."
    return create_error_response(message, param=re.split(r"[.\[]", first)[0] or None)


def _short(value: object) -> str:
    """How a value begins. Only that much of it is turned into text, since it may be very long."""
    if isinstance(value, str):
        value = value[: _SHOWN + 1]
    elif isinstance(value, (list, dict)) and len(value) > _SHOWN:
        return f"a {type(value).__name__} of {len(value)}"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def json_response(body: ErrorResponse, headers: Mapping[str, str] | None = None) -> Response:
    """A refusal as it is sent."""
    return Response(
        body.model_dump_json(), body.error.code, dict(headers) if headers else None, media_type="application/json"
    )


def add_error_handlers(app: FastAPI, paths: Sequence[str]) -> None:
    """Give every error that leaves a route the form of this API; `paths` are those that there are."""

    @app.exception_handler(HttpError)
    async def refusal(_: Request, error: HttpError) -> Response:
        return json_response(error_response_of(error), error.headers)

    @app.exception_handler(HTTPStatus.NOT_FOUND)
    async def no_such_path(request: Request, _: HTTPException) -> Response:
        message = f"There is no {request.url.path} here. The paths are: {', '.join(paths)}."
        return json_response(create_error_response(message, HTTPStatus.NOT_FOUND))

    @app.exception_handler(HTTPStatus.METHOD_NOT_ALLOWED)
    async def no_such_method(request: Request, error: HTTPException) -> Response:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"{request.url.path} takes {allowed or 'another method'}, not {request.method}."
        return json_response(create_error_response(message, HTTPStatus.METHOD_NOT_ALLOWED), error.headers)

    @app.exception_handler(RequestValidationError)
    async def bad_parameters(_: Request, error: RequestValidationError) -> Response:
        return json_response(_validation_error(error.errors()))

    @app.exception_handler(ValueError)
    @app.exception_handler(EngineGenerateError)
    async def mistake(_: Request, error: Exception) -> Response:
        return json_response(error_response_of(error))

    @app.exception_handler(EngineDeadError)
    async def dead(request: Request, error: EngineDeadError) -> Response:
        request.app.state.on_engine_death()
        return json_response(error_response_of(error))

    @app.exception_handler(Exception)
    async def fault(_: Request, error: Exception) -> Response:
        return json_response(_fault(error))
