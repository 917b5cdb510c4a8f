"""Clients whose engine core runs in a process of its own: requests go through one socket, outputs come through another.

    SyncMPClient   for LLM: a thread waits for outputs, `get_output` takes the next out of a queue
    AsyncMPClient  for AsyncLLM: a task waits for outputs, `get_output_async` awaits the next

The engine core steps on by itself, whether or not anyone takes its outputs. What both clients have in common is in
mp_base.py.

vLLM: vllm/v1/engine/core_client.py. Left out: data parallelism. Otherwise than there: when the engine process dies,
whoever waits is told, and told why; the asynchronous client uses plain sockets of ZeroMQ, which are not bound to one
event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import zmq

from tracellm.engine.config.errors import EngineError, format_error
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest, EngineCoreRequestType, UtilityOutput
from tracellm.engine.ipc.mp_base import MPClient
from tracellm.engine.ipc.mp_resources import AnyFuture, BackgroundResources
from tracellm.engine.ipc.serial_utils import MsgpackDecoder

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.executor.abstract import Executor

__all__ = ["AsyncMPClient", "MPClient", "SyncMPClient"]

_LAST_OUTPUTS = 0.1  # seconds in which what a dead process had sent is certainly here


def _process_utility_output(output: UtilityOutput, utility_results: dict[int, AnyFuture]) -> None:
    """Give the answer to whoever waits for it, if somebody still does."""
    future = utility_results.pop(output.call_id, None)
    if future is None or future.done():
        return
    if output.failure_message is not None:
        future.set_exception(EngineError(output.failure_message))
    else:
        assert output.result is not None
        future.set_result(output.result.result)


def _send_byte(wake: socket.socket) -> None:
    with contextlib.suppress(OSError):  # closed: the thread has ended
        wake.send(b"x")


class SyncMPClient(MPClient):
    """For callers that wait. Its methods may be called from several threads."""

    def __init__(self, vllm_config: VllmConfig, executor_class: type[Executor], log_stats: bool) -> None:
        super().__init__(vllm_config, executor_class, log_stats)
        self.outputs_queue: queue.Queue[EngineCoreOutputs | EngineError] = queue.Queue()
        wake, woken = socket.socketpair()
        thread = threading.Thread(
            target=self.process_outputs_socket,
            args=(self.resources, self.decoder, self.outputs_queue, woken),
            name="EngineCoreOutputQueueThread",
            daemon=True,
        )
        self.resources.wake, self.resources.output_queue_thread = wake, thread
        thread.start()
        self.resources.notify = lambda: _send_byte(wake)
        if self.resources.cause_of_death is not None:  # just now
            _send_byte(wake)

    @staticmethod
    def process_outputs_socket(
        resources: BackgroundResources,
        decoder: MsgpackDecoder,
        outputs_queue: queue.Queue[EngineCoreOutputs | EngineError],
        woken: socket.socket,
    ) -> None:
        """Take what comes out of the socket, until nothing can come any more; the last thing in the queue is an error.

        It is the thread's function, and has no reference to the client.
        """
        output_socket = resources.output_socket
        assert output_socket is not None
        poller = zmq.Poller()
        poller.register(output_socket, zmq.POLLIN)
        poller.register(woken, zmq.POLLIN)
        try:
            while not resources.engine_dead:  # this very thread may collect the client, which closes the socket
                if not any(source is output_socket for source, _ in poller.poll()):
                    if resources.cause_of_death is None:
                        break  # shut down
                    if not output_socket.poll(int(_LAST_OUTPUTS * 1000)):
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
            woken.close()
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
            self.outputs_queue.put_nowait(outputs)  # for another thread that waits
            raise self.resources.dead_error()
        return self._without_aborted(outputs)

    def _send_input(self, request_type: EngineCoreRequestType, request: Any) -> None:
        with self.resources.sending:
            self.ensure_alive()
            add = request_type is EngineCoreRequestType.ADD
            frames = self._encode_request(request) if add else self.encoder.encode(request)
            self._send_input_message(request_type, frames, request)

    def call_utility(self, method: str, *args: Any) -> Any:
        """Call a method of the engine core, one of `EngineCoreProc.UTILITY_METHODS`; what it returns.

        Raises:
            EngineError: it is none of these, or it raised something.
            EngineDeadError: nobody is there to answer.
        """
        call_id = uuid.uuid1().int >> 64
        future: Future[Any] = Future()
        self.utility_results[call_id] = future
        try:
            self._send_input(EngineCoreRequestType.UTILITY, (0, call_id, method, args))
            if self.resources.engine_dead:  # just now, and nobody may have seen this call
                self.resources.fail_utility_calls()
            return future.result()
        finally:
            self.utility_results.pop(call_id, None)

    def add_request(self, request: EngineCoreRequest) -> None:
        """Send a request.

        Raises:
            InvalidRequestError: the KV cache is too small for it, or something in it cannot be sent.
            EngineDeadError: nobody is there to take it.
        """
        self._send_input(EngineCoreRequestType.ADD, request)

    def abort_requests(self, request_ids: list[str]) -> None:
        """Give requests up; nothing happens to those that have ended, or when the engine core is dead."""
        if request_ids and not self.resources.engine_dead:
            self._send_input(EngineCoreRequestType.ABORT, request_ids)

    def reset_prefix_cache(self) -> bool:
        """See `EngineCore.reset_prefix_cache`."""
        done: bool = self.call_utility("reset_prefix_cache")
        return done


class AsyncMPClient(MPClient):
    """For callers in an event loop, one at a time; a new loop may follow when one has ended."""

    def __init__(self, vllm_config: VllmConfig, executor_class: type[Executor], log_stats: bool) -> None:
        super().__init__(vllm_config, executor_class, log_stats)
        self.outputs_queue: asyncio.Queue[EngineCoreOutputs | EngineError] = asyncio.Queue()
        with contextlib.suppress(RuntimeError):  # no loop yet: then with the first call
            asyncio.get_running_loop()
            self._ensure_output_queue_task()

    def _ensure_output_queue_task(self) -> None:
        """Start the task that waits for outputs, in this loop, unless it runs already or the engine core is dead."""
        resources, loop = self.resources, asyncio.get_running_loop()
        if resources.engine_dead or (resources.loop is loop and resources.output_queue_task is not None):
            return
        outputs_queue, readable = self.outputs_queue, asyncio.Event()
        queue_of_this_loop: asyncio.Queue[EngineCoreOutputs | EngineError] = asyncio.Queue()
        self.outputs_queue = queue_of_this_loop
        while not outputs_queue.empty():
            queue_of_this_loop.put_nowait(outputs_queue.get_nowait())
        output_socket = resources.output_socket
        assert output_socket is not None
        watched = [int(output_socket.getsockopt(zmq.FD))]
        loop.add_reader(watched[0], readable.set)

        def stop_reading() -> None:
            if watched:
                loop.remove_reader(watched.pop())

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: then nobody waits
                loop.call_soon_threadsafe(readable.set)

        def ended(task: asyncio.Task[None]) -> None:
            stop_reading()
            if resources.output_queue_task is task:
                resources.output_queue_task = None
            if not task.cancelled() and (error := task.exception()) is not None:
                resources.declare_dead(f"The client of the engine core cannot go on: {format_error(error)}")
            if resources.engine_dead:
                queue_of_this_loop.put_nowait(resources.dead_error())
                resources.fail_utility_calls()

        resources.loop, resources.stop_reading, resources.notify = loop, stop_reading, notify
        resources.output_queue_task = asyncio.create_task(
            self.process_outputs_socket(resources, self.decoder, self.outputs_queue, readable),
            name="EngineCoreOutputQueueTask",
        )
        resources.output_queue_task.add_done_callback(ended)  # also when it is cancelled before it has begun

    @staticmethod
    async def process_outputs_socket(
        resources: BackgroundResources,
        decoder: MsgpackDecoder,
        outputs_queue: asyncio.Queue[EngineCoreOutputs | EngineError],
        readable: asyncio.Event,
    ) -> None:
        """As `SyncMPClient.process_outputs_socket`, for the task. Cancelled when its loop ends, it leaves all as it is.

        `readable` is set when there may be something in the socket, or when the engine process has ended.
        """
        output_socket = resources.output_socket
        assert output_socket is not None
        try:
            while True:
                # The socket's descriptor says that something has changed, only the socket itself says what.
                readable.clear()
                try:
                    frames = output_socket.recv_multipart(zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    if resources.cause_of_death is None:
                        await readable.wait()
                        continue
                    await asyncio.sleep(_LAST_OUTPUTS)
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
                await asyncio.sleep(0)  # whoever waits for these outputs comes next, even if more are there
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

    async def _send_input(self, request_type: EngineCoreRequestType, request: Any) -> None:
        self.ensure_alive()
        if request_type is not EngineCoreRequestType.ABORT:  # which brings nothing, and may come when the loop ends
            self._ensure_output_queue_task()
        add = request_type is EngineCoreRequestType.ADD
        frames = self._encode_request(request) if add else self.encoder.encode(request)
        self._send_input_message(request_type, frames, request)

    async def call_utility_async(self, method: str, *args: Any) -> Any:
        """As `SyncMPClient.call_utility`."""
        call_id = uuid.uuid1().int >> 64
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self._send_input(EngineCoreRequestType.UTILITY, (0, call_id, method, args))
        self.utility_results[call_id] = future
        try:
            return await future
        finally:
            self.utility_results.pop(call_id, None)

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        """As `SyncMPClient.add_request`."""
        await self._send_input(EngineCoreRequestType.ADD, request)

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        """As `SyncMPClient.abort_requests`."""
        if request_ids and not self.resources.engine_dead:
            await self._send_input(EngineCoreRequestType.ABORT, request_ids)

    async def reset_prefix_cache_async(self) -> bool:
        """See `EngineCore.reset_prefix_cache`."""
        done: bool = await self.call_utility_async("reset_prefix_cache")
        return done
