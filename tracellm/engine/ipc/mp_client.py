"""Clients whose engine core runs in a process of its own: requests leave through one socket, outputs arrive on another.

    SyncMPClient   for LLM: a thread receives outputs, and `get_output` takes them from a queue
    AsyncMPClient  for AsyncLLM: a task receives outputs, and `get_output_async` awaits them

The engine core keeps stepping whether or not its outputs are read. Both clients share `MPClient`, which starts the
process (launch.py) and encodes messages (serial_utils.py). core/core_proc.py is what runs in the process.

vLLM: vllm/v1/engine/core_client.py; the client of several engine cores is in dp_client.py. Left out: engine cores on
other machines. Differences: if the engine process dies, callers get the reason; requests that can never fit into the KV
cache are refused before they are sent; the asynchronous client uses plain ZeroMQ sockets, which are not bound to one
event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import multiprocessing.util
import os
import queue
import socket
import threading
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import zmq

from tracellm.engine.config.errors import EngineDeadError, EngineError, InvalidRequestError, format_error
from tracellm.engine.core.encoder_cache_manager import check_items_fit, compute_encoder_budget
from tracellm.engine.core.kv_cache.kv_cache_utils import check_request_fits
from tracellm.engine.ipc.core_client import EngineCoreClient
from tracellm.engine.ipc.launch import (
    ENGINE_CORE_DEAD,
    CoreEngineProcManager,
    EngineZmqAddresses,
    engine_identity,
    make_socket_directory,
    poll_unless_cancelled,
    remove_socket_directory,
    wait_for_engine_startup,
)
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest, EngineCoreRequestType, UtilityOutput
from tracellm.engine.ipc.serial_utils import MsgpackDecoder, MsgpackEncoder, bytestr

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
    from tracellm.engine.executor.abstract import Executor

__all__ = ["AsyncMPClient", "BackgroundResources", "MPClient", "SyncMPClient"]

_AnyFuture = asyncio.Future[Any] | Future[Any]

_DRAIN_TIMEOUT = 0.1
"""Seconds after which everything that a dead process had sent has arrived."""


@dataclass
class BackgroundResources:
    """The process, sockets, directory, thread and task of a client. Calling it closes them all, once.

    It has no reference to the client. A client can therefore be garbage-collected while a thread still waits on a
    socket, and its finalizer closes the resources.

    vLLM: vllm/v1/engine/core_client.py::BackgroundResources.
    """

    ctx: zmq.Context[zmq.Socket[bytes]]
    directory: str
    """Directory of the sockets."""
    engine_manager: CoreEngineProcManager | None = None
    input_socket: zmq.Socket[bytes] | None = None
    output_socket: zmq.Socket[bytes] | None = None
    stats_update_socket: zmq.Socket[bytes] | None = None
    """Connects to the coordinator of several engine cores."""
    send_lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while a thread uses the input socket, which is not thread-safe."""
    output_queue_thread: threading.Thread | None = None
    """Receives the outputs of a `SyncMPClient`."""
    wakeup_socket: socket.socket | None = None
    """A byte sent to it makes that thread check whether to end."""
    output_queue_task: asyncio.Task[None] | None = None
    """Receives the outputs of an `AsyncMPClient`."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop of that task."""
    remove_reader: Callable[[], None] | None = None
    """Removes the output socket from that loop."""
    notify: Callable[[], None] | None = None
    """Makes the thread or task check the state of the engine process."""
    utility_results: dict[int, _AnyFuture] = field(default_factory=dict)
    """Pending utility calls, by call id."""
    cause_of_death: str | None = None
    """Description of the engine process's unexpected end. The socket may still hold outputs that it sent before."""
    engine_dead: bool = False
    """True once no more outputs will come."""
    dead_message: str = "This engine has been shut down; make a new one."
    pid: int = field(default_factory=os.getpid)
    """The process that owns the resources, as opposed to its forks."""

    def validate_alive(self, frames: list[zmq.Frame]) -> None:
        """Check that the frames are outputs.

        Raises:
            EngineDeadError: they are the engine core's fatal error.
        """
        if bytes(frames[0].buffer) == ENGINE_CORE_DEAD:
            texts = [bytes(frame.buffer).decode(errors="replace") for frame in frames[1:]]
            error, name = [*texts, *("unknown error", "EngineCore_0")[len(texts) :]]
            self.declare_dead(f"The engine process {name} has failed: {error}")
            raise self.dead_error()

    def declare_dead(self, message: str) -> None:
        """Make every later call fail with this message."""
        if not self.engine_dead:
            self.dead_message, self.engine_dead = message, True

    def dead_error(self) -> EngineDeadError:
        """Return a new error. One error raised in several threads would collect all their tracebacks."""
        return EngineDeadError(self.dead_message)

    def died_by_itself(self, end: str) -> None:
        """Record that a process ended unexpectedly; `end` is from `wait_for_end`."""
        self.cause_of_death = f"The engine process {end} while it was needed. Its requests are lost; make a new engine."
        if self.notify is not None:
            self.notify()

    def fail_utility_calls(self) -> None:
        """Fail all pending utility calls."""
        with contextlib.suppress(KeyError):  # empty; several threads may be here at once
            while True:
                _, future = self.utility_results.popitem()
                if not future.done():
                    future.set_exception(self.dead_error())

    def __call__(self) -> None:
        """Close everything. Safe to call from any thread, and repeatedly."""
        if os.getpid() != self.pid:
            return
        self.engine_dead = True
        with contextlib.ExitStack() as steps:  # runs all steps, the last first, even if Ctrl-C interrupts one
            steps.callback(remove_socket_directory, self.directory)
            steps.callback(self._end_sockets)
            steps.callback(self._end_thread)
            if self.engine_manager is not None:
                steps.callback(self.engine_manager.close)

    def _end_thread(self) -> None:
        if self.output_queue_thread is not None and self.wakeup_socket is not None:
            self.wakeup_socket.close()
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
            except RuntimeError:  # closed just now
                self._close_sockets()

    def _end_task(self) -> None:
        if self.remove_reader is not None:
            self.remove_reader()
        if self.output_queue_task is not None:
            self.output_queue_task.cancel()
        self.fail_utility_calls()
        self._close_sockets()

    def _close_sockets(self) -> None:
        with self.send_lock:
            for zmq_socket in (self.input_socket, self.output_socket, self.stats_update_socket):
                if zmq_socket is not None:
                    zmq_socket.close(linger=0)
        self.ctx.term()


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _process_utility_output(output: UtilityOutput, utility_results: dict[int, _AnyFuture]) -> None:
    """Set the result of a utility call, unless its caller has given up."""
    future = utility_results.pop(output.call_id, None)
    if future is None or future.done():
        return
    if output.failure_message is not None:
        future.set_exception(EngineError(output.failure_message))
    else:
        assert output.result is not None
        future.set_result(output.result.result)


