"""Processes of a vLLM where they differ: the choice of its client, loops without a name, workers, its server.

`make_client` decides in its body, so the rule is derived here from the same two inputs, as in our core_client.py; the
client that was made is recorded as the choice. `make_async_mp_client` chooses again where there are several cores.

vLLM: vllm/v1/engine/core_client.py, utils.py, async_llm.py, vllm/v1/executor/multiproc_executor.py, vllm/entrypoints/.
"""

import sys
from contextlib import suppress
from typing import Any

from tracellm.probes.catalog.engine.processes import client_attributes
from tracellm.probes.catalog.entries import argument, vllm_only
from tracellm.probes.context.call_context import CALL, PLACE, TraceScope, call_and_place, later_place, spot_here, state
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace import names

__all__ = ["ENTRIES", "RemoteMethod", "attach_call_context"]

# -- the choice of a client -------------------------------------------------------------------------------------------

_RULES = {
    (False, False): ("InprocClient", "not multiprocess_mode and not asyncio_mode"),
    (True, False): ("SyncMPClient", "multiprocess_mode and not asyncio_mode"),
    (True, True): ("AsyncMPClient", "multiprocess_mode and asyncio_mode"),
    (False, True): ("none", "asyncio_mode and not multiprocess_mode"),
}
"""Usual client and condition, by multiprocess_mode and asyncio_mode."""


def _capture_make_client(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    multiprocess = bool(argument(args, kwargs, 0, "multiprocess_mode"))
    asyncio = bool(argument(args, kwargs, 1, "asyncio_mode"))
    executor = argument(args, kwargs, 3, "executor_class")
    return _choice(multiprocess, asyncio, executor, argument(args, kwargs, 2, "vllm_config"), result)


def _capture_async_client(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    executor = argument(args, kwargs, 1, "executor_class")
    choice = _choice(True, True, executor, argument(args, kwargs, 0, "vllm_config"), result)
    return {**choice, names.ARGUMENTS: choice[names.ARGUMENTS][2:]}


def _choice(multiprocess: bool, asyncio: bool, executor: Any, config: Any, client: Any) -> dict[str, Any]:
    num_engines = int(getattr(getattr(config, "parallel_config", None), "data_parallel_size", 1))
    usual, rule = _RULES[multiprocess, asyncio]
    if num_engines > 1 and asyncio:
        rule += f" and data_parallel_size > 1 ({num_engines})"
    attributes = {
        **client_attributes(multiprocess, asyncio, str(getattr(executor, "__name__", executor))),
        names.CLIENT_CHOICE: usual if client is None else type(client).__name__,
        names.CLIENT_RULE: rule,
    }
    return attributes if client is None else {**attributes, names.RESULT: type(client).__name__}


_MAX_FRAMES = 12


def _capture_launch(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Return the class of the client that launches the engine core, as the lifeline: ours does it in a method."""
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
    a plain text, and makes what the worker does next a part of the call.
    """

    __slots__ = ("parent", "trace_id")

    trace_id: str
    parent: str

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (str(self), self.trace_id, self.parent)


def _read(method: str, trace_id: str, parent: str) -> str:
    """Continue the executor's call in this thread of the worker until the next method is read."""
    if state.append is not None:
        spot = spot_here()
        spot[CALL], spot[PLACE] = 0, later_place(spot[PLACE], TraceScope(trace_id, parent, state.first))
    return method


def attach_call_context(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Pass the current call to the workers of a MultiprocExecutor, before its `collective_rpc`; not to those on other
    machines, which may not have this package."""
    method = argument(args, kwargs, 1, "method")
    if type(method) is not str or getattr(args[0].parallel_config, "nnodes", 1) > 1 or state.place_of is None:
        return None
    remote = RemoteMethod(method)
    remote.trace_id, parent = state.place_of(*call_and_place())
    if parent is None:
        return None
    remote.parent = parent
    return ((args[0], remote, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "method": remote})


_CLIENT = "v1.engine.core_client"
_CHOICE = {"attributes": dict, "even_if_raises": True}
_MANAGER = "v1.engine.utils:CoreEngineProcManager"
_RENDERER = "renderers.online_renderer:OnlineRenderer"

ENTRIES = (
    *vllm_only("request", f"{_CLIENT}:EngineCoreClient", "make_client", capture=_capture_make_client, **_CHOICE),
    *vllm_only(
        "request", f"{_CLIENT}:EngineCoreClient", "make_async_mp_client", capture=_capture_async_client, **_CHOICE
    ),
    *vllm_only("request", "v1.engine.utils", "launch_core_engines", capture=_capture_launch, attributes=dict),
    *vllm_only("step", _MANAGER, "__init__"),
    *vllm_only("request", f"{_CLIENT}:DPAsyncMPClient", "add_request_async"),
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
    *vllm_only("request", "v1.engine.core:DPEngineCoreProc", "run_busy_loop", loop=True),
    *vllm_only("request", "v1.engine.core:EngineCore", "shutdown"),
    *vllm_only("request", "v1.executor.multiproc_executor:WorkerProc", "worker_busy_loop", loop=True),
    *vllm_only("request", "entrypoints.launchers.api_server.entry", "build_and_serve", lifeline="api_server.py"),
    *vllm_only("request", "entrypoints.cli.serve", "run_multi_api_server"),
    *vllm_only("request", "v1.utils:APIServerProcessManager", "__init__"),
    *vllm_only("request", "entrypoints.cli.serve", "run_api_server_worker_proc", later="v1.utils"),
    *vllm_only("request", "v1.engine.async_llm:AsyncLLM", "_run_output_handler", before=_record_output_handler),
    *vllm_only("request", "v1.engine.async_llm:AsyncLLM", "_add_request"),
    *vllm_only("request", _RENDERER, "render_chat", "preprocess_chat", "render_completion"),
    *vllm_only("request", "renderers.base:BaseRenderer", "render_cmpl_async", "render_chat_async"),
)
