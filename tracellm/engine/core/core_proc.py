"""The engine core in a process of its own: the same step, between two queues that threads connect to sockets.

    client ── input socket ──> thread process_input_sockets ── input_queue ──> run_busy_loop: steps
    client <─ output socket ── thread process_output_sockets <── output_queue ──┘

The step loop never waits for a socket: requests are decoded, and outputs encoded, while the model computes.
ipc/launch.py starts the process and defines the handshake; the client, at the other end of the sockets, is in
ipc/mp_client.py.

vLLM: vllm/v1/engine/core.py::EngineCoreProc. Left out: several clients of one engine core.
Differences: SIGINT is ignored, because the client handles Ctrl-C; aborts are confirmed, so a client can reuse an id;
malformed messages are refused; the process ends when its parent dies; utility calls reach only `UTILITY_METHODS`; the
client receives the message of a fatal error.
"""

from __future__ import annotations

import gc
import logging
import queue
import signal
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from tracellm.engine.config.errors import EngineError, first_line, format_error
from tracellm.engine.core.core import EngineCore
from tracellm.engine.core.request import Request
from tracellm.engine.ipc.launch import (
    ENGINE_CORE_DEAD,
    EngineHandshakeMetadata,
    EngineZmqAddresses,
    engine_identity,
    failed_message,
    ready_message,
    remove_socket_directory,
)
from tracellm.engine.ipc.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineCoreRequestType,
    FinishReason,
    UtilityOutput,
    UtilityResult,
)
from tracellm.engine.ipc.serial_utils import MsgpackDecoder, MsgpackEncoder
from tracellm.engine.ipc.spawn import exit_silently

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.executor.abstract import Executor

__all__ = ["EngineCoreProc"]

logger = logging.getLogger(__name__)

_LINGER_MS = 4000
"""Milliseconds that the last messages have to leave the process."""
_MAX_REUSE_BUFFERS = 2

_MESSAGE_TYPES: dict[EngineCoreRequestType, Any] = {
    EngineCoreRequestType.ABORT: list[str],
    EngineCoreRequestType.UTILITY: tuple[int, int, str, list[Any]],
}
"""Contents of the client's messages other than ADD."""
_COORDINATOR_TYPES: dict[EngineCoreRequestType, Any] = {
    EngineCoreRequestType.START_DP_WAVE: tuple[int, int | None],
}
"""Contents of the coordinator's messages."""


class _InputDecoder:
    """Decodes and checks the messages of the clients. Not thread-safe.

    A malformed message raises an `EngineError` and is dropped: one client's mistake must not end the requests of
    others. In vLLM such a message ends the input thread.
    """

    def __init__(self, num_clients: int) -> None:
        self.num_clients = num_clients
        self._requests = MsgpackDecoder(EngineCoreRequest)
        self._generic = MsgpackDecoder()

    def decode(
        self, frames: Sequence[zmq.Frame], types: Mapping[EngineCoreRequestType, Any] = _MESSAGE_TYPES
    ) -> tuple[EngineCoreRequestType, Any]:
        """Return the type of the message and its content; for ADD an `EngineCoreRequest`.

        Raises:
            EngineError: the message is malformed.
        """
        type_frame, *data_frames = frames
        type_bytes = bytes(type_frame.buffer)
        is_add = type_bytes == EngineCoreRequestType.ADD.value and types is _MESSAGE_TYPES
        if not data_frames or not (is_add or any(type_bytes == member.value for member in types)):
            raise EngineError(f"the first of its {len(frames)} frames, {type_bytes[:16]!r}, is not a message type")
        request_type = EngineCoreRequestType(type_bytes)
        if is_add:
            request: EngineCoreRequest = self._requests.decode(data_frames)
            self._check_client(request.client_index)
            return request_type, request
        try:
            message = msgspec.convert(self._generic.decode(data_frames), types[request_type])
        except msgspec.ValidationError as error:
            raise EngineError(f"the content of {request_type.name} is invalid: {first_line(error)}") from None
        if request_type is EngineCoreRequestType.UTILITY:
            self._check_client(message[0])
        return request_type, message

    def _check_client(self, client_index: int) -> None:
        if not 0 <= client_index < self.num_clients:
            raise EngineError(f"its client index is {client_index}, and there are {self.num_clients} clients")


