"""What the clients of an engine core in another process have in common: process and sockets, and watching over them.

`SyncMPClient` and `AsyncMPClient` (mp_client.py) add how outputs are waited for. The sockets are files in a directory
that only this user may enter. `core_launch.py` starts the process, core_proc.py is what runs there, serial_utils.py
turns messages into bytes, mp_resources.py ends it all.

vLLM: vllm/v1/engine/core_client.py::MPClient. Left out: data parallelism, engine cores on other machines. Otherwise
than there: what the KV cache can never hold is refused before it is sent.
"""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import threading
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import zmq

from tracellm.engine.config.errors import EngineDeadError, EngineError, InvalidRequestError
from tracellm.engine.core.kv_cache.kv_cache_utils import check_request_fits
from tracellm.engine.ipc.core_client import EngineCoreClient
from tracellm.engine.ipc.core_launch import CoreEngineProcManager, wait_for_engine_startup
from tracellm.engine.ipc.handshake import EngineZmqAddresses, engine_identity
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest, EngineCoreRequestType
from tracellm.engine.ipc.mp_resources import AnyFuture, BackgroundResources
from tracellm.engine.ipc.serial_utils import MsgpackDecoder, MsgpackEncoder, bytestr
from tracellm.engine.ipc.socket_directory import make_socket_directory

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
    from tracellm.engine.executor.abstract import Executor

__all__ = ["MPClient"]


