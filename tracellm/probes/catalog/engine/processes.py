"""Processes around the engine core: the chosen client, the core's own process, their messages, the OpenAI server.

The spans of a message have its type, its size and an id, which sender and receiver compute from its content. Reports
match the two by this id. `http.py` has the HTTP requests.

vLLM: vllm/v1/engine/core_client.py, utils.py, core.py::EngineCoreProc, async_llm.py, vllm/entrypoints/openai/.
"""

import os
from functools import partial
from typing import Any

from tracellm.probes.catalog.entries import argument, ours_only, plain
from tracellm.probes.catalog.request_tracker import RequestTracker
from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["ENTRIES", "message_attributes"]

# -- the choice of a client -------------------------------------------------------------------------------------------


_RULES = {
    (False, False): ("InprocClient", "not multiprocess_mode and not asyncio_mode"),
    (True, False): ("SyncMPClient", "multiprocess_mode and not asyncio_mode"),
    (True, True): ("AsyncMPClient", "multiprocess_mode and asyncio_mode"),
    (False, True): ("none", "asyncio_mode and not multiprocess_mode"),
}
"""Usual client and condition, by multiprocess_mode and asyncio_mode."""


def _capture_choice(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return {names.CLIENT_CHOICE: result.name or "none", names.CLIENT_RULE: result.rule}


def _capture_make_client(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    multiprocess = bool(argument(args, kwargs, 0, "multiprocess_mode"))
    asyncio = bool(argument(args, kwargs, 1, "asyncio_mode"))
    config, executor = argument(args, kwargs, 2, "vllm_config"), argument(args, kwargs, 3, "executor_class")
    flags = [f"multiprocess_mode={multiprocess}", f"asyncio_mode={asyncio}"]
    return _client(multiprocess, asyncio, config, executor, result, flags)


def _capture_async_client(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture `make_async_mp_client`, which is `make_client` with both flags set."""
    config, executor = argument(args, kwargs, 0, "vllm_config"), argument(args, kwargs, 1, "executor_class")
    return _client(True, True, config, executor, result, [])


def _client(
    multiprocess: bool, asyncio: bool, config: Any, executor: Any, client: Any, flags: list[str]
) -> dict[str, Any]:
    """Return the inputs, the rule and the client as attributes. vLLM's `make_async_mp_client` chooses again where there
    are several engine cores."""
    name = str(getattr(executor, "__name__", executor))
    num_engines = int(getattr(getattr(config, "parallel_config", None), "data_parallel_size", 1))
    usual, rule = _RULES[multiprocess, asyncio]
    if num_engines > 1 and asyncio:
        rule += f" and data_parallel_size > 1 ({num_engines})"
    attributes = {
        names.CLIENT_MULTIPROCESS: multiprocess,
        names.CLIENT_VARIABLE_SET: "VLLM_ENABLE_V1_MULTIPROCESSING" in os.environ,
        names.CLIENT_ASYNCIO: asyncio,
        names.CLIENT_EXECUTOR: name,
        names.CLIENT_CHOICE: usual if client is None else type(client).__name__,
        names.CLIENT_RULE: rule,
        names.ARGUMENTS: [*flags, f"executor_class={name}"],
    }
    return attributes if client is None else {**attributes, names.RESULT: type(client).__name__}


def _capture_engine(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the choice of an engine core, and the loads as the client counts them."""
    client = args[0]
    return {
        names.DATA_PARALLEL_RANK: client.core_engines.index(result),
        names.DATA_PARALLEL_LOADS: [_load(*counts) for counts in client.lb_engines],
    }


def _load(waiting: int, running: int, *kv_cache_usage: float) -> int:
    """Return an engine core's load. Versions of vLLM that count the KV cache's usage do not weigh waiting requests."""
    return (1 if kv_cache_usage else 4) * waiting + running


# -- messages ---------------------------------------------------------------------------------------------------------


def _type_and_id(obj: Any) -> tuple[str, str]:
    """Return the type of a message and an id made of its content; for any other object, its class and ""."""
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
        if len(obj) == 2 and isinstance(obj[0], int):
            return "START_DP_WAVE", f"START_DP_WAVE {obj[0]}"
        if all(isinstance(item, str) for item in obj):
            return "ABORT", f"ABORT {','.join(obj)}"
    return kind, ""


def _size(frames: Any) -> tuple[int, int]:
    """Return the number of bytes and the number of frames."""
    if isinstance(frames, bytes | bytearray | memoryview) or hasattr(frames, "buffer"):
        frames = [frames]
    return sum(map(_num_bytes, frames)), len(frames)


def _num_bytes(frame: Any) -> int:
    size = getattr(frame, "nbytes", None)  # of a view, and of zmq.Frame's buffer; len() would count elements
    if size is None and (buffer := getattr(frame, "buffer", None)) is not None:
        size = buffer.nbytes
    return len(frame) if size is None else int(size)


def _capture_sent(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return "send", *_type_and_id(argument(args, kwargs, 1, "obj")), *_size(result)


def _capture_received(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    return "receive", *_type_and_id(result), *_size(argument(args, kwargs, 1, "bufs"))


def _capture_queue(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture a message between the executor and a worker; both ends count the messages."""
    queue, data = args[0], argument(args, kwargs, 1, "data")
    return operation, queue.kind, f"{queue.kind} {queue.rank} {queue.num_messages}", len(data), 1, queue.system


def _capture_tensors(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the tensors that a pipeline stage sends to the next one; both ends count the messages."""
    group, tensors = args[0], argument(args, kwargs, 1, "tensor_dict").values()
    ends = (group.rank, group.next_rank, group.num_sent)
    if operation == "receive":
        ends = (group.prev_rank, group.rank, group.num_received)
    message_id = "TENSORS {} -> {} {}".format(*ends)
    num_bytes = sum(tensor.nbytes for tensor in tensors)
    return operation, "TENSORS", message_id, num_bytes, len(tensors), "torch.distributed"


def _complete_sent(tracker: RequestTracker, span: Span, facts: Any, child_facts: dict[str, Any]) -> None:
    """Record the step that made the outputs; the engine core may already run the next one."""
    if facts is not None and facts[1] == "OUTPUTS" and (step := tracker.step_of(facts[2])) is not None:
        span.attributes[names.MESSAGE_STEP] = step


def message_attributes(facts: Any) -> dict[str, Any]:
    """Return the attributes of a sent or received message."""
    operation, kind, message_id, num_bytes, frames, *system = facts
    size = f"{num_bytes} bytes"
    attributes = {names.ARGUMENTS: [f"obj={kind}"], names.RESULT: size}
    if operation == "receive":
        attributes = {names.ARGUMENTS: [f"bufs={size}"], names.RESULT: kind}
    if message_id:
        attributes |= {
            names.MESSAGE_SYSTEM: system[0] if system else "zeromq",
            names.MESSAGE_OPERATION: operation,
            names.MESSAGE_TYPE: kind,
            names.MESSAGE_ID: message_id,
            names.MESSAGE_BYTES: num_bytes,
            names.MESSAGE_FRAMES: frames,
        }
    return attributes


# -- entries ----------------------------------------------------------------------------------------------------------

_CLIENT = "ipc.core_client:EngineCoreClient"
_BASE, _SYNC, _ASYNC = "ipc.mp_client:MPClient", "ipc.mp_client:SyncMPClient", "ipc.mp_client:AsyncMPClient"
_MANAGER = "ipc.launch:CoreEngineProcManager"
_PROC = "core.core_proc:EngineCoreProc"
_DP_CLIENT = "ipc.dp_client:DPLBAsyncMPClient"
_DP_PROC = "core.dp_core_proc:DPEngineCoreProc"
_COORDINATOR = "ipc.coordinator:DPCoordinatorProc"
_QUEUE = "distributed.message_queue:MessageQueue"
_GROUP = "distributed.parallel_state:GroupCoordinator"
_API = "entrypoints.openai.api_server:"
_FILE: dict[str, Any] = {"lifeline": "api_server.py"}  # also where a later vLLM has the function in another file
_CHAT = "entrypoints.openai.serving_chat:OpenAIServingChat"
_COMPLETION = "entrypoints.openai.serving_completion:OpenAIServingCompletion"
_RESPONSES = "entrypoints.openai.responses.serving:OpenAIServingResponses"
_ENTRY = "entrypoints.launchers.api_server.entry:"
_SENT: dict[str, Any] = {"capture": _capture_sent, "attributes": message_attributes, "observe": _complete_sent}

_CLIENTS = (
    *plain("request", _CLIENT, "make_client", record=_capture_make_client, even_if_raises=True),
    *plain("request", _CLIENT, "make_async_mp_client", record=_capture_async_client, even_if_raises=True),
    *ours_only("request", "ipc.core_client:", "choose_client", record=_capture_choice, lifeline="EngineCoreClient"),
    *plain("request", "ipc.core_client:InprocClient", "__init__"),
    *plain("request", _BASE, "__init__", inherited=True),
    *ours_only("request", _BASE, "launch_core_engines", inherited=True),
    *ours_only("step", _MANAGER, "start"),
    *plain("step", "ipc.launch:", "wait_for_engine_startup"),
    *plain("step", _BASE, "start_engine_core_monitor"),
    *plain("request", _SYNC, "__init__", "add_request", "_send_input", "call_utility"),
    *plain("request", _ASYNC, "__init__", "add_request_async", "_send_input", "call_utility_async"),
    *ours_only("step", _BASE, "_send_input_message", inherited=True),
    *plain("step", _SYNC, "get_output", "abort_requests"),
    *plain("step", _ASYNC, "get_output_async", "abort_requests_async"),
    *ours_only("request", _SYNC, "process_outputs_socket", loop=True),
    *ours_only("request", _ASYNC, "process_outputs_socket", loop=True),
    *ours_only("request", _DP_CLIENT, "add_request_async", "abort_requests_async"),
    *ours_only("step", _DP_CLIENT, "get_output_async"),
    *plain("request", _DP_CLIENT, "get_core_engine_for_request", record=_capture_engine),
    *plain("request", _BASE, "shutdown", inherited=True),
    *ours_only("request", "ipc.mp_client:BackgroundResources", "died_by_itself"),
    *ours_only("step", _MANAGER, "close"),
)

_CORE_PROCESS = (
    *plain("request", _PROC, "run_engine_core", "__init__"),
    *plain("step", _PROC, "_perform_handshakes", "startup_handshake"),
    *plain("request", _PROC, "run_busy_loop", loop=True),
    *plain("step", _PROC, "_process_input_queue", loop=True),
    *plain("step", _PROC, "_process_engine_step"),
    *plain("request", _PROC, "_handle_client_request"),
    *ours_only("request", _PROC, "_call_utility"),
    *plain("request", _PROC, "process_input_sockets", "process_output_sockets", loop=True),
    *plain("request", _PROC, "_send_engine_dead"),
    *ours_only("request", _PROC, "shutdown"),
    *plain("request", _DP_PROC, "run_busy_loop", loop=True),
    *plain("request", _DP_PROC, "_handle_client_request", "add_request"),
    *plain("step", _DP_PROC, "execute_dummy_batch", "_has_global_unfinished_reqs", "_maybe_publish_request_counts"),
    *plain("request", _COORDINATOR, "process_input_socket", loop=True),
    *ours_only("request", _COORDINATOR, "_handle_first_request", "_handle_outputs", "_publish_stats"),
    *plain("request", _COORDINATOR, "_send_start_wave"),
    *ours_only("step", _QUEUE, "enqueue", capture=partial(_capture_queue, "send"), attributes=message_attributes),
    *ours_only(
        "step", _QUEUE, "deserialize", capture=partial(_capture_queue, "receive"), attributes=message_attributes
    ),
    *ours_only(
        "step", _GROUP, "send_tensor_dict", capture=partial(_capture_tensors, "send"), attributes=message_attributes
    ),
    *ours_only("step", _GROUP, "recv_tensor_dict", "recv_object"),
    *ours_only(
        "step", _GROUP, "recv_tensors", capture=partial(_capture_tensors, "receive"), attributes=message_attributes
    ),
    *plain("step", "ipc.serial_utils:MsgpackEncoder", "encode", "encode_into", **_SENT),
    *plain(
        "step", "ipc.serial_utils:MsgpackDecoder", "decode", capture=_capture_received, attributes=message_attributes
    ),
)

_SERVER = (
    *plain("request", _API, "run_server", "run_server_worker", "build_async_engine_client", later=_ENTRY, **_FILE),
    *plain("request", _API, "build_app", later="entrypoints.launchers.app:", **_FILE),
    *plain("request", _API, "init_app_state", later="entrypoints.launchers.api_server.app_state:", **_FILE),
    *ours_only("request", "frontend.async_llm:AsyncLLM", "__init__"),
    *plain("request", "frontend.async_llm:AsyncLLM", "from_vllm_config", "from_engine_args", "generate", "add_request"),
    *plain("request", "frontend.async_llm:AsyncLLM", "abort", "shutdown"),
    *ours_only("request", "frontend.async_llm:AsyncLLM", "_run_output_handler"),
    *ours_only("request", "frontend.async_llm:", "output_handler", shown_as="AsyncLLM", loop=True),
    *plain(
        "request",
        "entrypoints.openai.serving_engine:OpenAIServing",
        "_preprocess_chat",
        "_process_inputs",
        removed="0.32.0",
    ),
    *plain("request", _CHAT, "__init__", "create_chat_completion"),
    *plain("request", _CHAT, "chat_completion_stream_generator", "chat_completion_full_generator"),
    *plain("request", _COMPLETION, "create_completion", "completion_stream_generator"),
    *plain("step", _COMPLETION, "request_output_to_completion_response"),
    *plain("request", _RESPONSES, "create_responses", "responses_full_generator", "responses_stream_generator"),
    *plain("request", _RESPONSES, "_run_background_request", "retrieve_responses", "cancel_responses"),
    *plain("request", "entrypoints.openai.serving_models:OpenAIServingModels", "show_available_models"),
    *plain(
        "request",
        "entrypoints.openai.tokenize.serving:OpenAIServingTokenization",
        "create_tokenize",
        "create_detokenize",
        later="entrypoints.serve.tokenize.serving:ServingTokenization",
    ),
    *ours_only("step", "entrypoints.openai.async_utils:AsyncTokenizer", "tokenize"),
)

ENTRIES = (*_CLIENTS, *_CORE_PROCESS, *_SERVER)
