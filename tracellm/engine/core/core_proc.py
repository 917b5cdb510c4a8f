"""The engine core in a process of its own: the same steps, between two queues that threads connect to sockets.

    client ── input socket ──> thread process_input_sockets ── input_queue ──> run_busy_loop: steps
    client <─ output socket ── thread process_output_sockets <── output_queue ──┘

So the steps never wait for a socket: requests are decoded, and outputs encoded, while the model computes.

`core_launch.py` starts the process, mp_client.py is the other end of the sockets, `handshake.py` how they find each
other.

vLLM: vllm/v1/engine/core.py::EngineCoreProc. Left out: data parallelism, several clients of one engine core. Otherwise
than there: SIGINT is ignored, as the client decides what Ctrl-C means; aborts are confirmed, so that a client can use
an id again; the process ends when its parent has died; utility calls reach only `UTILITY_METHODS`; an error reaches the
client with its message.
"""

from __future__ import annotations

import gc
import logging
import queue
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from tracellm.engine.config.errors import EngineError, in_words
from tracellm.engine.core.core import EngineCore
from tracellm.engine.core.core_inputs import InputDecoder
from tracellm.engine.core.request import Request
from tracellm.engine.ipc.handshake import (
    ENGINE_CORE_DEAD,
    EngineHandshakeMetadata,
    EngineZmqAddresses,
    engine_identity,
    failed_message,
    ready_message,
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
from tracellm.engine.ipc.serial_utils import MsgpackEncoder
from tracellm.engine.ipc.socket_directory import end_with_parent, remove_socket_directory

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.executor.abstract import Executor

__all__ = ["EngineCoreProc"]

logger = logging.getLogger(__name__)

_LINGER = 4000  # milliseconds that the last words have to leave the process
_LAST_BUFFERS = 2  # buffers for encoding that are kept for the next message


def _silent_about_exit(unraisable: sys.UnraisableHookArgs) -> None:
    if unraisable.exc_type is not SystemExit:
        sys.__unraisablehook__(unraisable)


class EngineCoreProc(EngineCore):
    """An `EngineCore` behind two sockets."""

    ENGINE_CORE_DEAD = ENGINE_CORE_DEAD

    UTILITY_METHODS: tuple[str, ...] = (
        "get_supported_tasks",
        "reset_prefix_cache",
        "get_request_counts",
        "get_num_free_blocks",
    )
    """What a client may call by name."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        local_client: bool,
        handshake_address: str,
        executor_class: type[Executor],
        log_stats: bool,
        engine_index: int = 0,
    ) -> None:
        """Load the model, and be ready for requests.

        Args:
            vllm_config: all settings.
            local_client: is the client on this machine? Always.
            handshake_address: where the client waits.
            executor_class: what runs the model.
            log_stats: should times and statistics be kept?
            engine_index: the number of this engine core; its outputs and its sockets carry it.
        """
        # Simple: a signal's handler puts into it too, in the middle of whatever the busy loop does with it.
        self.input_queue: queue.SimpleQueue[tuple[EngineCoreRequestType, Any]] = queue.SimpleQueue()
        self.output_queue: queue.Queue[tuple[int, EngineCoreOutputs] | tuple[bytes, bytes] | None] = queue.Queue()
        self.aborted: list[str] = []
        """For `EngineCoreOutputs.finished_requests`."""
        identity = engine_identity(engine_index)
        with self._perform_handshakes(handshake_address, identity, local_client) as addresses:
            super().__init__(vllm_config, executor_class, log_stats)
            # This process may last for days: what it will need it has from the start, or does not start at all.
            self.model_executor.collective_rpc("prefault_kv_cache")
            gc.collect()
            gc.freeze()  # what is there now stays: the garbage collector need not look at it again
            self._wake, self._woken = socket.socketpair()  # closing one end ends the input thread
            ready_event = threading.Event()
            self.input_thread = threading.Thread(
                target=self.process_input_sockets,
                args=(addresses.inputs, identity, ready_event),
                name="process_input_sockets",
                daemon=True,
            )
            self.input_thread.start()
            self.output_thread = threading.Thread(
                target=self.process_output_sockets,
                args=(addresses.outputs, engine_index),
                name="process_output_sockets",
                daemon=True,
            )
            self.output_thread.start()
            ready_event.wait()

    # -- the handshake ------------------------------------------------------------------------------------------------

    @contextmanager
    def _perform_handshakes(
        self, handshake_address: str, identity: bytes, local_client: bool
    ) -> Iterator[EngineZmqAddresses]:
        """Say HELLO and get the addresses; then, when the `with` block has done its work, READY, or FAILED."""
        with zmq.Context() as ctx, ctx.socket(zmq.DEALER) as handshake_socket:
            handshake_socket.linger = _LINGER
            handshake_socket.identity = identity
            handshake_socket.connect(handshake_address)
            yielded = self.startup_handshake(handshake_socket, local_client)
            try:
                yield yielded
            except Exception as error:
                handshake_socket.send(failed_message(error))
                raise
            handshake_socket.send(ready_message(self.kv_cache_config, local_client))

    @staticmethod
    def startup_handshake(handshake_socket: zmq.Socket[bytes], local_client: bool) -> EngineZmqAddresses:
        """Say HELLO; what the client answers."""
        hello = {"status": "HELLO", "local": local_client, "headless": not local_client}
        handshake_socket.send(msgspec.msgpack.encode(hello))
        return msgspec.msgpack.decode(handshake_socket.recv(), type=EngineHandshakeMetadata).addresses

    # -- the process --------------------------------------------------------------------------------------------------

    @staticmethod
    def run_engine_core(directory: str, **settings: Any) -> None:
        """Be an engine core until SIGTERM comes or the parent dies: all that its process does.

        Args:
            directory: of the sockets; removed if the parent cannot do it any more.
            **settings: for the constructor.

        Raises:
            SystemExit: always, in the end.
        """
        engine_core: EngineCoreProc | None = None
        told_to_end = False

        def end(signum: int, frame: FrameType | None) -> None:
            nonlocal told_to_end
            told_to_end = True
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if engine_core is not None:
                engine_core.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))
                return
            # Loading may take minutes. Where Python is in a finalizer right now, it passes over what is raised.
            sys.unraisablehook = _silent_about_exit
            raise SystemExit(0)

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # see core_launch.py
        end_with_parent(directory)
        try:
            engine_core = EngineCoreProc(**settings)
            if told_to_end:
                raise SystemExit(0)
            engine_core.run_busy_loop()
        except EngineError as error:  # a message for people, which the client shows; a traceback would add nothing
            if engine_core is not None:
                engine_core._send_engine_dead(error)
            raise SystemExit(1) from None
        except Exception as error:
            signal.signal(
                signal.SIGTERM, signal.SIG_IGN
            )  # which comes soon, when the client knows; first the traceback
            if engine_core is not None:
                engine_core._send_engine_dead(error)
            raise
        finally:
            remove_socket_directory(directory)  # a notebook's kernel is killed with its children: nobody else may come
            if engine_core is not None:
                engine_core.shutdown()

    def run_busy_loop(self) -> None:
        """Take in what has come, make a step, and again.

        It ends with an exception only: `SystemExit` on SIGTERM, which lets a step be finished.
        """
        while True:
            self._process_input_queue()
            self._process_engine_step()

    def _process_input_queue(self) -> None:
        """Wait until there is something to compute; handle all that has come until then."""
        while not self.has_work():
            self._handle_client_request(*self.input_queue.get())
        while not self.input_queue.empty():
            self._handle_client_request(*self.input_queue.get_nowait())

    def _process_engine_step(self) -> bool:
        """Make a step, and queue its outputs. Returns whether the model was executed."""
        outputs, model_executed = self.step_fn()
        for client_index, of_client in (outputs or {}).items():
            self._queue_outputs(client_index, of_client)
        self.post_step(model_executed)
        return model_executed

    def _queue_outputs(self, client_index: int, outputs: EngineCoreOutputs) -> None:
        if self.aborted:
            outputs.finished_requests, self.aborted = self.aborted, []
        self.output_queue.put_nowait((client_index, outputs))

    def _handle_client_request(self, request_type: EngineCoreRequestType, request: Any) -> None:
        """Do what a client wants.

        Raises:
            RuntimeError: a thread or the executor cannot go on.
            SystemExit: SIGTERM has come.
        """
        if request_type is EngineCoreRequestType.ADD:
            if isinstance(request, Request):
                self.add_request(request)
            else:  # refused by `_take_request`
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
            raise RuntimeError(f"There is no data parallelism here, and so no {request_type.name}.")

    def _call_utility(self, call_id: int, method: str, args: Sequence[Any]) -> UtilityOutput:
        if method not in self.UTILITY_METHODS:
            known = ", ".join(self.UTILITY_METHODS)
            return UtilityOutput(call_id, f"The engine core has no utility method {method!r}; it has: {known}.")
        try:
            return UtilityOutput(call_id, None, UtilityResult(getattr(self, method)(*args)))
        except Exception as error:
            return UtilityOutput(call_id, f"Call to {method} method failed: {error}")

    def _send_engine_dead(self, error: BaseException) -> None:
        """Tell the client that no more will come, and why; wait until it is sent."""
        self.output_queue.put_nowait((self.ENGINE_CORE_DEAD, in_words(error).encode(errors="replace")))
        self.output_thread.join(_LINGER / 1000 + 1)

    def shutdown(self) -> None:
        """End both threads."""
        self.output_queue.put_nowait(None)
        self._wake.close()
        for thread in (self.input_thread, self.output_thread):
            thread.join(_LINGER / 1000 + 1)
        self._woken.close()

    # -- the threads --------------------------------------------------------------------------------------------------

    def process_input_sockets(
        self, input_addresses: Sequence[str], identity: bytes, ready_event: threading.Event
    ) -> None:
        """Decode what comes, make requests ready for the scheduler, and queue all for the busy loop."""
        try:
            decoder = InputDecoder(num_clients=len(input_addresses))
            with ExitStack() as stack:
                ctx = stack.enter_context(zmq.Context())
                poller = zmq.Poller()
                poller.register(self._woken, zmq.POLLIN)
                for address in input_addresses:
                    input_socket = stack.enter_context(ctx.socket(zmq.DEALER))
                    input_socket.set_hwm(0)
                    input_socket.linger = 0
                    input_socket.identity = identity
                    input_socket.connect(address)
                    input_socket.send(b"")  # only then does the client's ROUTER know this engine core
                    poller.register(input_socket, zmq.POLLIN)
                ready_event.set()
                while True:
                    for source, _ in poller.poll():
                        if not isinstance(source, zmq.Socket):
                            return
                        try:
                            request_type, request = decoder.decode(source.recv_multipart(copy=False))
                        except EngineError as error:
                            logger.error("The engine core has passed over a message to it: %s.", str(error).rstrip("."))
                            continue
                        if request_type is EngineCoreRequestType.ADD:
                            self._take_request(request)
                        else:
                            self.input_queue.put_nowait((request_type, request))
        except Exception as error:
            self._fail(error)
        finally:
            ready_event.set()

    def _take_request(self, request: EngineCoreRequest) -> None:
        try:
            prepared = self.preprocess_add_request(request)
        except EngineError as error:
            # A client checks before it sends, so only one that does not gets here.
            refused = EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.ERROR, stop_reason=str(error))
            # In its turn: the client passes over what comes under this id before an abort is confirmed.
            self.input_queue.put_nowait(
                (EngineCoreRequestType.ADD, (request.client_index, EngineCoreOutputs(outputs=[refused])))
            )
        else:
            self.input_queue.put_nowait((EngineCoreRequestType.ADD, prepared))

    def process_output_sockets(self, output_paths: Sequence[str], engine_index: int) -> None:
        """Encode what the busy loop has queued, and send it."""
        try:
            encoder = MsgpackEncoder()
            reuse_buffers: list[bytearray] = []
            # What ZeroMQ has not sent yet: buffer, and the outputs whose arrays it reads from where they are.
            pending: deque[tuple[zmq.MessageTracker, Any, bytearray]] = deque()
            with ExitStack() as stack:
                ctx = stack.enter_context(zmq.Context())
                sockets = [stack.enter_context(ctx.socket(zmq.PUSH)) for _ in output_paths]
                for output_socket, path in zip(sockets, output_paths, strict=True):
                    output_socket.set_hwm(0)
                    output_socket.linger = 0
                    output_socket.connect(path)
                try:
                    while (output := self.output_queue.get()) is not None:
                        first, outputs = output
                        if isinstance(outputs, bytes):
                            self._send_last_words(sockets, outputs)
                            return
                        assert isinstance(first, int)
                        outputs.engine_index = engine_index
                        while pending and pending[-1][0].done:
                            reuse_buffers.append(pending.pop()[2])
                        buffer = reuse_buffers.pop() if reuse_buffers else bytearray()
                        frames = encoder.encode_into(outputs, buffer)
                        tracker = sockets[first].send_multipart(frames, copy=False, track=True)
                        assert tracker is not None
                        if not tracker.done:
                            pending.appendleft((tracker, outputs, buffer))
                        elif len(reuse_buffers) < _LAST_BUFFERS:
                            reuse_buffers.append(buffer)
                except Exception as error:
                    self._send_last_words(sockets, in_words(error).encode(errors="replace"))
                    raise
        except Exception as error:
            self._fail(error)

    def _send_last_words(self, sockets: Sequence[zmq.Socket[bytes]], why: bytes) -> None:
        for output_socket in sockets:
            output_socket.linger = _LINGER
            output_socket.send_multipart((self.ENGINE_CORE_DEAD, why))

    def _fail(self, error: Exception) -> None:
        """A thread cannot go on, so the engine core cannot: let the busy loop say so."""
        self.input_queue.put_nowait((EngineCoreRequestType.EXECUTOR_FAILED, in_words(error)))
