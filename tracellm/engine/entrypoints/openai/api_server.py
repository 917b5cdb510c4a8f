"""The server from startup to shutdown: its socket, engine, application and routes.

    from tracellm.engine.config.arg_utils import EngineArgs
    from tracellm.engine.entrypoints.openai.cli_args import ServeArgs

    asyncio.run(run_server(ServeArgs(engine_args=EngineArgs(), port=8000)))

The port is bound before the model is loaded, so a port in use fails early. The socket listens only when the engine is
ready. A route reads the request's body and passes it to the serving class of its path.

vLLM: vllm/entrypoints/openai/api_server.py. Left out: several API servers, LoRA, HTTP metrics; /docs and
/openapi.json, and the routes of other models and APIs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineDeadError, EngineError
from tracellm.engine.entrypoints.logger import RequestLogger
from tracellm.engine.entrypoints.openai.cli_args import ServeArgs
from tracellm.engine.entrypoints.openai.http_requests import (
    AuthenticationMiddleware,
    XRequestIdMiddleware,
    read_request,
)
from tracellm.engine.entrypoints.openai.http_responses import add_error_handlers, get_serving, respond
from tracellm.engine.entrypoints.openai.launcher import check_certificate, interrupt_on_signals, serve_http
from tracellm.engine.entrypoints.openai.message_parser import ParserChoice
from tracellm.engine.entrypoints.openai.protocol import ChatCompletionRequest, CompletionRequest
from tracellm.engine.entrypoints.openai.responses.protocol import ResponsesRequest
from tracellm.engine.entrypoints.openai.responses.serving import OpenAIServingResponses
from tracellm.engine.entrypoints.openai.serving_chat import OpenAIServingChat
from tracellm.engine.entrypoints.openai.serving_completion import OpenAIServingCompletion
from tracellm.engine.entrypoints.openai.serving_models import BaseModelPath, OpenAIServingModels
from tracellm.engine.entrypoints.openai.tokenize.protocol import (
    DetokenizeRequest,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
    TokenizeRequest,
)
from tracellm.engine.entrypoints.openai.tokenize.serving import OpenAIServingTokenization
from tracellm.engine.entrypoints.openai.tool_parsers import ToolParserManager
from tracellm.engine.entrypoints.pooling import api_router as pooling
from tracellm.engine.frontend.async_llm import AsyncLLM
from tracellm.engine.reasoning import ReasoningParserManager

__all__ = [
    "PATHS",
    "build_app",
    "build_async_engine_client",
    "build_async_engine_client_from_engine_args",
    "create_server_socket",
    "init_app_state",
    "run_server",
    "run_server_worker",
    "setup_server",
]

_BACKLOG = 2048

# -- routes ------------------------------------------------------------------------------------------------------------

router = APIRouter()


@router.post("/v1/chat/completions")
async def create_chat_completion(raw_request: Request) -> Response:
    """Generate the next message of a conversation."""
    request = await read_request(raw_request, ChatCompletionRequest)
    serving = get_serving(raw_request, "openai_serving_chat", "Chat Completions")
    return await respond(raw_request, serving.create_chat_completion(request, raw_request))


@router.post("/v1/completions")
async def create_completion(raw_request: Request) -> Response:
    """Generate text after prompts."""
    request = await read_request(raw_request, CompletionRequest)
    serving = get_serving(raw_request, "openai_serving_completion", "Completions")
    return await respond(raw_request, serving.create_completion(request, raw_request))


@router.post("/v1/responses")
async def create_responses(raw_request: Request) -> Response:
    """Generate the response to a text or to the items of a conversation."""
    request = await read_request(raw_request, ResponsesRequest)
    serving = get_serving(raw_request, "openai_serving_responses", "Responses")
    return await respond(raw_request, serving.create_responses(request, raw_request))


@router.get("/v1/responses/{response_id}")
async def retrieve_responses(
    response_id: str, raw_request: Request, starting_after: int | None = None, stream: bool | None = False
) -> Response:
    """Return a stored response."""
    serving = get_serving(raw_request, "openai_serving_responses", "Responses")
    return await respond(raw_request, serving.retrieve_responses(response_id, starting_after, stream))


@router.post("/v1/responses/{response_id}/cancel")
async def cancel_responses(response_id: str, raw_request: Request) -> Response:
    """Cancel a response in the background."""
    serving = get_serving(raw_request, "openai_serving_responses", "Responses")
    return await respond(raw_request, serving.cancel_responses(response_id))


@router.post("/tokenize")
async def tokenize(raw_request: Request) -> Response:
    """Return the tokens of a text or a conversation."""
    request: TokenizeRequest = await read_request(raw_request, TokenizeCompletionRequest, TokenizeChatRequest)
    serving = raw_request.app.state.openai_serving_tokenization
    return await respond(raw_request, serving.create_tokenize(request, raw_request))


@router.post("/detokenize")
async def detokenize(raw_request: Request) -> Response:
    """Return the text of tokens."""
    request = await read_request(raw_request, DetokenizeRequest)
    serving = raw_request.app.state.openai_serving_tokenization
    return await respond(raw_request, serving.create_detokenize(request, raw_request))


@router.get("/v1/models")
@router.get("/v1/models/")
async def show_available_models(raw_request: Request) -> Response:
    """List the served model names."""
    return await respond(raw_request, raw_request.app.state.openai_serving_models.show_available_models())


@router.get("/v1/models/{model_name:path}")
async def show_model(model_name: str, raw_request: Request) -> Response:
    """Return one served model name; names may contain slashes."""
    return await respond(raw_request, raw_request.app.state.openai_serving_models.show_model(model_name))


@router.get("/health")
@router.get("/ping")
@router.post("/ping")
async def health(raw_request: Request) -> Response:
    """Return status 200, or 503 if the engine has died."""
    try:
        await raw_request.app.state.engine_client.check_health()
    except EngineDeadError:
        return Response(status_code=503)
    return Response(status_code=200)


@router.get("/load")
async def get_server_load_metrics(raw_request: Request) -> dict[str, int]:
    """Return the number of requests in progress."""
    return {"server_load": raw_request.app.state.server_load_metrics}


@router.get("/version")
async def show_version() -> dict[str, str]:
    """Return the version of tracellm."""
    from tracellm import __version__

    return {"version": __version__}


@router.get("/metrics")
async def metrics(raw_request: Request) -> Response:
    """Return the engine's metrics in Prometheus' text format; empty under --disable-log-stats."""
    registry = raw_request.app.state.engine_client.prometheus_registry
    return Response(b"" if registry is None else generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


router.include_router(pooling.router)

PATHS = sorted({route.path.rstrip("/") for route in router.routes if isinstance(route, APIRoute)})
"""All paths, for the error of an unknown path."""


# -- startup -----------------------------------------------------------------------------------------------------------


def create_server_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to this address, which does not listen yet.

    Raises:
        EngineError: The port is in use, or the address does not exist.
    """
    sock = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except (OSError, UnicodeError) as error:
        if sock is not None:
            sock.close()
        raise _cannot_listen(host, port, error) from None
    return sock


