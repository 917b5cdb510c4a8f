"""What every request passes before its route: the key, and an id for the response.

vLLM: AuthenticationMiddleware and XRequestIdMiddleware of vllm/entrypoints/openai/api_server.py.
"""

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

from tracellm.engine.entrypoints.openai.http_errors import create_error_response, json_response
from tracellm.engine.entrypoints.openai.http_responses import Receive, Send
from tracellm.engine.entrypoints.openai.protocol.base import random_uuid

__all__ = ["AuthenticationMiddleware", "XRequestIdMiddleware"]

App = Callable[[Any, Receive, Send], Awaitable[None]]


def _header(scope: Any, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


class AuthenticationMiddleware:
    """Asks for `Authorization: Bearer KEY` on every path under /v1, and lets OPTIONS through, which carries none."""

    def __init__(self, app: App, tokens: Sequence[str]) -> None:
        self.app = app
        self.api_tokens = [_digest(token) for token in tokens]

    def verify_token(self, authorization: str | None) -> bool:
        """Is it one of the keys? Takes as long for a wrong one as for a right one."""
        scheme, _, key = (authorization or "").partition(" ")
        digest = _digest(key.strip())
        matches = [secrets.compare_digest(digest, token) for token in self.api_tokens]
        return scheme.lower() == "bearer" and any(matches)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if not _is_guarded(scope) or self.verify_token(_header(scope, b"authorization")):
            await self.app(scope, receive, send)
            return
        message = "The API key is missing or wrong: send `Authorization: Bearer KEY` with a key of this server."
        refusal = create_error_response(message, HTTPStatus.UNAUTHORIZED)
        await json_response(refusal, {"WWW-Authenticate": "Bearer"})(scope, receive, send)


def _is_guarded(scope: Any) -> bool:
    """Is it a path under /v1? With --root-path uvicorn puts that path before the request's own."""
    if scope["type"] != "http" or scope["method"] == "OPTIONS":
        return False
    path: str = scope["path"]
    return path.startswith("/v1") or path.removeprefix(scope.get("root_path", "")).startswith("/v1")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


class XRequestIdMiddleware:
    """Puts X-Request-Id on every response: the request's own, or a random one."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _header(scope, b"x-request-id") or random_uuid()

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode("latin-1"))]
            await send(message)

        await self.app(scope, receive, send_with_id)
