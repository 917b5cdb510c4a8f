"""The client of several engine cores (data parallelism): each request goes to the one with the smallest load.

`AsyncLLM` uses it with `data_parallel_size` > 1. The coordinator (coordinator.py) publishes the numbers of waiting and
running requests of the engine cores; between its messages the client counts what it sends.

vLLM: vllm/v1/engine/core_client.py (DPAsyncMPClient, DPLBAsyncMPClient). Left out: an external load balancer, several
servers, engine cores that join later. Difference: the coordinator's messages are read when requests are added and when
outputs arrive; vLLM has a task for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from tracellm.engine.ipc.coordinator import DPStats
from tracellm.engine.ipc.launch import EngineZmqAddresses
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest, EngineCoreRequestType
from tracellm.engine.ipc.mp_client import AsyncMPClient
from tracellm.engine.ipc.serial_utils import bytestr

if TYPE_CHECKING:
    from tracellm.engine.executor.abstract import Executor

__all__ = ["DPLBAsyncMPClient"]

_WAITING_WEIGHT = 4
"""Running requests that count as much as a waiting one, as in vLLM."""


class DPLBAsyncMPClient(AsyncMPClient):
    """Client for asyncio callers that balances the load of several engine cores.

    Attributes:
        lb_engines: waiting and running requests of each engine core.
        current_wave: wave of the engine cores, as the coordinator published it.
        engines_running: whether they are in this wave.
        reqs_in_flight: engine core of each unfinished request.
    """

    def launch_core_engines(
        self, addresses: EngineZmqAddresses, executor_class: type[Executor], log_stats: bool
    ) -> None:
        """Connect to the coordinator, start the processes, and wait until they are ready."""
        self.lb_engines = [(0, 0) for _ in self.core_engines]
        self.current_wave = 0
        self.engines_running = False
        self.reqs_in_flight: dict[str, bytes] = {}
        self._aborted_in: list[Counter[str]] = [Counter() for _ in self.core_engines]
        """`_aborted` of each engine core."""
        self.stats_update_socket = self.resources.stats_update_socket = self.ctx.socket(zmq.XSUB)
        self.stats_update_socket.set_hwm(0)
        self.stats_update_socket.linger = 0
        self.stats_update_socket.connect(str(addresses.frontend_stats_publish_address))
        self.stats_update_socket.send(b"\x01")  # subscribes
        super().launch_core_engines(addresses, executor_class, log_stats)

    def _update_stats(self) -> None:
        """Read the coordinator's messages."""
        with contextlib.suppress(zmq.Again):
            while True:
                stats = msgspec.msgpack.decode(self.stats_update_socket.recv(zmq.NOBLOCK), type=DPStats)
                self.lb_engines = stats.counts or self.lb_engines
                self.current_wave, self.engines_running = stats.current_wave, stats.engines_running

    def get_core_engine_for_request(self, request: EngineCoreRequest) -> bytes:
        """Return the identity of the engine core for a request: its `data_parallel_rank`, or that of the smallest load.

        The load is 4 x waiting + running requests; of equal ones the first engine core gets the request.
        """
        if (index := request.data_parallel_rank) is None:
            index = min(range(len(self.lb_engines)), key=self._get_load)
        return self.core_engines[index]

    def _get_load(self, index: int) -> int:
        waiting, running = self.lb_engines[index]
        return _WAITING_WEIGHT * waiting + running

    async def add_request_async(self, request: EngineCoreRequest) -> None:
        """Send a request to an engine core; the first one of a wave makes the coordinator start the others.

        Raises:
            InvalidRequestError: the KV cache is too small for it, or part of it cannot be encoded.
            EngineDeadError: an engine core has ended.
        """
        self.ensure_alive()
        self._update_stats()
        request.current_wave = self.current_wave
        engine = self.get_core_engine_for_request(request)
        await self._send_input(EngineCoreRequestType.ADD, request, engine)
        self.reqs_in_flight[request.request_id] = engine
        index = self.core_engines.index(engine)
        waiting, running = self.lb_engines[index]
        self.lb_engines[index] = (waiting + 1, running)
        if not self.engines_running:
            self.stats_update_socket.send(msgspec.msgpack.encode((index, self.current_wave)))

    async def get_output_async(self) -> EngineCoreOutputs:
        """See `AsyncMPClient.get_output_async`."""
        outputs = await super().get_output_async()
        self._update_stats()
        for output in outputs.outputs:
            if output.finished:
                self.reqs_in_flight.pop(output.request_id, None)
        return outputs

    async def abort_requests_async(self, request_ids: list[str]) -> None:
        """Abort requests, each in its engine core."""
        by_engine: defaultdict[bytes, list[str]] = defaultdict(list)
        for request_id in request_ids:
            if (engine := self.reqs_in_flight.pop(request_id, None)) is not None:
                by_engine[engine].append(request_id)
        for engine, ids in by_engine.items():
            if not self.resources.engine_dead:
                await self._send_input(EngineCoreRequestType.ABORT, ids, engine)

    def _send_input_message(
        self,
        request_type: EngineCoreRequestType,
        frames: Sequence[bytestr],
        objects: Any,
        engine: bytes | None = None,
    ) -> None:
        self._aborted = self._aborted_in[self.core_engines.index(engine or self.core_engine)]
        super()._send_input_message(request_type, frames, objects, engine)

    def _without_aborted(self, outputs: EngineCoreOutputs) -> EngineCoreOutputs:
        self._aborted = self._aborted_in[outputs.engine_index]
        return super()._without_aborted(outputs)

    async def call_utility_async(self, method: str, *args: Any) -> Any:
        """Call a method of all engine cores, and return the result of the first one."""
        return (await self._call_all(method, *args))[0]

    async def _call_all(self, method: str, *args: Any) -> list[Any]:
        calls = [self._call_utility_async(method, *args, engine=engine) for engine in self.core_engines]
        return await asyncio.gather(*calls)

    async def reset_prefix_cache_async(self) -> bool:
        """Empty the prefix caches. Return False if a request holds blocks of one, which is then left."""
        return all(await self._call_all("reset_prefix_cache"))
