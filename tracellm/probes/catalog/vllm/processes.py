"""Processes of a vLLM where they differ from tracellm's engine: loops without a name, workers, its server.

vLLM: vllm/v1/engine/core_client.py, utils.py, async_llm.py, vllm/v1/executor/multiproc_executor.py, vllm/entrypoints/.
"""

import sys
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

from tracellm.probes.catalog.engine.processes import message_attributes
from tracellm.probes.catalog.entries import argument, vllm_only
from tracellm.probes.context.call_context import (
    CALL,
    THREAD_CONTEXT,
    TraceScope,
    current_call,
    current_context,
    new_thread_context,
    state,
)
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names

__all__ = ["ENTRIES", "RemoteMethod", "attach_call_context"]

_MAX_FRAMES = 12


def _capture_launch(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Return the class of the client that launches the engine core, as the lifeline: vLLM launches it in a function."""
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return {}
        if frame.f_code.co_qualname == "MPClient.__init__":
            return {names.LIFELINE: type(frame.f_locals["self"]).__name__}
        frame = frame.f_back  # type: ignore[assignment]
    return {}


def _record_output_handler(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Let the task that `AsyncLLM._run_output_handler` makes the first time be recorded, if an event loop runs."""
    if args[0].output_handler is None:
        from tracellm.probes.catalog.vllm import closures

        with suppress(RuntimeError):
            closures.stand_in("output_handler")


# -- workers: their calls belong to the call of the executor ----------------------------------------------------------


class RemoteMethod(str):
    """Name of a method that workers are to run, with the trace and span of the call that needs it.

    A MultiprocExecutor writes it into memory shared with its workers, each of which reads it in a loop. It unpickles as
    a plain text, and makes the worker's next calls a part of the executor's call.
    """

    __slots__ = ("parent", "trace_id")

    trace_id: str
    parent: str

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (str(self), self.trace_id, self.parent)


def _read(method: str, trace_id: str, parent: str) -> str:
    """Continue the executor's call in this thread of the worker until the next method is read."""
    if state.append is not None:
        context = current_context()
        context[CALL], context[THREAD_CONTEXT] = (
            0,
            new_thread_context(context[THREAD_CONTEXT], TraceScope(trace_id, parent, state.first)),
        )
    return method


def attach_call_context(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Pass the current call to the workers of a MultiprocExecutor, before its `collective_rpc`; not to those on other
    machines, which may not have this package."""
    method = argument(args, kwargs, 1, "method")
    if type(method) is not str or getattr(args[0].parallel_config, "nnodes", 1) > 1 or state.span_ids is None:
        return None
    remote = RemoteMethod(method)
    remote.trace_id, parent = state.span_ids(*current_call())
    if parent is None:
        return None
    remote.parent = parent
    return ((args[0], remote, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "method": remote})


# -- pipeline stages: tensors from one worker to the next -------------------------------------------------------------

_num_messages: Counter[tuple[str, int, int]] = Counter()
"""Messages of this process so far, by group, sender and receiver; both ends count the same ones."""


def _capture_tensors(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Capture the tensors that a pipeline stage sends to the next one, as for tracellm's engine."""
    group = args[0]
    if operation == "send":
        tensors, peer = argument(args, kwargs, 1, "tensor_dict"), argument(args, kwargs, 2, "dst")
        ends = (group.rank, group.next_rank if peer is None else group.ranks[peer])
    else:
        tensors, peer = result[0] if isinstance(result, tuple) else result, argument(args, kwargs, 1, "src")
        ends = (group.prev_rank if peer is None else group.ranks[peer], group.rank)
    sizes = [value.nbytes for value in (tensors or {}).values() if hasattr(value, "nbytes")]
    _num_messages[counted := (group.unique_name, *ends)] += 1
    message_id = f"TENSORS {ends[0]} -> {ends[1]} {_num_messages[counted]}"
    return operation, "TENSORS", message_id, sum(sizes), len(sizes), "torch.distributed"


_CLIENT = "v1.engine.core_client"
_GROUP = "distributed.parallel_state:GroupCoordinator"
_MANAGER = "v1.engine.utils:CoreEngineProcManager"
_RENDERER = "renderers.online_renderer:OnlineRenderer"

ENTRIES = (
    *vllm_only("request", "v1.engine.utils:", "launch_core_engines", record=_capture_launch),
    *vllm_only("step", _MANAGER, "__init__"),
    *vllm_only("request", f"{_CLIENT}:DPAsyncMPClient", "add_request_async"),
    *vllm_only("request", f"{_CLIENT}:DPLBAsyncMPClient", "abort_requests_async"),
    *vllm_only("step", f"{_CLIENT}:AsyncMPClient", "_send_input_message", span_name="MPClient._send_input_message"),
    *(
        Entry(
            f"tracellm.probes.catalog.vllm.closures:{function}",
            "request",
            lifeline=owner,
            span_name=f"{owner}.{function.removesuffix('_thread')}",
            loop=True,
        )
        for function, owner in (
            ("process_outputs_socket", "AsyncMPClient"),
            ("process_outputs_socket_thread", "SyncMPClient"),
            ("output_handler", "AsyncLLM"),
        )
    ),
    Entry(f"vllm.{_MANAGER}.close", "step", other_targets=(f"vllm.{_MANAGER}.shutdown",)),
    *vllm_only("request", "v1.engine.core:EngineCore", "shutdown"),
    *vllm_only("request", "v1.executor.multiproc_executor:WorkerProc", "worker_busy_loop", loop=True),
    *(
        Entry(
            f"vllm.{_GROUP}.i{name}",
            "step",
            partial(_capture_tensors, operation),
            message_attributes,
            span_name=f"GroupCoordinator.{name}",
            other_targets=(f"vllm.{_GROUP}.{name}",),  # calls the first one, where a version has it
        )
        for name, operation in (("send_tensor_dict", "send"), ("recv_tensor_dict", "receive"))
    ),
    *vllm_only(
        "request",
        "entrypoints.launchers.api_server.entry:",
        "build_and_serve",
        added="0.32.0",
        lifeline="api_server.py",
    ),
    *vllm_only("request", "entrypoints.cli.serve:", "run_multi_api_server"),
    *vllm_only("request", "v1.utils:APIServerProcessManager", "__init__"),
    *vllm_only("request", "entrypoints.cli.serve:", "run_api_server_worker_proc", later="v1.utils:"),
    *vllm_only("request", "v1.engine.async_llm:AsyncLLM", "_run_output_handler", before=_record_output_handler),
    *vllm_only("request", "v1.engine.async_llm:AsyncLLM", "_add_request"),
    *vllm_only("request", _RENDERER, "render_chat", "preprocess_chat", "render_completion", added="0.32.0"),
    *vllm_only("request", "renderers.base:BaseRenderer", "render_cmpl_async", "render_chat_async", added="0.32.0"),
)
