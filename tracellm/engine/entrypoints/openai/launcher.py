"""The uvicorn server and its shutdown, by a signal or by the death of the engine.

The first SIGTERM or Ctrl-C waits for running requests; a second one aborts them.

vLLM: vllm/entrypoints/launcher.py. There the first signal closes connections unless requests end within a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI

from tracellm.engine.entrypoints.openai.cli_args import ServeArgs
from tracellm.engine.frontend.async_llm import AsyncLLM

__all__ = ["interrupt_on_signals", "serve_http"]

_WATCHDOG_SECONDS = 5.0  # as in vLLM; leaves time for /health to return 503
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_LOG_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stderr"}},
    "loggers": {"uvicorn": {"handlers": ["stderr"], "propagate": False}},
}
"""Sends all logs to stderr; uvicorn's default sends the access log to stdout."""


class Server(uvicorn.Server):
    """uvicorn's server without its signal handlers, which raise the signal again after the shutdown."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing; `serve_http` handles the signals."""
        yield

    def stop(self) -> None:
        """Shut down after the running requests; on the second call, cancel them."""
        if self.should_exit:
            self.force_exit = True
            for task in self.server_state.tasks:
                task.cancel()
        self.should_exit = True


async def serve_http(
    app: FastAPI, sock: socket.socket, listen_address: str, args: ServeArgs, engine_client: AsyncLLM
) -> None:
    """Serve until a signal arrives or the engine dies. Signals during the engine's shutdown have no effect.

    Raises:
        KeyboardInterrupt: A second signal aborted the running requests.
        EngineDeadError: The engine has died.
    """

    async def application(scope: Any, receive: Any, send: Any) -> None:
        # uvicorn inspects the signature of the application, and a recording wraps that of FastAPI.
        await app(scope, receive, send)

    config = uvicorn.Config(
        application,
        lifespan="off",
        log_config=_LOG_CONFIG,
        log_level=args.uvicorn_log_level,
        access_log=not args.disable_uvicorn_access_log,
        root_path=args.root_path,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(args.shutdown_timeout)),
    )
    server = Server(config)
    app.state.on_engine_death = lambda: setattr(server, "should_exit", True)
    loop = asyncio.get_running_loop()
    for signum in _SIGNALS:
        loop.add_signal_handler(signum, server.stop)
    args.on_ready(listen_address)
    watchdog = asyncio.create_task(_watchdog(server, engine_client))
    try:
        await server.serve(sockets=[sock])
    finally:
        watchdog.cancel()
    if server.force_exit:
        raise KeyboardInterrupt("requests that were running have been given up")
    if engine_client.errored:
        raise engine_client.dead_error


async def _watchdog(server: Server, engine_client: AsyncLLM) -> None:
    """Stop the server after the engine's death, unless a failed request has done so. A stream cannot: its status was
    sent.

    vLLM: vllm/entrypoints/launcher.py::watchdog_loop, which stops the server without a delay.
    """
    while not engine_client.errored:
        await asyncio.sleep(_WATCHDOG_SECONDS)
    await asyncio.sleep(_WATCHDOG_SECONDS)
    server.should_exit = True


def interrupt_on_signals() -> None:
    """Make SIGTERM raise KeyboardInterrupt during the startup, as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for signum in _SIGNALS:
        signal.signal(signum, interrupt)
