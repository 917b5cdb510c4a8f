"""Launching the processes of the engine cores: start, handshake, socket directory and end.

`MPClient` uses it once, when it is created. There is one engine core, or `data_parallel_size` of them with a
coordinator. Each process is *spawned*: a new Python interpreter that shares no memory with this one. An engine core
sends HELLO as soon as it runs, and the client answers with the socket addresses (`EngineHandshakeMetadata`). It loads
the model and sends READY with its KV cache, or FAILED with its error, which the client raises as its own.

vLLM: vllm/v1/engine/utils.py (CoreEngineProcManager, launch_core_engines, wait_for_engine_startup) and
EngineCoreProc.startup_handshake. Left out: engine cores on other machines, Ray, log lines while waiting. Added: FAILED;
the KV cache in READY, by which a client refuses impossible requests; the socket directory. vLLM's sockets are files in
the folder for temporary files.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import shutil
import signal
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from tracellm.engine.config.cpu_threads import count_threads
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
from tracellm.engine.ipc.coordinator import run_coordinator
from tracellm.engine.ipc.spawn import EngineProcess, describe_exit, end_with_parent, sigint_blocked

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
"""Sent instead of outputs when the engine core has failed.

Further frames have the error message and the name of the process; vLLM sends none.
"""

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
    """The processes of the engine cores and their coordinator, from start to end. Owned by the client.

    Attributes:
        processes: the engine cores in the order of their indexes; with several, the coordinator is the last.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        executor_class: type[Executor],
        log_stats: bool,
        handshake_address: str,
        directory: str,
        num_reserved_cores: int = 0,
    ) -> None:
        num_engines = vllm_config.parallel_config.data_parallel_size
        num_threads = max(1, count_threads(num_reserved_cores) // num_engines)
        self._close_lock = threading.Lock()
        self.processes: list[EngineProcess] = []
        for index in range(num_engines):
            config = vllm_config.with_data_parallel_rank(index, f"file://{directory}/dp_group")
            settings = {
                "vllm_config": config,
                "local_client": True,
                "handshake_address": handshake_address,
                "executor_class": executor_class,
                "log_stats": log_stats,
                "engine_index": index,
            }
            args = (pickle.dumps(settings), directory, num_threads)
            name = config.parallel_config.engine_name
            self.processes.append(EngineProcess(target=_engine_core_process, name=name, args=args))
        if num_engines > 1:
            addresses = EngineZmqAddresses.in_directory(directory, num_engines)
            self.processes.append(
                EngineProcess(target=run_coordinator, name="DP_Coordinator", args=(num_engines, addresses))
            )

    def start(self) -> None:
        """Start the processes.

        The caller must hold the manager first, because Ctrl-C may raise as soon as this returns.

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
            for process in self.processes:
                process.start()

    @property
    def sentinels(self) -> list[int]:
        """File descriptors, of which one becomes readable when its process ends."""
        return [process.sentinel for process in self.processes]

    def wait_for_end(self) -> str:
        """Wait until one of the processes has ended, and return which one and how: `EngineCore_0 was killed by ...`."""
        ended = wait(self.sentinels)
        process = next(process for process in self.processes if process.sentinel in ended)
        process.join()
        return f"{process.name} {describe_exit(process)}"

    def close(self) -> None:
        """End the processes: by SIGTERM, then by SIGKILL after a timeout or a Ctrl-C. Return when they have ended."""
        started = [process for process in self.processes if process.pid is not None]
        with self._close_lock:  # of several threads, the first ends the processes
            try:
                for process in started:
                    process.terminate()
                deadline = time.monotonic() + _END_TIMEOUT
                for process in started:
                    process.join(max(0.0, deadline - time.monotonic()))
            finally:
                for process in started:
                    if process.is_alive():
                        process.kill()
                    process.join()


def _engine_core_process(pickled_settings: bytes, directory: str, num_threads: int) -> None:
    """Run the engine core; the main function of the new process."""
    end_with_parent(partial(remove_socket_directory, directory))
    import_libraries("torch")  # first: unpickling the settings would import it with the garbage collector running
    settings: dict[str, Any] = pickle.loads(pickled_settings)
    import torch

    from tracellm.engine.core.core_proc import EngineCoreProc
    from tracellm.engine.core.dp_core_proc import DPEngineCoreProc

    if torch.get_num_threads() != num_threads:  # it determines the order of sums, and so their last bits
        torch.set_num_threads(num_threads)
    several = settings["vllm_config"].parallel_config.data_parallel_size > 1
    (DPEngineCoreProc if several else EngineCoreProc).run_engine_core(directory=directory, **settings)


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
    """Socket addresses: one input and output per client, and those of the coordinator of several engine cores."""

    inputs: list[str]
    """Requests, from client to engine core."""
    outputs: list[str]
    """Outputs, from engine core to client."""
    coordinator_input: str | None = None
    """Starts of waves, from coordinator to engine cores."""
    coordinator_output: str | None = None
    """Numbers of requests and ends of waves, from engine core to coordinator."""
    frontend_stats_publish_address: str | None = None
    """Both, from coordinator to client; first requests of waves, from client to coordinator."""

    @classmethod
    def in_directory(cls, directory: str, num_engines: int) -> EngineZmqAddresses:
        """Return the addresses of sockets in a directory."""
        addresses = cls([f"ipc://{directory}/input"], [f"ipc://{directory}/output"])
        if num_engines > 1:
            addresses.coordinator_input = f"ipc://{directory}/coordinator_input"
            addresses.coordinator_output = f"ipc://{directory}/coordinator_output"
            addresses.frontend_stats_publish_address = f"ipc://{directory}/stats"
        return addresses


@dataclass
class EngineHandshakeMetadata:
    """The client's answer to HELLO."""

    addresses: EngineZmqAddresses
    parallel_config: dict[str, int | str] = field(default_factory=dict)
    """For engine cores on other machines: empty."""


def ready_message(kv_cache_config: KVCacheConfig, local_client: bool, dp_stats_address: str | None = None) -> bytes:
    """Encode READY, with the KV cache and the coordinator's address for clients."""
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
        "dp_stats_address": dp_stats_address,
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
    handshake_socket: zmq.Socket[bytes],
    addresses: EngineZmqAddresses,
    core_engines: list[bytes],
    manager: CoreEngineProcManager,
) -> list[KVCacheConfig]:
    """Perform the client's part of the handshake, waiting as long as the engine cores take to load the model.

    Returns:
        The KV cache of each engine core, without its tensors.

    Raises:
        EngineError: an engine core's own error, such as a `ModelLoadError`.
        EngineDeadError: a process ended before it was ready, or failed otherwise; stderr has more.
        asyncio.CancelledError: the task that runs this was cancelled.
    """
    ready: dict[bytes, KVCacheConfig] = {}
    poller = zmq.Poller()
    poller.register(handshake_socket, zmq.POLLIN)
    for sentinel in manager.sentinels:
        poller.register(sentinel, zmq.POLLIN)
    while len(ready) < len(core_engines):
        received = any(source is handshake_socket for source, _ in poll_unless_cancelled(poller))
        if not received and not handshake_socket.poll(_DRAIN_TIMEOUT_MS):
            raise EngineDeadError(
                f"The engine process {manager.wait_for_end()} before it was ready. Its error, if it printed one, "
                "is above."
            )
        identity, *frames = handshake_socket.recv_multipart()
        if identity not in core_engines:
            continue  # from another program
        message = msgspec.msgpack.decode(b"".join(frames))
        if message["status"] == "HELLO":
            answer = EngineHandshakeMetadata(addresses)
            handshake_socket.send_multipart((identity, msgspec.msgpack.encode(answer)))
        elif message["status"] == "READY":
            ready[identity] = read_ready_message(message)
        else:
            process = manager.processes[core_engines.index(identity)]
            process.join(_END_TIMEOUT)  # let it print its traceback before it is terminated
            raise read_failed_message(message) or EngineDeadError(
                f"The engine process {process.name} could not start: {message['message']}. This is an error in "
                "tracellm or in a library; the process has printed its traceback above."
            )
    return [ready[identity] for identity in core_engines]


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
