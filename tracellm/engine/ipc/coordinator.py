"""The coordinator of several engine cores (data parallelism): their load, and the waves of their steps.

    engine cores ── numbers of requests, ends of waves ──> coordinator ── both, to choose an engine core ──> client
    engine cores <─────────── START_DP_WAVE ────────────── coordinator <── first request of a wave ───────── client

Engine cores step together, because in models with experts on several of them each needs the others. They run, in a
*wave*, while any has a request, and all stop together (core/dp_core_proc.py). The first request after that goes to one
engine core; the coordinator starts the others. The client (ipc/dp_client.py) sends each request to the engine core with
the smallest load.

vLLM: vllm/v1/engine/coordinator.py::DPCoordinatorProc. Left out: engine cores on other machines or that join later.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import zmq

from tracellm.engine.ipc.spawn import end_with_parent

if TYPE_CHECKING:
    from tracellm.engine.ipc.launch import EngineZmqAddresses
    from tracellm.engine.ipc.messages import EngineCoreOutputs

__all__ = ["DPCoordinatorProc", "DPStats", "run_coordinator"]

_MIN_STATS_UPDATE_INTERVAL = 0.1
"""Seconds between publications of the numbers of requests, as in vLLM."""
_SUBSCRIPTIONS = (b"\x01", b"\x00")
"""Messages of ZeroMQ when a subscriber comes or leaves."""


class DPStats(msgspec.Struct, array_like=True):
    """State of the engine cores, as the coordinator publishes it."""

    counts: list[tuple[int, int]] | None
    """Waiting and running requests of each engine core; None when only the wave has changed."""
    current_wave: int
    engines_running: bool


class DPCoordinatorProc:
    """The coordinator in its process."""

    def __init__(self, num_engines: int) -> None:
        from tracellm.engine.ipc.messages import EngineCoreOutputs
        from tracellm.engine.ipc.serial_utils import MsgpackDecoder, MsgpackEncoder

        self.encoder, self.decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)
        self.counts = [(0, 0)] * num_engines
        self.current_wave = 0
        self.engines_running = False
        self.last_publish_time = 0.0
        self.stats_changed = False

    def run(self, addresses: EngineZmqAddresses) -> None:
        """Serve the engine cores and the client until SIGTERM."""
        with zmq.Context() as ctx:
            self.publish_front = _bind(ctx, zmq.XPUB, addresses.frontend_stats_publish_address)
            self.publish_back = _bind(ctx, zmq.XPUB, addresses.coordinator_input)
            output_back = _bind(ctx, zmq.PULL, addresses.coordinator_output)
            try:
                for _ in self.counts:  # a message to an engine core that has not subscribed would be lost
                    self.publish_back.recv()
                self.publish_back.send(b"READY")
                self.process_input_socket(output_back)
            finally:
                ctx.destroy(linger=0)

    def process_input_socket(self, output_back: zmq.Socket[bytes]) -> None:
        """Receive messages, and publish the numbers of requests when they have changed."""
        poller = zmq.Poller()
        poller.register(self.publish_front, zmq.POLLIN)
        poller.register(output_back, zmq.POLLIN)
        while True:
            if not (events := poller.poll(self._get_timeout_ms())):
                self._publish_stats(self.counts)
            for source, _ in events:
                if source is self.publish_front:
                    if (message := source.recv()) not in _SUBSCRIPTIONS:
                        self._handle_first_request(*msgspec.msgpack.decode(message))
                else:
                    self._handle_outputs(self.decoder.decode(source.recv_multipart(copy=False)))

    def _get_timeout_ms(self) -> int | None:
        if not self.stats_changed:
            return None
        seconds = self.last_publish_time + _MIN_STATS_UPDATE_INTERVAL - time.monotonic()
        return math.ceil(max(0.0, seconds) * 1000)

    def _handle_first_request(self, engine_index: int, wave: int) -> None:
        """Start the engine cores other than the one that has the request of the client.

        The client may have sent it before it received the end of the wave; then that engine core is started as well.
        """
        if not self.engines_running:
            exclude = engine_index if wave >= self.current_wave else None
            self._set_wave(self.current_wave, engines_running=True)
            self._send_start_wave(self.current_wave, exclude)

    def _handle_outputs(self, outputs: EngineCoreOutputs) -> None:
        """Update the state from an engine core's message."""
        if (scheduler_stats := outputs.scheduler_stats) is not None:
            self.counts[outputs.engine_index] = (scheduler_stats.num_waiting_reqs, scheduler_stats.num_running_reqs)
            self.stats_changed = True
        if outputs.wave_complete is not None:
            if self.current_wave <= outputs.wave_complete:
                self._set_wave(outputs.wave_complete + 1, engines_running=False)
        elif outputs.start_wave is not None:
            self._handle_late_request(outputs.engine_index, outputs.start_wave)

    def _handle_late_request(self, engine_index: int, wave: int) -> None:
        """Start the engine cores other than the one that has got a request after the end of its wave."""
        if wave > self.current_wave or (wave == self.current_wave and not self.engines_running):
            self._set_wave(wave, engines_running=True)
            self._send_start_wave(wave, engine_index)

    def _set_wave(self, wave: int, engines_running: bool) -> None:
        self.current_wave, self.engines_running = wave, engines_running
        self._publish_stats(None)

    def _publish_stats(self, counts: list[tuple[int, int]] | None) -> None:
        """Send the state to the client."""
        stats = DPStats(counts, self.current_wave, self.engines_running)
        self.publish_front.send(msgspec.msgpack.encode(stats))
        if counts is not None:
            self.last_publish_time, self.stats_changed = time.monotonic(), False

    def _send_start_wave(self, wave: int, exclude_engine_index: int | None) -> None:
        """Make the engine cores step, except one that does so by itself."""
        from tracellm.engine.ipc.messages import EngineCoreRequestType

        frames = self.encoder.encode((wave, exclude_engine_index))
        self.publish_back.send_multipart((EngineCoreRequestType.START_DP_WAVE.value, *frames))


def _bind(ctx: zmq.Context[Any], kind: int, address: str | None) -> zmq.Socket[bytes]:
    bound: zmq.Socket[bytes] = ctx.socket(kind)
    bound.set_hwm(0)
    if kind == zmq.XPUB:
        bound.setsockopt(zmq.XPUB_VERBOSE, 1)  # report each subscriber, not only the first
    bound.bind(str(address))
    return bound


def run_coordinator(num_engines: int, addresses: EngineZmqAddresses) -> None:
    """Run the coordinator until SIGTERM or the death of the parent; the main function of its process."""
    signal.signal(signal.SIGTERM, lambda signum, frame: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by `CoreEngineProcManager.start`
    end_with_parent()
    DPCoordinatorProc(num_engines).run(addresses)
