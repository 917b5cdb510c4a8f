"""Launching the engine core's process: start, handshake, socket directory and end.

`MPClient` uses it once, when it is created. The process is *spawned*: a new Python interpreter that shares no memory
with this one. It sends HELLO as soon as it runs, and the client answers with the socket addresses
(`EngineHandshakeMetadata`). The engine core loads the model and sends READY with its KV cache, or FAILED with its
error, which the client raises as its own.

vLLM: vllm/v1/engine/utils.py (CoreEngineProcManager, launch_core_engines, wait_for_engine_startup) and
EngineCoreProc.startup_handshake. Left out: several engine cores, Ray, log lines while waiting. Added: FAILED; the KV
cache in READY, by which a client refuses impossible requests; the socket directory. vLLM's sockets are files in the
folder for temporary files.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import shutil
import signal
import tempfile
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from tracellm.engine.config.errors import (
    EngineDeadError,
    EngineError,
    InvalidRequestError,
    ModelLoadError,
    format_error,
)
from tracellm.engine.config.libraries import import_libraries
from tracellm.engine.core.kv_cache.kv_cache_interface import (
    AttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from tracellm.engine.entrypoints.interrupts import deferred_interrupts
from tracellm.engine.ipc.spawn import EngineProcess, describe_exit, sigint_blocked

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.executor.abstract import Executor

__all__ = [
    "ENGINE_CORE_DEAD",
    "CoreEngineProcManager",
    "EngineHandshakeMetadata",
    "EngineZmqAddresses",
    "engine_identity",
    "failed_message",
    "make_socket_directory",
    "poll_unless_cancelled",
    "read_failed_message",
    "read_ready_message",
    "ready_message",
    "remove_socket_directory",
    "wait_for_engine_startup",
]

ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"
"""Sent instead of outputs when the engine core has failed. A second frame has the error message; vLLM sends none."""

POLL_INTERVAL_MS = 200
"""Interval at which `poll_unless_cancelled` checks for cancellation."""
_END_TIMEOUT = 5.0
"""Seconds that the process has to end by itself."""
_DRAIN_TIMEOUT_MS = 200
"""Time after which everything that a dead process had sent has arrived."""
_MAX_DIRECTORY_LENGTH = 70
"""Characters; the address of an ipc socket may have 107."""

# -- the process ------------------------------------------------------------------------------------------------------


class CoreEngineProcManager:
    """The process of the engine core, from its start to its end. Owned by the client."""

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
        self.process = EngineProcess(
            target=_engine_core_process,
            name="EngineCore_0",
            args=(pickle.dumps(settings), directory, torch.get_num_threads()),
        )

    def start(self) -> None:
        """Start the process. The caller must hold the manager first, because Ctrl-C may raise as soon as this returns.

        Raises:
            EngineError: this process may not start others.
        """
        if multiprocessing.current_process().daemon:
            raise EngineError(
                "The engine core cannot have a process of its own here: this process is a daemonic one of Python's "
                "multiprocessing (those of a Pool are), and may not start others. Use multiprocess_mode=False, or "
                "Process(daemon=False)."
            )
        # A process that is interrupted here leaves a child without its work, which ends with a traceback.
        with deferred_interrupts(), deferred_interrupts(signal.SIGTERM), sigint_blocked():
            self.process.start()

    @property
    def sentinel(self) -> int:
        """A file descriptor that becomes readable when the process ends."""
        return self.process.sentinel

    def wait_for_end(self) -> str:
        """Wait until the process has ended, and return `describe_end`."""
        wait([self.process.sentinel])
        self.process.join()
        return self.describe_end()

    def describe_end(self) -> str:
        """See `describe_exit`."""
        return describe_exit(self.process)

    def close(self) -> None:
        """End the process: by SIGTERM, then by SIGKILL after a timeout or a Ctrl-C. Return when it has ended."""
        if self.process.pid is None:  # never started
            return
        try:
            if self.process.is_alive():
                self.process.terminate()
                self.process.join(_END_TIMEOUT)
        finally:
            if self.process.is_alive():
                self.process.kill()
            self.process.join()


def _engine_core_process(pickled_settings: bytes, directory: str, num_threads: int) -> None:
    """Run the engine core; the main function of the new process."""
    import_libraries("torch")  # first: unpickling the settings would import it with the garbage collector running
    settings: dict[str, Any] = pickle.loads(pickled_settings)
    import torch

    from tracellm.engine.core.core_proc import EngineCoreProc

    if torch.get_num_threads() != num_threads:  # it determines the order of sums, and so their last bits
        torch.set_num_threads(num_threads)
    EngineCoreProc.run_engine_core(directory=directory, **settings)


# -- the handshake ----------------------------------------------------------------------------------------------------

_SPECS: dict[str, type[AttentionSpec]] = {spec.__name__: spec for spec in (FullAttentionSpec, SlidingWindowSpec)}
_ERRORS: dict[str, type[EngineError]] = {
    error.__name__: error for error in (EngineError, InvalidRequestError, ModelLoadError)
}


def engine_identity(engine_index: int) -> bytes:
    """Return the identity of an engine core on the client's ROUTER sockets."""
    return engine_index.to_bytes(2, byteorder="little")


