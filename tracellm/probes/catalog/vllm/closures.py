"""Two loops of vLLM's that have no name by which they could be found: functions within functions.

`AsyncLLM._run_output_handler` makes `output_handler` and runs it as a task; the clients make `process_outputs_socket`,
AsyncMPClient for a task and SyncMPClient for a thread. Each runs as long as the engine does and belongs to no request,
though the first request may happen to start it. Here are functions in whose stead they can be recorded: what is about
to be run is handed to them. They stand for vLLM's code, and so they say that they are it.

This module is imported when the first of them is about to run, and not before: its functions are found, and wrapped,
as any other that is imported.

vLLM: vllm/v1/engine/async_llm.py, vllm/v1/engine/core_client.py.
"""

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine
from types import CodeType, FunctionType
from typing import Any

__all__ = ["output_handler", "process_outputs_socket", "process_outputs_socket_thread", "stand_in"]


async def output_handler(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Stands for the `output_handler` of an AsyncLLM."""
    return await coroutine


async def process_outputs_socket(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Stands for the `process_outputs_socket` of an AsyncMPClient."""
    return await coroutine


def process_outputs_socket_thread(run: Callable[[], None]) -> None:
    """Stands for the `process_outputs_socket` of a SyncMPClient."""
    run()


def stand_in(name: str) -> None:
    """Let the next task that the running event loop is to make run within the function `name` of this module.

    To be called just before vLLM makes that task, in the same turn of the loop. Should the task be another's, it is
    made as ever.
    """
    loop = asyncio.get_running_loop()
    usual = loop.get_task_factory()

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
        loop.set_task_factory(usual)
        if getattr(getattr(coroutine, "cr_code", None), "co_name", None) == name:
            coroutine = globals()[name](coroutine)
        return asyncio.Task(coroutine, loop=loop, **more) if usual is None else usual(loop, coroutine, **more)

    loop.set_task_factory(make)


def _is(function: Any, module: str, within: str, name: str) -> None:
    """Let `function` stand for the one that `Class.method` of a module of vLLM's makes under this name."""
    class_name, _, method = within.partition(".")
    maker = inspect.unwrap(vars(getattr(sys.modules[module], class_name))[method])
    codes = (one for one in maker.__code__.co_consts if isinstance(one, CodeType) and one.co_name == name)
    code = next(codes, None)
    assert isinstance(function, FunctionType)
    function.__module__, function.__qualname__ = module, f"{class_name}.{name}"
    if code is not None:
        own = function.__code__
        function.__code__ = own.replace(co_filename=code.co_filename, co_firstlineno=code.co_firstlineno)


_CLIENT = "vllm.v1.engine.core_client"

if "vllm.v1.engine.async_llm" in sys.modules:
    _is(output_handler, "vllm.v1.engine.async_llm", "AsyncLLM._run_output_handler", "output_handler")
if _CLIENT in sys.modules:
    _is(process_outputs_socket, _CLIENT, "AsyncMPClient._ensure_output_queue_task", "process_outputs_socket")
    _is(process_outputs_socket_thread, _CLIENT, "SyncMPClient.__init__", "process_outputs_socket")
