"""A vLLM's engine core in a process of its own, and what is said to it.

Messages are of the classes that ours have, so that they are told by the same reading of them. Two loops are functions
within functions; how they are recorded is in closures.py.

vLLM: vllm/v1/engine/core_client.py, core.py::EngineCoreProc, utils.py, vllm/v1/serial_utils.py.
"""

import sys
from typing import Any

from tracellm.probes.catalog.engine import processes as ours
from tracellm.probes.catalog.vllm.entries import at, like, plain
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names

__all__ = ["ENTRIES"]

_CLOSURES = "tracellm.probes.catalog.vllm.closures"
_MOST_FRAMES = 12

# -- the client starts the engine core --------------------------------------------------------------------------------


def _capture_launch(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """The class of the client that is being made; None where it is another that launches engine cores."""
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_qualname == "MPClient.__init__":
            return type(frame.f_locals["self"]).__name__
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _launch(client: Any) -> dict[str, Any]:
    """It is drawn as the client's, as ours is a method of it."""
    return {} if client is None else {names.LIFELINE: client}


_CLIENTS = "v1.engine.core_client"
_CORE = "v1.engine.core"
_SERIAL = "v1.serial_utils:Msgpack"

ENTRIES = (
    # the client's side
    *plain("request", _CLIENTS, "MPClient.__init__", span_name="MPClient.__init__"),
    Entry(at("v1.engine.utils:launch_core_engines"), "request", _capture_launch, _launch),
    *plain("step", "v1.engine.utils", "CoreEngineProcManager.__init__", "wait_for_engine_startup"),
    *plain("step", _CLIENTS, "MPClient.start_engine_core_monitor"),
    *plain("request", _CLIENTS, "SyncMPClient.__init__", "AsyncMPClient.__init__"),
    *plain("request", _CLIENTS, "SyncMPClient.add_request", "AsyncMPClient.add_request_async"),
    *plain("request", _CLIENTS, "DPAsyncMPClient.add_request_async"),
    *plain("request", _CLIENTS, "SyncMPClient._send_input", "AsyncMPClient._send_input"),
    *plain("step", _CLIENTS, "AsyncMPClient._send_input_message", span_name="MPClient._send_input_message"),
    *plain("step", _CLIENTS, "SyncMPClient.get_output", "AsyncMPClient.get_output_async"),
    *plain("step", _CLIENTS, "SyncMPClient.abort_requests", "AsyncMPClient.abort_requests_async"),
    *plain("request", _CLIENTS, "SyncMPClient.call_utility", "AsyncMPClient.call_utility_async"),
    *(
        Entry(
            f"{_CLOSURES}:{name}",
            "request",
            lifeline=client,
            loop=True,
            span_name=f"{client}.process_outputs_socket",
        )
        for name, client in (
            ("process_outputs_socket", "AsyncMPClient"),
            ("process_outputs_socket_thread", "SyncMPClient"),
        )
    ),
    *plain("request", _CLIENTS, "MPClient.shutdown", span_name="MPClient.shutdown"),
    Entry(
        at("v1.engine.utils:CoreEngineProcManager.close"),
        "step",
        other_targets=(at("v1.engine.utils:CoreEngineProcManager.shutdown"),),
    ),
    # the engine core's side
    *plain("request", _CORE, "EngineCoreProc.run_engine_core", "EngineCoreProc.__init__"),
    *plain("step", _CORE, "EngineCoreProc._perform_handshakes", "EngineCoreProc.startup_handshake"),
    *plain("request", _CORE, "EngineCoreProc.run_busy_loop", "DPEngineCoreProc.run_busy_loop", loop=True),
    *plain("step", _CORE, "EngineCoreProc._process_input_queue", loop=True),
    *plain("step", _CORE, "EngineCoreProc._process_engine_step"),
    *plain("request", _CORE, "EngineCoreProc._handle_client_request"),
    *plain("request", _CORE, "EngineCoreProc.process_input_sockets", loop=True),
    *plain("request", _CORE, "EngineCoreProc.process_output_sockets", loop=True),
    *plain("request", _CORE, "EngineCoreProc._send_engine_dead", "EngineCore.shutdown"),
    # a worker in a process of its own: what it is told to do comes out of memory that it shares with the executor
    *plain("request", "v1.executor.multiproc_executor", "WorkerProc.worker_busy_loop", loop=True),
    # what is said
    like(ours.ENTRIES, "MsgpackEncoder.encode", _SERIAL + "Encoder.encode"),
    like(ours.ENTRIES, "MsgpackEncoder.encode_into", _SERIAL + "Encoder.encode_into"),
    like(ours.ENTRIES, "MsgpackDecoder.decode", _SERIAL + "Decoder.decode"),
)
