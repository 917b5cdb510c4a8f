"""The engine core in a process of its own: the clients, the sockets, the loops on both sides, and what is said.

Worth telling: who started whom, and of each message what it is, how many bytes in how many frames, and an id that both
sides can read off it, so that its two ends find each other.
"""

from typing import Any

from tracellm.probes.catalog.helpers import argument, inherited, loops, plain
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "message_of"]

# -- messages ---------------------------------------------------------------------------------------------------------


def message_of(obj: Any) -> tuple[str, str]:
    """Type and id of a message, made of its content; of what is no message of the engine's, its class and nothing."""
    kind = obj.__class__.__name__
    if kind == "EngineCoreRequest":
        return "ADD", f"ADD {obj.request_id}"
    if kind == "EngineCoreOutputs":
        if obj.utility_output is not None:
            return "UTILITY_OUTPUT", f"UTILITY_OUTPUT {obj.engine_index} {obj.utility_output.call_id}"
        return "OUTPUTS", f"OUTPUTS {obj.engine_index} {obj.timestamp!r}"
    if isinstance(obj, list | tuple):
        if len(obj) == 4 and isinstance(obj[1], int):
            return "UTILITY", f"UTILITY {obj[0]} {obj[1]}"
        if all(isinstance(one, str) for one in obj):
            return "ABORT", f"ABORT {','.join(obj)}"
    return kind, ""


def _bytes(frames: Any) -> tuple[int, int]:
    """How many bytes, in how many frames."""
    if isinstance(frames, bytes | bytearray | memoryview) or hasattr(frames, "buffer"):
        frames = [frames]
    return sum(_size(frame) for frame in frames), len(frames)


def _size(frame: Any) -> int:
    size = getattr(frame, "nbytes", None)  # of a view, and of zmq.Frame's buffer; len() would count elements
    if size is None and (buffer := getattr(frame, "buffer", None)) is not None:
        size = buffer.nbytes
    return len(frame) if size is None else int(size)


def _capture_sent(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    obj = argument(args, kwargs, 1, "obj")
    return "send", *message_of(obj), *_bytes(result)


def _capture_received(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return "receive", *message_of(result), *_bytes(argument(args, kwargs, 1, "bufs"))


def _observe_sent(tracker: RequestTracker, span: Span, facts: Any, given: dict[str, Any]) -> None:
    """Outputs are those of the step that made them, whatever the engine core has begun since."""
    if facts is not None and facts[1] == "OUTPUTS" and (step := tracker.step_of(facts[2])) is not None:
        span.attributes[names.MESSAGE_STEP] = step


def _message(facts: Any) -> dict[str, Any]:
    operation, kind, message_id, num_bytes, frames = facts
    size = f"{num_bytes} bytes"
    told = {names.ARGUMENTS: [f"obj={kind}"], names.RESULT: size}
    if operation == "receive":
        told = {names.ARGUMENTS: [f"bufs={size}"], names.RESULT: kind}
    if message_id:
        told |= {
            names.MESSAGE_SYSTEM: "zeromq",
            names.MESSAGE_OPERATION: operation,
            names.MESSAGE_TYPE: kind,
            names.MESSAGE_ID: message_id,
            names.MESSAGE_BYTES: num_bytes,
            names.MESSAGE_FRAMES: frames,
        }
    return told


_CODEC = "tracellm.engine.ipc.serial_utils:Msgpack"

ENTRIES = (
    # the client's side
    *inherited("request", "ipc.mp_client", "MPClient.__init__", "MPClient.launch_core_engines"),
    *plain("step", "ipc.launch", "CoreEngineProcManager.start", "wait_for_engine_startup"),
    *plain("step", "ipc.mp_client", "MPClient.start_engine_core_monitor"),
    *plain("request", "ipc.mp_client", "SyncMPClient.__init__", "AsyncMPClient.__init__"),
    *plain("request", "ipc.mp_client", "SyncMPClient.add_request", "AsyncMPClient.add_request_async"),
    *plain("request", "ipc.mp_client", "SyncMPClient._send_input", "AsyncMPClient._send_input"),
    *inherited("step", "ipc.mp_client", "MPClient._send_input_message"),
    *plain("step", "ipc.mp_client", "SyncMPClient.get_output", "AsyncMPClient.get_output_async"),
    *plain("step", "ipc.mp_client", "SyncMPClient.abort_requests", "AsyncMPClient.abort_requests_async"),
    *plain("request", "ipc.mp_client", "SyncMPClient.call_utility", "AsyncMPClient.call_utility_async"),
    *loops("request", "ipc.mp_client", "SyncMPClient.process_outputs_socket", "AsyncMPClient.process_outputs_socket"),
    *inherited("request", "ipc.mp_client", "MPClient.shutdown"),
    *plain("request", "ipc.mp_client", "BackgroundResources.died_by_itself"),
    *plain("step", "ipc.launch", "CoreEngineProcManager.close"),
    # the engine core's side
    *plain("request", "core.core_proc", "EngineCoreProc.run_engine_core", "EngineCoreProc.__init__"),
    *plain("step", "core.core_proc", "EngineCoreProc._perform_handshakes", "EngineCoreProc.startup_handshake"),
    *loops("request", "core.core_proc", "EngineCoreProc.run_busy_loop"),
    *loops("step", "core.core_proc", "EngineCoreProc._process_input_queue"),
    *plain("step", "core.core_proc", "EngineCoreProc._process_engine_step"),
    *plain("request", "core.core_proc", "EngineCoreProc._handle_client_request", "EngineCoreProc._call_utility"),
    *loops(
        "request", "core.core_proc", "EngineCoreProc.process_input_sockets", "EngineCoreProc.process_output_sockets"
    ),
    *plain("request", "core.core_proc", "EngineCoreProc._send_engine_dead", "EngineCoreProc.shutdown"),
    # what is said
    Entry(_CODEC + "Encoder.encode", "step", _capture_sent, _message, observe=_observe_sent),
    Entry(_CODEC + "Encoder.encode_into", "step", _capture_sent, _message, observe=_observe_sent),
    Entry(_CODEC + "Decoder.decode", "step", _capture_received, _message),
)