def _cannot_listen(host: str, port: int, error: Exception) -> EngineError:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return EngineError(
            f"Port {port} of {host} is in use: is another server running? End it, or choose another port with --port "
            "(0: any that is free)."
        )
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return EngineError(f"Cannot listen at {host}, port {port}: {reason}. Choose others with --host and --port.")


def setup_server(args: ServeArgs) -> tuple[str, socket.socket]:
    """Bind the port. Return the server's URL and the socket.

    Raises:
        EngineError: The port is in use, the address does not exist, or the certificate cannot be used.
    """
    check_certificate(args)
    sock = create_server_socket(args.host, args.port)
    host = f"[{args.host}]" if sock.family == socket.AF_INET6 else args.host
    return f"{'https' if args.ssl_certfile else 'http'}://{host}:{sock.getsockname()[1]}", sock


async def run_server(args: ServeArgs) -> None:
    """Run the server until a signal arrives or the engine dies.

    Raises:
        EngineError: The port is in use, or the engine failed to start.
        EngineDeadError: The engine has died.
        KeyboardInterrupt: A signal arrived during startup, or a second one during shutdown.
    """
    listen_address, sock = setup_server(args)
    with sock:
        await run_server_worker(listen_address, sock, args)


async def run_server_worker(listen_address: str, sock: socket.socket, args: ServeArgs) -> None:
    """Run the server on a bound socket."""
    interrupt_on_signals()
    async with build_async_engine_client(args) as engine_client:
        app = build_app(args)
        await init_app_state(engine_client, app.state, args)
        try:
            sock.listen(_BACKLOG)
        except OSError as error:  # two servers may bind the port at the same time; only one can listen
            raise _cannot_listen(args.host, sock.getsockname()[1], error) from None
        was_frozen = gc.get_freeze_count()
        gc.collect()
        gc.freeze()  # a collection of the objects of the start-up, which stay, takes 0.2 s
        try:
            await serve_http(app, sock, listen_address, args, engine_client)
        finally:
            if not was_frozen:  # keep what other code has frozen
                gc.unfreeze()


