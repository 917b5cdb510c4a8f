"""The server from startup to shutdown: its socket, engine and application.

    from tracellm.engine.config.arg_utils import EngineArgs
    from tracellm.engine.entrypoints.openai.cli_args import ServeArgs

    asyncio.run(run_server(ServeArgs(engine_args=EngineArgs(), port=8000)))

The port is bound before the model is loaded, so a port in use fails early. The socket listens only when the engine is
ready.

vLLM: vllm/entrypoints/openai/api_server.py. Left out: several API servers, TLS, LoRA, HTTP metrics.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from tracellm.engine.config.arg_utils import EngineArgs
from tracellm.engine.config.errors import EngineError
from tracellm.engine.entrypoints.openai.cli_args import ServeArgs
from tracellm.engine.entrypoints.openai.http_requests import AuthenticationMiddleware, XRequestIdMiddleware
from tracellm.engine.entrypoints.openai.http_responses import add_error_handlers
from tracellm.engine.entrypoints.openai.launcher import interrupt_on_signals, serve_http
from tracellm.engine.entrypoints.openai.routes import PATHS, router
from tracellm.engine.entrypoints.openai.serving_chat import OpenAIServingChat
from tracellm.engine.entrypoints.openai.serving_completion import OpenAIServingCompletion
from tracellm.engine.entrypoints.openai.serving_models import BaseModelPath, OpenAIServingModels
from tracellm.engine.entrypoints.openai.serving_tokenization import OpenAIServingTokenization
from tracellm.engine.frontend.async_llm import AsyncLLM

__all__ = [
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
        EngineError: The port is in use, or the address does not exist.
    """
    sock = create_server_socket(args.host, args.port)
    host = f"[{args.host}]" if sock.family == socket.AF_INET6 else args.host
    return f"http://{host}:{sock.getsockname()[1]}", sock


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
        await serve_http(app, sock, listen_address, args, engine_client)


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
    }
    state.engine_client = engine_client
    state.max_request_bytes = args.max_request_bytes
    state.server_load_metrics = 0
    state.on_engine_death = lambda: None
    state.openai_serving_models = models
    state.openai_serving_chat = OpenAIServingChat(engine_client, models, args.response_role, **options)
    state.openai_serving_completion = OpenAIServingCompletion(engine_client, models, **options)
    state.openai_serving_tokenization = OpenAIServingTokenization(engine_client, models, **options)
