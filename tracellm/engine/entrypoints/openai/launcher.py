"""The uvicorn server and its shutdown, by a signal or by the death of the engine.

The first SIGTERM or Ctrl-C waits for running requests; a second one aborts them. Connections on which no request
arrives are closed.

vLLM: vllm/entrypoints/launcher.py. There the first signal ends the engine, and running requests do not finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tracellm.engine.config.errors import EngineError
from tracellm.engine.entrypoints.logger import LOG_CONFIG
from tracellm.engine.entrypoints.openai.cli_args import ServeArgs
from tracellm.engine.entrypoints.openai.http_responses import HttpError, error_response, json_error
from tracellm.engine.frontend.async_llm import AsyncLLM

__all__ = ["check_certificate", "interrupt_on_signals", "serve_http"]

logger = logging.getLogger("tracellm.server")

_WATCHDOG_SECONDS = 5.0  # as in vLLM; leaves time for /health to return 503
_MAX_HEAD_BYTES = 1 << 16  # request line and headers, exact to a piece of `_PIECE` bytes; h11's default, vLLM: 4 MiB
_PIECE = 1 << 12
_DISCARD_SECONDS = 5.0  # a refused client may still send
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


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


def _http_protocol(timeout: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits: a request's head has a size, and arrives in `timeout` seconds.

    uvicorn itself waits without end for the first request, and for the end of each head, which it keeps in memory. Its
    errors are plain text, and close the connection with data unread, which can lose them.
    """
    base: Any = HttpToolsProtocol

    class HttpProtocol(base):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._num_head_bytes = 0  # since the last complete head, part of a body, or request
            self._is_refused = False
            self._waiting_since = self.loop.time()
            self._timer = self.loop.call_later(timeout, self._close_if_idle)

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            for start in range(0, len(data), _PIECE):
                if self._is_refused or self.transport.is_closing():
                    return
                piece = data[start : start + _PIECE]
                self._num_head_bytes += len(piece)
                super().data_received(piece)
                if self._num_head_bytes > _MAX_HEAD_BYTES and not self._is_refused:
                    self._refuse(
                        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                        f"The request line and the headers are too large: at most {_MAX_HEAD_BYTES} bytes are read.",
                    )

        def on_headers_complete(self) -> None:
            self._num_head_bytes = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._num_head_bytes = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._num_head_bytes = 0
            super().on_message_complete()

        def on_response_complete(self) -> None:
            self._waiting_since = self.loop.time()
            super().on_response_complete()

        def send_400_response(self, msg: str) -> None:
            self._refuse(HTTPStatus.BAD_REQUEST, msg)

        def _refuse(self, status: HTTPStatus, message: str) -> None:
            """Send an error, and close the connection after discarding what the client is sending.

            Within another response nothing is sent: it would be taken for a part of that.
            """
            self._is_refused = True
            if (cycle := self.cycle) is not None and not cycle.response_complete:
                if cycle.response_started or self.pipeline:
                    self.transport.close()
                    return
                cycle.disconnected = True  # the application's answer is not sent
                cycle.message_event.set()
            response = json_error(error_response(HttpError(status, message)), {"Connection": "close"})
            head = b"".join(b"%b: %b\r\n" % header for header in response.raw_headers)
            self.transport.write(STATUS_LINE[status] + head + b"\r\n" + response.body)
            if self.transport.can_write_eof():  # not in TLS
                self.transport.write_eof()
            self._timer.cancel()
            self._timer = self.loop.call_later(_DISCARD_SECONDS, self.transport.close)

        def _close_if_idle(self) -> None:
            left = timeout  # while a request runs; its body has a timeout of its own
            if self.cycle is None or self.cycle.response_complete:
                left = self._waiting_since + timeout - self.loop.time()
            if left <= 0:
                self.transport.close()
            else:
                self._timer = self.loop.call_later(left, self._close_if_idle)

    return HttpProtocol


def _keep_alive_seconds() -> int:
    """Return the seconds that a connection stays open after a response, from vLLM's variable; 5 by default."""
    value = os.environ.get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE") or "5"
    if not value.isdecimal():
        raise EngineError(f"VLLM_HTTP_TIMEOUT_KEEP_ALIVE must be a whole number of seconds, got {value!r}.")
    return int(value)


def _log_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception that no task handles. Without a free descriptor, each connection that waits causes one."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in _OUT_OF_RESOURCES and "accept" in context["message"]:
        logger.error(
            "No connection can be accepted: %s. Those that wait are accepted when others end. Raise the limit "
            "(`ulimit -n`), or let a proxy limit the connections.",
            error.strerror,
        )
    else:
        loop.default_exception_handler(context)


def check_certificate(args: ServeArgs) -> None:
    """Load the certificate of TLS, if there is one, so that a wrong one fails early.

    Raises:
        EngineError: A file is missing or unusable, or does not belong to another.
    """
    if args.ssl_certfile is None:
        return
    option = "--ssl-certfile and --ssl-keyfile"
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.ssl_certfile, args.ssl_keyfile, password="")  # do not ask for one
        if args.ssl_ca_certs is not None:
            option = "--ssl-ca-certs"
            context.load_verify_locations(args.ssl_ca_certs)
    except OSError as error:  # ssl.SSLError too
        reason = error.strerror or str(error)
        raise EngineError(f"{option}: the certificate cannot be used: {reason}.") from None


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
        http=_http_protocol(args.receive_timeout),
        log_config=LOG_CONFIG,
        log_level=args.uvicorn_log_level,
        access_log=not args.disable_uvicorn_access_log,
        root_path=args.root_path,
        server_header=False,
        ssl_keyfile=args.ssl_keyfile,
        ssl_certfile=args.ssl_certfile,
        ssl_ca_certs=args.ssl_ca_certs,
        ssl_cert_reqs=args.ssl_cert_reqs,
        timeout_keep_alive=_keep_alive_seconds(),
        timeout_graceful_shutdown=max(1, round(args.shutdown_timeout)),
    )
    logging.captureWarnings(True)
    if args.enable_log_requests:
        is_verbose = args.uvicorn_log_level in ("debug", "trace")
        logging.getLogger("tracellm.requests").setLevel(logging.DEBUG if is_verbose else logging.INFO)
    server = Server(config)
    app.state.on_engine_death = lambda: setattr(server, "should_exit", True)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_exception)
    for signum in _SIGNALS:
        loop.add_signal_handler(signum, server.stop)
    args.on_ready(listen_address, "generate" in engine_client.processor.supported_tasks)
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
    """Stop the server some seconds after the engine's death.

    A failed request stops it at once, but not a stream, whose status was already sent.

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