@contextlib.asynccontextmanager
async def build_async_engine_client(args: ServeArgs) -> AsyncIterator[AsyncLLM]:
    """Start the engine, and shut it down at the end of the `async with` block.

    Raises:
        EngineError: The engine failed to start.
    """
    async with build_async_engine_client_from_engine_args(args.engine_args) as engine_client:
        yield engine_client


@contextlib.asynccontextmanager
async def build_async_engine_client_from_engine_args(engine_args: EngineArgs) -> AsyncIterator[AsyncLLM]:
    """Start the engine from its own arguments, as `build_async_engine_client` does."""
    vllm_config = engine_args.create_engine_config("OPENAI_API_SERVER")
    async_llm = AsyncLLM.from_vllm_config(vllm_config=vllm_config, disable_log_stats=engine_args.disable_log_stats)
    try:
        if not engine_args.skip_tokenizer_init:
            await async_llm.get_tokenizer()  # load it before the first request
        yield async_llm
    finally:
        async_llm.shutdown()


def build_app(args: ServeArgs) -> FastAPI:
    """Return the application with routes, error handlers and middleware; `init_app_state` adds the engine."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(router)
    add_error_handlers(app, PATHS)
    if args.allowed_origins:
        app.add_middleware(CORSMiddleware, allow_origins=args.allowed_origins, allow_methods=["*"], allow_headers=["*"])
    if tokens := [key for key in (args.api_key or [os.environ.get("VLLM_API_KEY", "")]) if key]:
        app.add_middleware(AuthenticationMiddleware, tokens=tokens)
    if args.enable_request_id_headers:
        app.add_middleware(XRequestIdMiddleware)
    return app


async def init_app_state(engine_client: AsyncLLM, state: Any, args: ServeArgs) -> None:
    """Set the engine and the serving classes as state of the application."""
    models = OpenAIServingModels(
        engine_client, [BaseModelPath(name, str(args.engine_args.model)) for name in args.served_model_name]
    )
    options: dict[str, Any] = {
        "chat_template": args.chat_template,
        "chat_template_content_format": args.chat_template_content_format,
        "trust_request_chat_template": args.trust_request_chat_template,
        "return_tokens_as_token_ids": args.return_tokens_as_token_ids,
        "enable_prompt_tokens_details": args.enable_prompt_tokens_details,
        "enable_force_include_usage": args.enable_force_include_usage,
        "request_logger": RequestLogger(max_log_len=args.max_log_len) if args.enable_log_requests else None,
    }
    state.engine_client = engine_client
    state.max_request_bytes = args.max_request_bytes
    state.receive_timeout = args.receive_timeout
    state.parsing = asyncio.Lock()
    state.server_load_metrics = 0
    state.on_engine_death = lambda: None
    state.openai_serving_models = models
    state.openai_serving_chat = state.openai_serving_responses = state.openai_serving_completion = None
    if "generate" in engine_client.processor.supported_tasks:
        chat_options = {"parsers": await _parsers(engine_client, args), **options}
        state.openai_serving_chat = OpenAIServingChat(engine_client, models, args.response_role, **chat_options)
        state.openai_serving_responses = OpenAIServingResponses(engine_client, models, **chat_options)
        state.openai_serving_completion = OpenAIServingCompletion(engine_client, models, **options)
    pooling.init_pooling_state(engine_client, state, models, options)
    state.openai_serving_tokenization = OpenAIServingTokenization(engine_client, models, **options)


async def _parsers(engine_client: AsyncLLM, args: ServeArgs) -> ParserChoice:
    """Return the parsers of reasoning and tool calls.

    Raises:
        EngineError: A parser needs tokens that the tokenizer does not have.
    """
    tool_parser, reasoning_parser = args.tool_call_parser, args.engine_args.reasoning_parser
    return ParserChoice(
        None if engine_client.model_config.skip_tokenizer_init else await engine_client.get_tokenizer(),
        ToolParserManager.get_tool_parser(tool_parser) if args.enable_auto_tool_choice and tool_parser else None,
        ReasoningParserManager.get_reasoning_parser(reasoning_parser) if reasoning_parser else None,
        exclude_tools_when_tool_choice_none=args.exclude_tools_when_tool_choice_none,
    )
