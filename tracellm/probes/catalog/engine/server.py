"""The asynchronous engine and the OpenAI server before it.

Worth telling: of an HTTP request what was asked for and how it was answered. It begins a trace of its own, or goes on
with the one that its `traceparent` header names; all that the API process does on its behalf belongs to that.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from tracellm.probes.catalog.helpers import argument, plain
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.context.traceparent import HEADER
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES"]


class _Send:
    """ASGI's `send`, watched for the status."""

    __slots__ = ("send", "status")

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self.send = send
        self.status: int | None = None

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.send(message)


def _begins_trace(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The header that came with an HTTP request; None for an application's lifespan and for web sockets."""
    scope = argument(args, kwargs, 1, "scope")
    if scope["type"] != "http":
        return None
    sent = (value.decode("latin-1") for name, value in scope["headers"] if name == HEADER.encode())
    return next(sent, "")


def _watch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    app, scope, receive, send = args
    return (app, scope, receive, _Send(send)), kwargs


def _capture_http(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    scope, send = args[1], args[3]
    return str(scope["method"]), str(scope["path"]), getattr(send, "status", None)


def _http(facts: Any) -> dict[str, Any]:
    method, path, status = facts
    told = {names.HTTP_METHOD: method, names.HTTP_PATH: path}
    return told if status is None else {**told, names.HTTP_STATUS: status, names.RESULT: str(status)}


def _name_http(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    if facts is not None:
        span.name = f"{facts[0]} {facts[1]}"


_SERVER = "entrypoints.openai."

ENTRIES = (
    *plain("request", _SERVER + "api_server", "run_server", "run_server_worker", "build_async_engine_client"),
    *plain("request", _SERVER + "api_server", "build_app", "init_app_state"),
    *plain(
        "request", "frontend.async_llm", "AsyncLLM.__init__", "AsyncLLM.from_vllm_config", "AsyncLLM.from_engine_args"
    ),
    *plain(
        "request", "frontend.async_llm", "AsyncLLM._run_output_handler", "AsyncLLM.generate", "AsyncLLM.add_request"
    ),
    *plain("request", "frontend.async_llm", "AsyncLLM.abort", "AsyncLLM.shutdown"),
    Entry(
        "tracellm.engine.frontend.async_llm:output_handler",
        "request",
        lifeline="AsyncLLM",
        span_name="AsyncLLM.output_handler",
        loop=True,
    ),
    Entry(
        "fastapi.applications:FastAPI.__call__",
        "request",
        _capture_http,
        _http,
        observe=_name_http,
        even_if_raises=True,
        before=_watch,
        begins_trace=_begins_trace,
    ),
    *plain("request", _SERVER + "serving_engine", "OpenAIServing._preprocess_chat", "OpenAIServing._process_inputs"),
    *plain("request", _SERVER + "serving_chat", "OpenAIServingChat.__init__"),
    *plain("request", _SERVER + "serving_chat", "OpenAIServingChat.create_chat_completion"),
    *plain("request", _SERVER + "serving_chat", "OpenAIServingChat.chat_completion_stream_generator"),
    *plain("request", _SERVER + "serving_chat", "OpenAIServingChat.chat_completion_full_generator"),
    *plain("request", _SERVER + "serving_completion", "OpenAIServingCompletion.create_completion"),
    *plain("request", _SERVER + "serving_completion", "OpenAIServingCompletion.completion_stream_generator"),
    *plain("step", _SERVER + "serving_completion", "OpenAIServingCompletion.request_output_to_completion_response"),
    *plain("request", _SERVER + "serving_models", "OpenAIServingModels.show_available_models"),
    *plain("request", _SERVER + "serving_tokenization", "OpenAIServingTokenization.create_tokenize"),
    *plain("request", _SERVER + "serving_tokenization", "OpenAIServingTokenization.create_detokenize"),
    *plain("step", _SERVER + "tokenizing", "AsyncTokenizer.tokenize"),
)
