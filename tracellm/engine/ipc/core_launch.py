"""Starts the process of the engine core, waits until it is ready, and ends it.

`MPClient.launch_core_engines` uses it, once, when the client is made. The process is *spawned*: a fresh Python, which
shares nothing with this one. Usually such a process imports the script that started it, which is why scripts that use
multiprocessing protect their code with `if __name__ == "__main__"`. Here they need not: while the process starts, an
empty module stands in for the script, so there is nothing to import.

vLLM: vllm/v1/engine/utils.py (CoreEngineProcManager, launch_core_engines, wait_for_engine_startup). Left out: several
engine cores, Ray, waiting with a log line now and then.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from tracellm.engine.config.errors import EngineDeadError, EngineError
from tracellm.engine.config.libraries import import_libraries
from tracellm.engine.entrypoints.interrupts import deferred_interrupts
from tracellm.engine.ipc.handshake import (
    EngineHandshakeMetadata,
    EngineZmqAddresses,
    engine_identity,
    kv_cache_config_of,
    startup_error,
)

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
    from tracellm.engine.executor.abstract import Executor

__all__ = ["CoreEngineProcManager", "wait_for_engine_startup"]

_PATIENCE = 5.0  # seconds that a process has to end by itself
_GLANCE = 200  # milliseconds after which a start that is waited for is looked up from
_LAST_WORDS = 200  # milliseconds in which what a dead process has sent is certainly here
_starting = threading.Lock()


class CoreEngineProcManager:
    """The process of the engine core, from its start to its end."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        executor_class: type[Executor],
        log_stats: bool,
        handshake_address: str,
        directory: str,
    ) -> None:
        import torch

        settings = {
            "vllm_config": vllm_config,
            "local_client": True,
            "handshake_address": handshake_address,
            "executor_class": executor_class,
            "log_stats": log_stats,
            "engine_index": 0,
        }
        self.process = multiprocessing.get_context("spawn").Process(
            target=_engine_core_process,
            name="EngineCore_0",
            args=(pickle.dumps(settings), directory, torch.get_num_threads()),
        )

    def start(self) -> None:
        """Start the process. Who calls this must know of the manager before: a Ctrl-C takes effect right after it.

        Raises:
            EngineError: this process may not start others.
        """
        if multiprocessing.current_process().daemon:
            raise EngineError(
                "The engine core cannot have a process of its own here: this process is a daemonic one of Python's "
                "multiprocessing (those of a Pool are), and may not start others. Use multiprocess_mode=False, or "
                "Process(daemon=False)."
            )
        with deferred_interrupts(), _nothing_to_import(), _ctrl_c_is_for_the_parent():
            self.process.start()

    @property
    def sentinel(self) -> int:
        """A file descriptor that becomes readable when the process ends."""
        return self.process.sentinel

    def wait_for_end(self) -> str:
        """Wait until the process has ended; how it did, as the end of a sentence."""
        wait([self.process.sentinel])
        self.process.join()
        return self.describe_end()

    def describe_end(self) -> str:
        """How the process ended: `was killed by SIGKILL`, `ended with exit code 1`."""
        code = self.process.exitcode
        if code == 0:
            return "was ended by SIGTERM"  # the only way to 0
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    def close(self) -> None:
        """End the process: politely, then by force, and at once by force when Ctrl-C does not let it wait. It has ended
        when this returns.
        """
        if self.process.pid is None:  # never started
            return
        try:
            if self.process.is_alive():
                self.process.terminate()
                self.process.join(_PATIENCE)
        finally:
            if self.process.is_alive():
                self.process.kill()
            self.process.join()


def _engine_core_process(pickled_settings: bytes, directory: str, num_threads: int) -> None:
    """What the new process runs."""
    import_libraries("torch")  # first: the settings hold a dtype, and unpickling them would import it unseen
    settings: dict[str, Any] = pickle.loads(pickled_settings)
    import torch

    from tracellm.engine.core.core_proc import EngineCoreProc

    if torch.get_num_threads() != num_threads:  # the order of sums, and so their last bits, depend on it
        torch.set_num_threads(num_threads)
    EngineCoreProc.run_engine_core(directory=directory, **settings)


@contextmanager
def _nothing_to_import() -> Iterator[None]:
    """An empty `__main__` for as long as a process is being started; one at a time, whichever thread starts it."""
    with _starting:
        script = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


@contextmanager
def _ctrl_c_is_for_the_parent() -> Iterator[None]:
    """Start a process that is deaf to Ctrl-C, which reaches all processes of a terminal, until it says what it wants.

    Blocked signals stay blocked in a child. `EngineCoreProc.run_engine_core` ignores this one and unblocks it.
    """
    resource_tracker.ensure_running()  # it would be started with the first process, and unblock the signal
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def wait_for_engine_startup(
    handshake_socket: zmq.Socket[bytes], addresses: EngineZmqAddresses, manager: CoreEngineProcManager
) -> KVCacheConfig:
    """Be the client's part of the handshake (handshake.py), however long loading the model takes.

    Returns:
        What the engine core's KV cache looks like.

    Raises:
        EngineError: the engine core's own, such as a `ModelLoadError`.
        EngineDeadError: the process ended before it was ready; it has said more on stderr.
        asyncio.CancelledError: this is inside a task, which has been cancelled meanwhile.
    """
    poller = zmq.Poller()
    poller.register(handshake_socket, zmq.POLLIN)
    poller.register(manager.sentinel, zmq.POLLIN)
    while True:
        while not (events := poller.poll(_GLANCE)):
            _raise_if_cancelled()
        spoken = any(source is handshake_socket for source, _ in events)
        if not spoken and not handshake_socket.poll(_LAST_WORDS):
            raise EngineDeadError(
                f"The engine process EngineCore_0 {manager.wait_for_end()} before it was ready. If it could still "
                "say why, that is printed above."
            )
        identity, *frames = handshake_socket.recv_multipart()
        if identity != engine_identity(0):
            continue  # somebody else has found the socket
        message = msgspec.msgpack.decode(b"".join(frames))
        if message["status"] == "HELLO":
            answer = EngineHandshakeMetadata(addresses)
            handshake_socket.send_multipart((identity, msgspec.msgpack.encode(answer)))
        elif message["status"] == "READY":
            return kv_cache_config_of(message)
        else:
            manager.process.join(_PATIENCE)  # told to end, it would not print its traceback
            raise startup_error(message) or EngineDeadError(
                f"The engine process EngineCore_0 could not start: {message['message']}. This is an error in tracellm "
                "or in a library; the process has printed its traceback above."
            )


def _raise_if_cancelled() -> None:
    """For an engine that is made inside a task: nothing else can run there now, so Ctrl-C would only be noted, and take
    effect when the engine is ready (`asyncio.run` makes it cancel the task).
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