@dataclass
class EngineZmqAddresses:
    """Socket addresses, one of each kind per client."""

    inputs: list[str]
    """Requests, from client to engine core."""
    outputs: list[str]
    """Outputs, from engine core to client."""


@dataclass
class EngineHandshakeMetadata:
    """The client's answer to HELLO."""

    addresses: EngineZmqAddresses
    parallel_config: dict[str, int | str] = field(default_factory=dict)
    """For data parallelism: empty."""


def ready_message(kv_cache_config: KVCacheConfig, local_client: bool) -> bytes:
    """Encode READY, with the KV cache."""
    groups = []
    for group in kv_cache_config.kv_cache_groups:
        spec = group.kv_cache_spec
        fields = asdict(spec) | {"dtype": str(spec.dtype).removeprefix("torch.")}
        groups.append({"kind": type(spec).__name__, "layer_names": group.layer_names, "spec": fields})
    ready = {
        "status": "READY",
        "local": local_client,
        "headless": not local_client,
        "num_gpu_blocks": kv_cache_config.num_blocks,
        "dp_stats_address": None,
        "kv_cache_groups": groups,
    }
    return msgspec.msgpack.encode(ready)


def read_ready_message(ready: dict[str, Any]) -> KVCacheConfig:
    """Return the KV cache in a READY message, without its tensors."""
    import torch

    groups = [
        KVCacheGroupSpec(
            group["layer_names"],
            _SPECS[group["kind"]](**group["spec"] | {"dtype": getattr(torch, group["spec"]["dtype"])}),
        )
        for group in ready["kv_cache_groups"]
    ]
    return KVCacheConfig(num_blocks=ready["num_gpu_blocks"], kv_cache_tensors=[], kv_cache_groups=groups)


def failed_message(error: BaseException) -> bytes:
    """Encode FAILED, with the error of the start-up."""
    kind = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS), None)
    return msgspec.msgpack.encode({"status": "FAILED", "error": kind, "message": format_error(error)})


def read_failed_message(failed: dict[str, Any]) -> EngineError | None:
    """Return the error in a FAILED message as in a single process, or None if it is not an `EngineError`."""
    return _ERRORS[failed["error"]](failed["message"]) if failed["error"] else None


def wait_for_engine_startup(
    handshake_socket: zmq.Socket[bytes], addresses: EngineZmqAddresses, manager: CoreEngineProcManager
) -> KVCacheConfig:
    """Perform the client's part of the handshake, waiting as long as the engine core takes to load the model.

    Returns:
        The engine core's KV cache, without its tensors.

    Raises:
        EngineError: the engine core's own error, such as a `ModelLoadError`.
        EngineDeadError: the process ended before it was ready, or failed otherwise; stderr has more.
        asyncio.CancelledError: the task that runs this was cancelled.
    """
    poller = zmq.Poller()
    poller.register(handshake_socket, zmq.POLLIN)
    poller.register(manager.sentinel, zmq.POLLIN)
    while True:
        received = any(source is handshake_socket for source, _ in poll_unless_cancelled(poller))
        if not received and not handshake_socket.poll(_DRAIN_TIMEOUT_MS):
            raise EngineDeadError(
                f"The engine process EngineCore_0 {manager.wait_for_end()} before it was ready. If it could still "
                "say why, that is printed above."
            )
        identity, *frames = handshake_socket.recv_multipart()
        if identity != engine_identity(0):
            continue  # from another program
        message = msgspec.msgpack.decode(b"".join(frames))
        if message["status"] == "HELLO":
            answer = EngineHandshakeMetadata(addresses)
            handshake_socket.send_multipart((identity, msgspec.msgpack.encode(answer)))
        elif message["status"] == "READY":
            return read_ready_message(message)
        else:
            manager.process.join(_END_TIMEOUT)  # let it print its traceback before it is terminated
            raise read_failed_message(message) or EngineDeadError(
                f"The engine process EngineCore_0 could not start: {message['message']}. This is an error in tracellm "
                "or in a library; the process has printed its traceback above."
            )


def poll_unless_cancelled(poller: zmq.Poller) -> list[tuple[Any, int]]:
    """Wait for events, as `poller.poll()` does, as long as this task is not cancelled.

    An engine created inside a task blocks the event loop. Ctrl-C then only cancels the task (`asyncio.run`), and would
    take effect when the engine is ready.

    Raises:
        asyncio.CancelledError: the task that runs this was cancelled.
    """
    while not (events := poller.poll(POLL_INTERVAL_MS)):
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no event loop in this thread
            continue
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
    return events


# -- the directory of the sockets -------------------------------------------------------------------------------------


def make_socket_directory() -> str:
    """Create a directory for a client's sockets that only this user may enter."""
    folder = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="tracellm-", dir=folder if len(folder) < _MAX_DIRECTORY_LENGTH else "/tmp")


def remove_socket_directory(directory: str) -> None:
    """Remove the directory of the sockets, unless the other process has done so."""
    if Path(directory).is_dir():
        shutil.rmtree(directory, ignore_errors=True)