class MPClient(EngineCoreClient):
    """What both have in common: the process, the sockets, and watching over them."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        executor_class: type[Executor],
        log_stats: bool,
    ) -> None:
        """Start the engine core, and wait until it is ready.

        Args:
            vllm_config: all settings; the number of KV blocks is written into it.
            executor_class: what runs the model there.
            log_stats: should times and statistics be kept?

        Raises:
            EngineError: the engine core's own, such as a `ModelLoadError`.
            EngineDeadError: its process ended before it was ready.
        """
        self.vllm_config = vllm_config
        self.encoder = MsgpackEncoder()
        self.decoder = MsgpackDecoder(EngineCoreOutputs)
        self.ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.resources = BackgroundResources(self.ctx, make_socket_directory())
        self._finalizer = weakref.finalize(self, self.resources)
        # Before multiprocessing, which would wait for the process, and for ever. Its own children know no atexit.
        atexit.register(self._finalizer)
        self._at_exit = multiprocessing.util.Finalize(None, self._finalizer, exitpriority=0)
        self.utility_results: dict[int, AnyFuture] = self.resources.utility_results
        self.kv_cache_config: KVCacheConfig | None = None
        """The engine core's KV cache, for refusing what it can never hold; None until it is ready."""
        self.pending_messages: deque[tuple[zmq.MessageTracker, Any]] = deque()
        self._aborted: Counter[str] = Counter()
        """Of each request id, the aborts that the engine core has not confirmed."""
        try:
            addresses = {name: f"ipc://{self.resources.directory}/{name}" for name in ("input", "output")}
            self.input_socket = self.resources.input_socket = self._bind(zmq.ROUTER, addresses["input"])
            self.resources.output_socket = self._bind(zmq.PULL, addresses["output"])
            self.launch_core_engines(
                EngineZmqAddresses([addresses["input"]], [addresses["output"]]), executor_class, log_stats
            )
            self.core_engine = self._await_first_message()
            self.start_engine_core_monitor()
        except BaseException:
            self.shutdown()
            raise

    def _bind(self, kind: int, address: str) -> zmq.Socket[bytes]:
        bound = self.ctx.socket(kind)
        bound.set_hwm(0)  # no bound on what may wait in a socket: nobody is blocked, nothing is dropped
        bound.linger = 0
        bound.bind(address)
        return bound

    def launch_core_engines(
        self, addresses: EngineZmqAddresses, executor_class: type[Executor], log_stats: bool
    ) -> None:
        """Start the process of the engine core, and wait until it is ready."""
        handshake_address = f"ipc://{self.resources.directory}/handshake"
        with self._bind(zmq.ROUTER, handshake_address) as handshake_socket:
            manager = CoreEngineProcManager(
                self.vllm_config, executor_class, log_stats, handshake_address, self.resources.directory
            )
            self.resources.engine_manager = manager
            manager.start()
            self.kv_cache_config = wait_for_engine_startup(handshake_socket, addresses, manager)
        self.vllm_config.cache_config.num_gpu_blocks = self.kv_cache_config.num_blocks

    def _await_first_message(self) -> bytes:
        """Wait for the engine core in the input socket, which knows it from then on. Returns who it is.

        Raises:
            EngineDeadError: its process has ended.
        """
        poller = zmq.Poller()
        poller.register(self.input_socket, zmq.POLLIN)
        manager = self.resources.engine_manager
        assert manager is not None
        poller.register(manager.sentinel, zmq.POLLIN)
        while True:
            if not any(source is self.input_socket for source, _ in poller.poll()):
                raise EngineDeadError(
                    f"The engine process EngineCore_0 {manager.wait_for_end()} as soon as it was ready."
                )
            identity, *_ = self.input_socket.recv_multipart()
            if identity == engine_identity(0):  # else somebody else has found the socket
                return identity

    def shutdown(self) -> None:
        """End the engine core and give everything back; afterwards every call raises `EngineDeadError`."""
        atexit.unregister(self._finalizer)
        self._at_exit.cancel()
        self._finalizer()

    def ensure_alive(self) -> None:
        """Raise `EngineDeadError` when the engine core has died or was shut down, or is another process's."""
        if os.getpid() != self.resources.pid:  # whose messages would be mixed up with ours
            raise EngineDeadError(
                f"This engine belongs to the process {self.resources.pid}, from which this one ({os.getpid()}) was "
                "forked: only that one can use it. Make an engine here, or send the prompts there."
            )
        if self.resources.engine_dead:
            raise self.resources.dead_error()

    def start_engine_core_monitor(self) -> None:
        """Watch the process from a thread, which tells those who wait when it ends without having been told to."""
        resources, manager = self.resources, self.resources.engine_manager
        assert manager is not None

        def monitor_engine_cores() -> None:
            how = manager.wait_for_end()
            if not resources.engine_dead:
                resources.died_by_itself(how)

        threading.Thread(target=monitor_engine_cores, daemon=True, name="MPClientEngineMonitor").start()

    def _validate(self, request: EngineCoreRequest) -> None:
        """Refuse what the engine core would refuse, as `EngineCore.preprocess_add_request` does."""
        max_tokens = request.sampling_params.max_tokens
        assert max_tokens is not None, "the Processor fills it in"
        assert self.kv_cache_config is not None
        check_request_fits(
            request.request_id, len(request.prompt_token_ids), max_tokens, self.vllm_config, self.kv_cache_config
        )

    def _without_aborted(self, outputs: EngineCoreOutputs) -> EngineCoreOutputs:
        """Leave out what steps had brought for requests before the engine core knew that they are given up.

        Their ids may be in use again, and nothing else tells the outputs of the old one from those of the new one. vLLM
        0.11.1 mixes them up.
        """
        with self.resources.sending:
            for request_id in outputs.finished_requests or ():
                self._aborted[request_id] -= 1
                if self._aborted[request_id] <= 0:
                    del self._aborted[request_id]
            if self._aborted:
                outputs.outputs = [output for output in outputs.outputs if output.request_id not in self._aborted]
        return outputs

    def _encode_request(self, request: EngineCoreRequest) -> Sequence[bytestr]:
        self._validate(request)
        try:
            return self.encoder.encode(request)
        except EngineError as error:
            raise InvalidRequestError(str(error)) from None

    def _send_input_message(self, request_type: EngineCoreRequestType, frames: Sequence[bytestr], objects: Any) -> None:
        """Send frames. It never waits, as the socket takes any number of messages.

        Args:
            request_type: what the message is about.
            frames: the message.
            objects: to be kept until the frames are sent, because these may be its memory.
        """
        self.ensure_alive()
        if request_type is EngineCoreRequestType.ABORT:
            self._aborted.update(objects)
        while self.pending_messages and self.pending_messages[-1][0].done:
            self.pending_messages.pop()
        message = (self.core_engine, request_type.value, *frames)
        if len(frames) == 1:
            self.input_socket.send_multipart(message, copy=False)
            return
        tracker = self.input_socket.send_multipart(message, copy=False, track=True)
        assert tracker is not None
        if not tracker.done:
            self.pending_messages.appendleft((tracker, objects))