class MPClient(EngineCoreClient):
    """Base class of both clients: starts the engine core's process, watches it, and sends messages to it."""

    num_reserved_cores = 0
    """Cores that engine cores leave to this process. The sync client waits while they compute."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        executor_class: type[Executor],
        log_stats: bool,
    ) -> None:
        """Start the engine core, and wait until it is ready.

        Args:
            vllm_config: all settings; the number of KV cache blocks is written into it.
            executor_class: the class that runs the model there.
            log_stats: whether to collect statistics.

        Raises:
            EngineError: the engine core's own error, such as a `ModelLoadError`.
            EngineDeadError: its process ended before it was ready.
        """
        self.vllm_config = vllm_config
        self.encoder = MsgpackEncoder()
        self.decoder = MsgpackDecoder(EngineCoreOutputs)
        self.ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.resources = BackgroundResources(self.ctx, make_socket_directory())
        self._finalizer = weakref.finalize(self, self.resources)
        # At exit, run before multiprocessing, which would wait for the process forever. Children of multiprocessing do
        # not run atexit functions; the second finalizer is for them.
        atexit.register(self._finalizer)
        self._at_exit = multiprocessing.util.Finalize(None, self._finalizer, exitpriority=0)
        self.utility_results: dict[int, _AnyFuture] = self.resources.utility_results
        self.kv_cache_config: KVCacheConfig | None = None
        """The smallest KV cache of the engine cores, for refusing impossible requests; None until they are ready."""
        self.pending_messages: deque[tuple[zmq.MessageTracker, Any]] = deque()
        """Messages that ZeroMQ is still sending, and the objects that own their memory."""
        self._aborted: Counter[str] = Counter()
        """Number of unconfirmed aborts of each request id."""
        num_engines = vllm_config.parallel_config.data_parallel_size
        self.core_engines = [engine_identity(index) for index in range(num_engines)]
        """Identities of the engine cores on the input socket."""
        self.core_engine = self.core_engines[0]
        try:
            addresses = EngineZmqAddresses.in_directory(self.resources.directory, num_engines)
            self.input_socket = self.resources.input_socket = self._bind(zmq.ROUTER, addresses.inputs[0])
            self.resources.output_socket = self._bind(zmq.PULL, addresses.outputs[0])
            self.launch_core_engines(addresses, executor_class, log_stats)
            self._await_first_messages()
            self.start_engine_core_monitor()
        except BaseException:
            self.shutdown()
            raise

    def _bind(self, kind: int, address: str) -> zmq.Socket[bytes]:
        bound = self.ctx.socket(kind)
        bound.set_hwm(0)  # queues are unlimited: sending never blocks, and no message is dropped
        bound.linger = 0
        bound.bind(address)
        return bound

    def launch_core_engines(
        self, addresses: EngineZmqAddresses, executor_class: type[Executor], log_stats: bool
    ) -> None:
        """Start the processes of the engine cores, and wait until they are ready."""
        handshake_address = f"ipc://{self.resources.directory}/handshake"
        with self._bind(zmq.ROUTER, handshake_address) as handshake_socket:
            manager = CoreEngineProcManager(
                self.vllm_config,
                executor_class,
                log_stats,
                handshake_address,
                self.resources.directory,
                num_reserved_cores=self.num_reserved_cores,
            )
            self.resources.engine_manager = manager
            manager.start()
            caches = wait_for_engine_startup(handshake_socket, addresses, self.core_engines, manager)
        self.kv_cache_config = min(caches, key=lambda cache: cache.num_blocks)
        self.vllm_config.cache_config.num_gpu_blocks = sum(cache.num_blocks for cache in caches)

    def _await_first_messages(self) -> None:
        """Wait until all engine cores have connected to the input socket.

        Raises:
            EngineDeadError: a process has ended.
            asyncio.CancelledError: the task that runs this was cancelled.
        """
        poller = zmq.Poller()
        poller.register(self.input_socket, zmq.POLLIN)
        manager = self.resources.engine_manager
        assert manager is not None
        for sentinel in manager.sentinels:
            poller.register(sentinel, zmq.POLLIN)
        missing = set(self.core_engines)
        while missing:
            if not any(source is self.input_socket for source, _ in poll_unless_cancelled(poller)):
                raise EngineDeadError(f"The engine process {manager.wait_for_end()} as soon as it was ready.")
            identity, *_ = self.input_socket.recv_multipart()
            missing.discard(identity)  # another one is from another program

    def shutdown(self) -> None:
        """End the engine cores and release all resources; later calls raise `EngineDeadError`."""
        atexit.unregister(self._finalizer)
        self._at_exit.cancel()
        self._finalizer()

    def ensure_alive(self) -> None:
        """Raise `EngineDeadError` if the engine core has ended, or if this is a fork of the process that owns it."""
        if os.getpid() != self.resources.pid:  # both processes would write into one connection
            raise EngineDeadError(
                f"This engine belongs to the process {self.resources.pid}, from which this one ({os.getpid()}) was "
                "forked: only that one can use it. Make an engine here, or send the prompts there."
            )
        if self.resources.engine_dead:
            raise self.resources.dead_error()

    def start_engine_core_monitor(self) -> None:
        """Start a thread that reports an unexpected end of a process to waiting callers, and ends the others."""
        resources, manager, several = self.resources, self.resources.engine_manager, len(self.core_engines) > 1
        assert manager is not None

        def monitor_engine_cores() -> None:
            end = manager.wait_for_end()
            if not resources.engine_dead:
                resources.died_by_itself(end)
                if several:
                    manager.close()

        threading.Thread(target=monitor_engine_cores, daemon=True, name="MPClientEngineMonitor").start()

    def _validate(self, request: EngineCoreRequest) -> None:
        """Refuse what `EngineCore.preprocess_add_request` would refuse."""
        assert self.kv_cache_config is not None
        check_request_fits(
            request.request_id,
            len(request.prompt_token_ids),
            request.max_tokens,
            self.vllm_config,
            self.kv_cache_config,
        )
        budget = compute_encoder_budget(self.vllm_config.model_config, self.vllm_config.scheduler_config)
        check_items_fit(request.request_id, request.mm_features or [], min(budget))

    def _without_aborted(self, outputs: EngineCoreOutputs) -> EngineCoreOutputs:
        """Remove outputs of aborted requests that the engine core computed before it received the abort.

        A new request may have the same id, and the outputs of both look alike. vLLM 0.11.1 mixes them up.
        """
        with self.resources.send_lock:
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

    def _send_input_message(
        self,
        request_type: EngineCoreRequestType,
        frames: Sequence[bytestr],
        objects: Any,
        engine: bytes | None = None,
    ) -> None:
        """Send a message to an engine core without waiting.

        Args:
            request_type: the type of the message.
            frames: its content.
            objects: kept until the frames are sent, because they may own the frames' memory.
            engine: identity of the engine core; None is the first.
        """
        self.ensure_alive()
        if request_type is EngineCoreRequestType.ABORT:
            self._aborted.update(objects)
        while self.pending_messages and self.pending_messages[-1][0].done:
            self.pending_messages.pop()
        message = (engine or self.core_engine, request_type.value, *frames)
        if len(frames) == 1:
            self.input_socket.send_multipart(message, copy=False)
            return
        tracker = self.input_socket.send_multipart(message, copy=False, track=True)
        assert tracker is not None
        if not tracker.done:
            self.pending_messages.appendleft((tracker, objects))


class SyncMPClient(MPClient):
    """Client for blocking callers, used by `LLM`. Thread-safe."""

    def __init__(self, vllm_config: VllmConfig, executor_class: type[Executor], log_stats: bool) -> None:
        super().__init__(vllm_config, executor_class, log_stats)
        self.outputs_queue: queue.Queue[EngineCoreOutputs | EngineError] = queue.Queue()
        wakeup_socket, wakeup_receiver = socket.socketpair()
        thread = threading.Thread(
            target=self.process_outputs_socket,
            args=(self.resources, self.decoder, self.outputs_queue, wakeup_receiver),
            name="EngineCoreOutputQueueThread",
            daemon=True,
        )
        self.resources.wakeup_socket, self.resources.output_queue_thread = wakeup_socket, thread
        thread.start()

        def notify() -> None:
            with contextlib.suppress(OSError):  # closed: the thread has ended
                wakeup_socket.send(b"x")

        self.resources.notify = notify
        if self.resources.cause_of_death is not None:  # set before `notify` was
            notify()

    @staticmethod
    def process_outputs_socket(
        resources: BackgroundResources,
        decoder: MsgpackDecoder,
        outputs_queue: queue.Queue[EngineCoreOutputs | EngineError],
        wakeup_receiver: socket.socket,
    ) -> None:
        """Move outputs from the socket to the queue until the engine is dead, and then put an error into the queue.

        The function of the thread, without a reference to the client.
        """
        output_socket = resources.output_socket
        assert output_socket is not None
        poller = zmq.Poller()
        poller.register(output_socket, zmq.POLLIN)
        poller.register(wakeup_receiver, zmq.POLLIN)
        try:
            while not resources.engine_dead:  # this thread may itself collect the client, which closes the socket
                if not any(source is output_socket for source, _ in poller.poll()):
                    if resources.cause_of_death is None:
                        break  # shut down
                    if not output_socket.poll(int(_DRAIN_TIMEOUT * 1000)):
                        resources.declare_dead(resources.cause_of_death)
                        break
                frames = output_socket.recv_multipart(copy=False)
                resources.validate_alive(frames)
                outputs: EngineCoreOutputs = decoder.decode(frames)
                if outputs.utility_output is not None:
                    _process_utility_output(outputs.utility_output, resources.utility_results)
                else:
                    outputs_queue.put_nowait(outputs)
        except EngineError as error:
            resources.declare_dead(str(error))
        finally:
            resources.engine_dead = True
            wakeup_receiver.close()
            outputs_queue.put_nowait(resources.dead_error())
            resources.fail_utility_calls()

    def get_output(self) -> EngineCoreOutputs:
        """Wait for the next outputs.

        Raises:
            EngineDeadError: no more will come.
        """
        if self.resources.engine_dead and self.outputs_queue.empty():
            raise self.resources.dead_error()
        outputs = self.outputs_queue.get()
        if isinstance(outputs, EngineError):
            self.outputs_queue.put_nowait(outputs)  # for other waiting threads
            raise self.resources.dead_error()
        return self._without_aborted(outputs)

    def _send_input(self, request_type: EngineCoreRequestType, request: Any) -> None:
        with self.resources.send_lock:
            self.ensure_alive()
            add = request_type is EngineCoreRequestType.ADD
            frames = self._encode_request(request) if add else self.encoder.encode(request)
            self._send_input_message(request_type, frames, request)

    def call_utility(self, method: str, *args: Any) -> Any:
        """Call a method of the engine core, one of `EngineCoreProc.UTILITY_METHODS`, and return its result.

        Raises:
            EngineError: there is no such method, or it failed.
            EngineDeadError: the engine core has ended.
        """
        call_id = uuid.uuid1().int >> 64
        future: Future[Any] = Future()
        self.utility_results[call_id] = future
        try:
            self._send_input(EngineCoreRequestType.UTILITY, (0, call_id, method, args))
            if self.resources.engine_dead:  # it may have died before this call was registered
                self.resources.fail_utility_calls()
            return future.result()
        finally:
            self.utility_results.pop(call_id, None)

    def add_request(self, request: EngineCoreRequest) -> None:
        """Send a request.

        Raises:
            InvalidRequestError: the KV cache is too small for it, or part of it cannot be encoded.
            EngineDeadError: the engine core has ended.
        """
        self._send_input(EngineCoreRequestType.ADD, request)

    def abort_requests(self, request_ids: list[str]) -> None:
        """Abort requests. Finished requests, and a dead engine core, are ignored."""
        if request_ids and not self.resources.engine_dead:
            self._send_input(EngineCoreRequestType.ABORT, request_ids)

    def reset_prefix_cache(self) -> bool:
        """See `EngineCore.reset_prefix_cache`."""
        done: bool = self.call_utility("reset_prefix_cache")
        return done


class AsyncMPClient(MPClient):
    """Client for asyncio callers, used by `AsyncLLM`. It serves one event loop at a time, and later another."""

    num_reserved_cores = 1

    def __init__(self, vllm_config: VllmConfig, executor_class: type[Executor], log_stats: bool) -> None:
        super().__init__(vllm_config, executor_class, log_stats)
        self.outputs_queue: asyncio.Queue[EngineCoreOutputs | EngineError] = asyncio.Queue()
        with contextlib.suppress(RuntimeError):  # no loop is running: the first call starts the task
            asyncio.get_running_loop()
            self._ensure_output_queue_task()

    def _ensure_output_queue_task(self) -> None:
        """Start the task that receives outputs in this loop, unless it is running or the engine core is dead."""
        resources, loop = self.resources, asyncio.get_running_loop()
        if resources.engine_dead or (resources.loop is loop and resources.output_queue_task is not None):
            return
        previous_queue, readable = self.outputs_queue, asyncio.Event()
        outputs_queue: asyncio.Queue[EngineCoreOutputs | EngineError] = asyncio.Queue()
        self.outputs_queue = outputs_queue
        while not previous_queue.empty():
            outputs_queue.put_nowait(previous_queue.get_nowait())
        output_socket = resources.output_socket
        assert output_socket is not None
        watched = [int(output_socket.getsockopt(zmq.FD))]
        loop.add_reader(watched[0], readable.set)

        def remove_reader() -> None:
            if watched:
                loop.remove_reader(watched.pop())

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and has no waiting callers
                loop.call_soon_threadsafe(readable.set)

        def task_done(task: asyncio.Task[None]) -> None:
            remove_reader()
            if resources.output_queue_task is task:
                resources.output_queue_task = None
            if not task.cancelled() and (error := task.exception()) is not None:
                resources.declare_dead(f"The client of the engine core has failed: {format_error(error)}")
            if resources.engine_dead:
                outputs_queue.put_nowait(resources.dead_error())
                resources.fail_utility_calls()

        resources.loop, resources.remove_reader, resources.notify = loop, remove_reader, notify
        resources.output_queue_task = asyncio.create_task(
            self.process_outputs_socket(resources, self.decoder, outputs_queue, readable),
            name="EngineCoreOutputQueueTask",
        )
        resources.output_queue_task.add_done_callback(task_done)  # runs even if the task is cancelled before it starts

    @staticmethod
    async def process_outputs_socket(
        resources: BackgroundResources,
        decoder: MsgpackDecoder,
        outputs_queue: asyncio.Queue[EngineCoreOutputs | EngineError],
        readable: asyncio.Event,
    ) -> None:
        """Move outputs from the socket to the queue. The end of the loop cancels it, and the next loop continues.

        `readable` is set when the socket may have a message, and when the engine process has ended.
        """
        output_socket = resources.output_socket
        assert output_socket is not None
        try:
            while True:
                # The descriptor only signals a change. Read the socket until it is empty.
                readable.clear()
                try:
                    frames = output_socket.recv_multipart(zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    if resources.cause_of_death is None:
                        await readable.wait()
                        continue
                    await asyncio.sleep(_DRAIN_TIMEOUT)
                    if output_socket.poll(0):
                        continue
                    resources.declare_dead(resources.cause_of_death)
                    break
                resources.validate_alive(frames)
                outputs: EngineCoreOutputs = decoder.decode(frames)
                if outputs.utility_output is not None:
                    _process_utility_output(outputs.utility_output, resources.utility_results)
                else:
                    outputs_queue.put_nowait(outputs)
                await asyncio.sleep(0)  # let the reader of these outputs run before the next message is read
        except EngineError as error:
            resources.declare_dead(str(error))

    async def get_output_async(self) -> EngineCoreOutputs:
        """Await the next outputs.

        Raises:
            EngineDeadError: no more will come.
        """
        self._ensure_output_queue_task()
        if self.resources.engine_dead and self.outputs_queue.empty():
            raise self.resources.dead_error()
        outputs = await self.outputs_queue.get()
        if isinstance(outputs, EngineError):
            raise outputs
        return self._without_aborted(outputs)

    async def _send_input(self, request_type: EngineCoreRequestType, request: Any, engine: bytes | None = None) -> None:
        """Send a message to an engine core, by default the first."""
        self.ensure_alive()
        if request_type is not EngineCoreRequestType.ABORT:  # an abort has no answer, and may come as the loop ends
            self._ensure_output_queue_task()
        add = request_type is EngineCoreRequestType.ADD
        frames = self._encode_request(request) if add else self.encoder.encode(request)
        self._send_input_message(request_type, frames, request, engine)

    async def call_utility_async(self, method: str, *args: Any) -> Any:
        """See `SyncMPClient.call_utility`."""
        return await self._call_utility_async(method, *args)

    async def _call_utility_async(self, method: str, *args: Any, engine: bytes | None = None) -> Any:
        call_id = uuid.uuid1().int >> 64
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self._send_input(EngineCoreRequestType.UTILITY, (0, call_id, method, args), engine)
        self.utility_results[call_id] = future
        try:
            return await future
        finally:
            self.utility_results.pop(call_id, None)

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        """See `SyncMPClient.add_request`."""
        await self._send_input(EngineCoreRequestType.ADD, request)

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        """See `SyncMPClient.abort_requests`."""
        if request_ids and not self.resources.engine_dead:
            await self._send_input(EngineCoreRequestType.ABORT, request_ids)

    async def reset_prefix_cache_async(self) -> bool:
        """See `EngineCore.reset_prefix_cache`."""
        done: bool = await self.call_utility_async("reset_prefix_cache")
        return done
