"""uvicorn, and when it ends: SIGTERM and Ctrl-C let what runs finish, a second one does not, a dead engine ends it too.

vLLM: vllm/entrypoints/launcher.py. There a signal closes the connections at once, unless requests end within a moment.
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

_WATCHDOG_SECONDS = 5.0  # as vLLM; so long, at least, /health says 503, unless a request ends the server earlier
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_LOG_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(levelname)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stderr"}},
    "loggers": {"uvicorn": {"handlers": ["stderr"], "propagate": False}},
}
"""All on stderr; uvicorn's own has the access log on stdout."""


class Server(uvicorn.Server):
    """uvicorn's, without its signal handlers: these kill the process with the signal again when all is done."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `serve_http`."""
        yield

    def stop(self) -> None:
        """A signal came: drain; the second time, do not."""
        if self.should_exit:
            self.force_exit = True
            for task in self.server_state.tasks:
                task.cancel()
        self.should_exit = True


async def serve_http(
    app: FastAPI, sock: socket.socket, listen_address: str, args: ServeArgs, engine_client: AsyncLLM
) -> None:
    """Serve until a signal comes or the engine dies. Further signals do nothing while the engine is shut down.

    Raises:
        KeyboardInterrupt: a second signal came, and requests were given up.
        EngineDeadError: the engine has died.
    """

    async def application(scope: Any, receive: Any, send: Any) -> None:
        # uvicorn finds out from the signature what it is given; a recording wraps FastAPI's own.
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
    """End the server some time after its engine has died; a stream that learns of it has sent its status already.

    vLLM: vllm/entrypoints/launcher.py::watchdog_loop, which ends it as soon as it looks.
    """
    while not engine_client.errored:
        await asyncio.sleep(_WATCHDOG_SECONDS)
    await asyncio.sleep(_WATCHDOG_SECONDS)
    server.should_exit = True


def interrupt_on_signals() -> None:
    """Until the server runs, SIGTERM ends the start-up as Ctrl-C does: by a KeyboardInterrupt."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for signum in _SIGNALS:
        signal.signal(signum, interrupt)
