"""What a client of another process holds, and how it is given back: the process, sockets, a directory, a thread.

It knows nothing of the client, so that the client can be garbage-collected while a thread still waits at a socket, and
so that it can clean up after it: when the client is deleted, when `shutdown` is called, or when the interpreter ends.

vLLM: vllm/v1/engine/core_client.py::BackgroundResources.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import zmq

from tracellm.engine.config.errors import EngineDeadError
from tracellm.engine.ipc.core_launch import CoreEngineProcManager
from tracellm.engine.ipc.handshake import ENGINE_CORE_DEAD
from tracellm.engine.ipc.socket_directory import remove_socket_directory

__all__ = ["AnyFuture", "BackgroundResources"]

AnyFuture = asyncio.Future[Any] | Future[Any]


@dataclass
class BackgroundResources:
    """Everything that has to be ended; calling it ends it all, once."""

    ctx: zmq.Context[zmq.Socket[bytes]]
    directory: str
    """Of the sockets."""
    engine_manager: CoreEngineProcManager | None = None
    input_socket: zmq.Socket[bytes] | None = None
    output_socket: zmq.Socket[bytes] | None = None
    sending: threading.RLock = field(default_factory=threading.RLock)
    """Held by the thread that uses the input socket: two at once would break it."""
    output_queue_thread: threading.Thread | None = None
    """Waits for outputs; of a `SyncMPClient`."""
    wake: socket.socket | None = None
    """A byte in it makes that thread look whether it should end."""
    output_queue_task: asyncio.Task[None] | None = None
    """Waits for outputs; of an `AsyncMPClient`."""
    loop: asyncio.AbstractEventLoop | None = None
    """In which that task runs."""
    stop_reading: Callable[[], None] | None = None
    """Takes the output socket out of that loop."""
    notify: Callable[[], None] | None = None
    """Makes thread or task look what has changed."""
    utility_results: dict[int, AnyFuture] = field(default_factory=dict)
    """Of the utility calls under way, by their numbers."""
    cause_of_death: str | None = None
    """How the engine process ended, when it did by itself; outputs that it sent before may still be in the socket."""
    engine_dead: bool = False
    """Nothing more will come."""
    dead_message: str = "This engine has been shut down; make a new one."
    pid: int = field(default_factory=os.getpid)
    """Of the process that all this belongs to, and not to those that it forks."""

    def validate_alive(self, frames: list[zmq.Frame]) -> None:
        """Look whether this is an output.

        Raises:
            EngineDeadError: it is the engine core's last word instead.
        """
        if bytes(frames[0].buffer) == ENGINE_CORE_DEAD:
            why = bytes(frames[1].buffer).decode(errors="replace") if len(frames) > 1 else "it does not say why."
            self.declare_dead(f"The engine process EngineCore_0 cannot go on: {why}")
            raise self.dead_error()

    def declare_dead(self, message: str) -> None:
        """From now on every call is answered with this message."""
        if not self.engine_dead:
            self.dead_message, self.engine_dead = message, True

    def dead_error(self) -> EngineDeadError:
        """A new error for each caller: one that several threads raise would collect all their tracebacks."""
        return EngineDeadError(self.dead_message)

    def died_by_itself(self, how: str) -> None:
        """The process has ended and was not told to."""
        self.cause_of_death = (
            f"The engine process EngineCore_0 {how} while it was needed. Its requests are lost; make a new engine."
        )
        if self.notify is not None:
            self.notify()

    def fail_utility_calls(self) -> None:
        """Nobody will answer those that are under way."""
        with suppress(KeyError):  # none is left; several threads may be here at once
            while True:
                _, future = self.utility_results.popitem()
                if not future.done():
                    future.set_exception(self.dead_error())

    def __call__(self) -> None:
        """End everything. Safe to call from any thread, and more than once."""
        if os.getpid() != self.pid:
            return
        self.engine_dead = True
        with ExitStack() as steps:  # so that none is left out, even when Ctrl-C breaks one off; the last one goes first
            steps.callback(remove_socket_directory, self.directory)
            steps.callback(self._end_sockets)
            steps.callback(self._end_thread)
            if self.engine_manager is not None:
                steps.callback(self.engine_manager.close)

    def _end_thread(self) -> None:
        if self.output_queue_thread is not None and self.wake is not None:
            self.wake.close()
            if self.output_queue_thread is not threading.current_thread():
                self.output_queue_thread.join()

    def _end_sockets(self) -> None:
        loop = self.loop
        if loop is None or loop.is_closed():
            self._close_sockets()
        elif not loop.is_running() or _is_running_here(loop):
            self._end_task()
        else:
            try:
                loop.call_soon_threadsafe(self._end_task)
            except RuntimeError:  # just closed
                self._close_sockets()

    def _end_task(self) -> None:
        if self.stop_reading is not None:
            self.stop_reading()
        if self.output_queue_task is not None:
            self.output_queue_task.cancel()
        self.fail_utility_calls()
        self._close_sockets()

    def _close_sockets(self) -> None:
        with self.sending:
            for one in (self.input_socket, self.output_socket):
                if one is not None:
                    one.close(linger=0)
        self.ctx.term()


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