class EngineCoreProc(EngineCore):
    """An `EngineCore` behind two sockets, in a process started by `CoreEngineProcManager`."""

    ENGINE_CORE_DEAD = ENGINE_CORE_DEAD

    UTILITY_METHODS: tuple[str, ...] = (
        "get_supported_tasks",
        "reset_prefix_cache",
        "get_request_counts",
        "get_num_free_blocks",
    )
    """Methods that a client may call by name."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        local_client: bool,
        handshake_address: str,
        executor_class: type[Executor],
        log_stats: bool,
        engine_index: int = 0,
    ) -> None:
        """Load the model and start the socket threads.

        Args:
            vllm_config: all settings.
            local_client: whether the client is on this machine; always True.
            handshake_address: the client's socket for the handshake.
            executor_class: the class that runs the model.
            log_stats: whether to collect statistics.
            engine_index: the number of this engine core, part of its outputs and its socket identity.
        """
        self.shutdown_requested = False
        # A SimpleQueue is reentrant: the SIGTERM handler puts into it, possibly while the busy loop uses it.
        self.input_queue: queue.SimpleQueue[tuple[EngineCoreRequestType, Any]] = queue.SimpleQueue()
        self.output_queue: queue.Queue[tuple[int, EngineCoreOutputs] | tuple[bytes, bytes] | None] = queue.Queue()
        self.aborted: list[str] = []
        """Aborted requests to confirm in `EngineCoreOutputs.finished_requests`."""
        identity = engine_identity(engine_index)
        with self._perform_handshakes(handshake_address, identity, local_client) as addresses:
            self._init_data_parallel(vllm_config)
            super().__init__(vllm_config, executor_class, log_stats)
            # A long-running process should fail at start-up, not when the KV cache fills.
            self.model_executor.collective_rpc("prefault_kv_cache")
            gc.collect()
            gc.freeze()  # exclude the objects of the start-up, which stay, from later collections
            self._stop_sender, self._stop_receiver = socket.socketpair()  # closing one end ends the input thread
            ready_event = threading.Event()
            self.input_thread = threading.Thread(
                target=self.process_input_sockets,
                args=(addresses.inputs, addresses.coordinator_input, identity, ready_event),
                name="process_input_sockets",
                daemon=True,
            )
            self.input_thread.start()
            self.output_thread = threading.Thread(
                target=self.process_output_sockets,
                args=(addresses.outputs, addresses.coordinator_output, engine_index),
                name="process_output_sockets",
                daemon=True,
            )
            self.output_thread.start()
            ready_event.wait()

    def _init_data_parallel(self, vllm_config: VllmConfig) -> None:
        """Join the other engine cores; a single one has none."""

    # -- the handshake ------------------------------------------------------------------------------------------------

    @contextmanager
    def _perform_handshakes(
        self, handshake_address: str, identity: bytes, local_client: bool
    ) -> Iterator[EngineZmqAddresses]:
        """Send HELLO and yield the addresses; after the `with` block, send READY, or FAILED if it raised."""
        with zmq.Context() as ctx, ctx.socket(zmq.DEALER) as handshake_socket:
            handshake_socket.linger = _LINGER_MS
            handshake_socket.identity = identity
            handshake_socket.connect(handshake_address)
            addresses = self.startup_handshake(handshake_socket, local_client)
            try:
                yield addresses
            except Exception as error:
                handshake_socket.send(failed_message(error))
                raise
            stats_address = addresses.frontend_stats_publish_address
            handshake_socket.send(ready_message(self.kv_cache_config, local_client, stats_address))

    @staticmethod
    def startup_handshake(handshake_socket: zmq.Socket[bytes], local_client: bool) -> EngineZmqAddresses:
        """Send HELLO and return the addresses in the client's answer."""
        hello = {"status": "HELLO", "local": local_client, "headless": not local_client}
        handshake_socket.send(msgspec.msgpack.encode(hello))
        return msgspec.msgpack.decode(handshake_socket.recv(), type=EngineHandshakeMetadata).addresses

    # -- the process --------------------------------------------------------------------------------------------------

    @classmethod
    def run_engine_core(cls, directory: str, **settings: Any) -> None:
        """Run an engine core until SIGTERM or the death of the parent. This is the process's main function.

        Args:
            directory: the directory of the sockets, removed at the end.
            **settings: the arguments of the constructor.

        Raises:
            SystemExit: at the end.
        """
        engine_core: EngineCoreProc | None = None
        shutdown_requested = False

        def handle_sigterm(signum: int, frame: FrameType | None) -> None:
            nonlocal shutdown_requested
            shutdown_requested = True
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if engine_core is not None:
                engine_core.shutdown_requested = True
                engine_core.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))
                return
            # Loading may take minutes, so interrupt it. If this runs in a finalizer, Python ignores the exception, and
            # `shutdown_requested` takes effect after loading.
            exit_silently()

        signal.signal(signal.SIGTERM, handle_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by `CoreEngineProcManager.start`
        try:
            engine_core = cls(**settings)
            if shutdown_requested:
                raise SystemExit(0)
            engine_core.run_busy_loop()
        except EngineError as error:  # the client shows the message; a traceback would add nothing
            if engine_core is not None:
                engine_core._send_engine_dead(error)
            raise SystemExit(1) from None
        except Exception as error:
            # The client sends SIGTERM as soon as it gets the error; print the traceback first.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if engine_core is not None:
                engine_core._send_engine_dead(error)
            raise
        finally:
            # The client removes it too, unless it is killed together with this process, as in a notebook.
            remove_socket_directory(directory)
            if engine_core is not None:
                engine_core.shutdown()

    def run_busy_loop(self) -> None:
        """Handle input and run a step, repeatedly. Only an exception ends it: `SystemExit` after SIGTERM."""
        while True:
            self._process_input_queue()
            self._process_engine_step()

    def _process_input_queue(self) -> None:
        """Wait until there is work, and handle all messages received so far."""
        while not self.has_work():
            self._handle_client_request(*self.input_queue.get())
        while not self.input_queue.empty():
            self._handle_client_request(*self.input_queue.get_nowait())

    def _process_engine_step(self) -> bool:
        """Run a step and queue its outputs. Return whether the model was executed."""
        outputs, model_executed = self.step_fn()
        for client_index, client_outputs in (outputs or {}).items():
            self._queue_outputs(client_index, client_outputs)
        self.post_step(model_executed)
        return model_executed

    def _queue_outputs(self, client_index: int, outputs: EngineCoreOutputs) -> None:
        if self.aborted:
            outputs.finished_requests, self.aborted = self.aborted, []
        self.output_queue.put_nowait((client_index, outputs))

    def _handle_client_request(self, request_type: EngineCoreRequestType, request: Any) -> None:
        """Handle a message.

        Raises:
            RuntimeError: a thread or the executor has failed.
            SystemExit: SIGTERM was received.
        """
        if request_type is EngineCoreRequestType.ADD:
            if isinstance(request, Request):
                self.add_request(request)
            else:  # refused by `_preprocess_and_queue`
                self._queue_outputs(*request)
        elif request_type is EngineCoreRequestType.ABORT:
            self.abort_requests(request)
            self.aborted += request
        elif request_type is EngineCoreRequestType.UTILITY:
            client_index, call_id, method, args = request
            outputs = EngineCoreOutputs(utility_output=self._call_utility(call_id, method, args))
            self.output_queue.put_nowait((client_index, outputs))
        elif request_type is EngineCoreRequestType.EXECUTOR_FAILED:
            raise RuntimeError(request or "Executor failed.")
        elif request_type is EngineCoreRequestType.WAKEUP:
            raise SystemExit(0)
        else:
            raise RuntimeError(f"{request_type.name} is for several engine cores, and this is the only one.")

    def _call_utility(self, call_id: int, method: str, args: Sequence[Any]) -> UtilityOutput:
        if method not in self.UTILITY_METHODS:
            methods = ", ".join(self.UTILITY_METHODS)
            return UtilityOutput(call_id, f"The engine core has no utility method {method!r}; it has: {methods}.")
        try:
            return UtilityOutput(call_id, None, UtilityResult(getattr(self, method)(*args)))
        except Exception as error:
            return UtilityOutput(call_id, f"Call to {method} method failed: {error}")

    def _send_engine_dead(self, error: BaseException) -> None:
        """Send the fatal error to the client, and wait until it is sent."""
        self.output_queue.put_nowait((self.ENGINE_CORE_DEAD, format_error(error).encode(errors="replace")))
        self.output_thread.join(_LINGER_MS / 1000 + 1)

    def shutdown(self) -> None:
        """End both threads and the workers."""
        self.output_queue.put_nowait(None)
        self._stop_sender.close()
        for thread in (self.input_thread, self.output_thread):
            thread.join(_LINGER_MS / 1000 + 1)
        self._stop_receiver.close()
        super().shutdown()

    # -- the threads --------------------------------------------------------------------------------------------------

    def process_input_sockets(
        self,
        input_addresses: Sequence[str],
        coord_input_address: str | None,
        identity: bytes,
        ready_event: threading.Event,
    ) -> None:
        """Decode messages, prepare requests for the scheduler, and queue them for the busy loop."""
        try:
            decoder = _InputDecoder(num_clients=len(input_addresses))
            with ExitStack() as stack:
                ctx = stack.enter_context(zmq.Context())
                poller = zmq.Poller()
                poller.register(self._stop_receiver, zmq.POLLIN)
                for address in input_addresses:
                    input_socket = stack.enter_context(ctx.socket(zmq.DEALER))
                    input_socket.set_hwm(0)
                    input_socket.linger = 0
                    input_socket.identity = identity
                    input_socket.connect(address)
                    input_socket.send(b"")  # registers this engine core with the client's ROUTER
                    poller.register(input_socket, zmq.POLLIN)
                coord_socket = None
                if coord_input_address is not None:
                    coord_socket = stack.enter_context(ctx.socket(zmq.XSUB))
                    coord_socket.connect(coord_input_address)
                    coord_socket.send(b"\x01")  # subscribes
                    coord_socket.recv()  # READY: all engine cores have subscribed
                    poller.register(coord_socket, zmq.POLLIN)
                ready_event.set()
                while True:
                    for source, _ in poller.poll():
                        if not isinstance(source, zmq.Socket):
                            return
                        try:
                            types = _COORDINATOR_TYPES if source is coord_socket else _MESSAGE_TYPES
                            request_type, request = decoder.decode(source.recv_multipart(copy=False), types)
                        except EngineError as error:
                            logger.error("The engine core ignored a malformed message: %s.", str(error).rstrip("."))
                            continue
                        if request_type is EngineCoreRequestType.ADD:
                            self._preprocess_and_queue(request)
                        else:
                            self.input_queue.put_nowait((request_type, request))
        except Exception as error:
            self._fail(error)
        finally:
            ready_event.set()

    def _preprocess_and_queue(self, request: EngineCoreRequest) -> None:
        try:
            prepared = self.preprocess_add_request(request)
        except EngineError as error:
            # tracellm's clients check before they send; another client may not.
            refused = EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ERROR, stop_reason=str(error))
            # Queued behind earlier aborts: until they are confirmed, the client drops outputs with this id.
            self.input_queue.put_nowait(
                (EngineCoreRequestType.ADD, (request.client_index, EngineCoreOutputs(outputs=[refused])))
            )
        else:
            self.input_queue.put_nowait((EngineCoreRequestType.ADD, prepared))

    def process_output_sockets(
        self, output_paths: Sequence[str], coord_output_path: str | None, engine_index: int
    ) -> None:
        """Encode and send the queued outputs; those for the client -1 are for the coordinator."""
        try:
            encoder = MsgpackEncoder()
            reuse_buffers: list[bytearray] = []
            # Messages that ZeroMQ is still sending: their buffers, and the outputs that own their arrays.
            pending: deque[tuple[zmq.MessageTracker, Any, bytearray]] = deque()
            with ExitStack() as stack:
                ctx = stack.enter_context(zmq.Context())

                def connect(path: str) -> zmq.Socket[bytes]:
                    output_socket = stack.enter_context(ctx.socket(zmq.PUSH))
                    output_socket.set_hwm(0)
                    output_socket.linger = 0
                    output_socket.connect(path)
                    return output_socket

                sockets = [connect(path) for path in output_paths]
                coord_socket = [connect(coord_output_path)] if coord_output_path is not None else []
                try:
                    while (output := self.output_queue.get()) is not None:
                        client_index, outputs = output
                        if isinstance(outputs, bytes):
                            self._send_error(sockets, outputs)
                            return
                        assert isinstance(client_index, int)
                        outputs.engine_index = engine_index
                        while pending and pending[-1][0].done:
                            reuse_buffers.append(pending.pop()[2])
                        buffer = reuse_buffers.pop() if reuse_buffers else bytearray()
                        frames = encoder.encode_into(outputs, buffer)
                        tracker = [*sockets, *coord_socket][client_index].send_multipart(frames, copy=False, track=True)
                        assert tracker is not None
                        if not tracker.done:
                            pending.appendleft((tracker, outputs, buffer))
                        elif len(reuse_buffers) < _MAX_REUSE_BUFFERS:
                            reuse_buffers.append(buffer)
                except Exception as error:
                    self._send_error(sockets, format_error(error).encode(errors="replace"))
                    raise
        except Exception as error:
            self._fail(error)

    def _send_error(self, sockets: Sequence[zmq.Socket[bytes]], message: bytes) -> None:
        for output_socket in sockets:
            output_socket.linger = _LINGER_MS
            name = self.vllm_config.parallel_config.engine_name.encode()
            output_socket.send_multipart((self.ENGINE_CORE_DEAD, message, name))

    def _fail(self, error: Exception) -> None:
        """End the busy loop, because a thread has failed."""
        self.input_queue.put_nowait((EngineCoreRequestType.EXECUTOR_FAILED, format_error(error)))
