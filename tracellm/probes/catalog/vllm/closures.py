"""Stand-ins for two loops of vLLM that are nested functions, which a probe cannot find by name.

`AsyncLLM._run_output_handler` makes `output_handler` and runs it as a task; the clients make `process_outputs_socket`,
AsyncMPClient for a task and SyncMPClient for a thread. Each runs as long as the engine, though the first request may
start it. The loop is passed to a function here, which is recorded in its place, with the name and file of the original.

This module is imported just before the first loop runs, so its functions are wrapped on import, like any others.

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
    """Await the `output_handler` of an AsyncLLM; recorded in its place."""
    return await coroutine


async def process_outputs_socket(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await the `process_outputs_socket` of an AsyncMPClient; recorded in its place."""
    return await coroutine


def process_outputs_socket_thread(run: Callable[[], None]) -> None:
    """Run the `process_outputs_socket` of a SyncMPClient; recorded in its place."""
    run()


def stand_in(name: str) -> None:
    """Run the next task of the running event loop within the function `name` of this module.

    To be called just before vLLM makes that task, in the same turn of the loop. Any other task is made as usual.
    """
    loop = asyncio.get_running_loop()
    previous = loop.get_task_factory()

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> Any:
        loop.set_task_factory(previous)
        if getattr(getattr(coroutine, "cr_code", None), "co_name", None) == name:
            coroutine = globals()[name](coroutine)
        return asyncio.Task(coroutine, loop=loop, **more) if previous is None else previous(loop, coroutine, **more)

    loop.set_task_factory(make)


def _name_as(function: Any, module: str, maker: str, name: str) -> None:
    """Give `function` the name and place in the code of the closure `name` that the method `maker` makes."""
    class_name, _, method = maker.partition(".")
    code = inspect.unwrap(vars(getattr(sys.modules[module], class_name))[method]).__code__
    closure = next((const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == name), None)
    assert isinstance(function, FunctionType)
    function.__module__, function.__qualname__ = module, f"{class_name}.{name}"
    if closure is not None:
        function.__code__ = function.__code__.replace(
            co_filename=closure.co_filename, co_firstlineno=closure.co_firstlineno
        )


_CLIENT = "vllm.v1.engine.core_client"

if "vllm.v1.engine.async_llm" in sys.modules:
    _name_as(output_handler, "vllm.v1.engine.async_llm", "AsyncLLM._run_output_handler", "output_handler")
if _CLIENT in sys.modules:
    _name_as(process_outputs_socket, _CLIENT, "AsyncMPClient._ensure_output_queue_task", "process_outputs_socket")
    _name_as(process_outputs_socket_thread, _CLIENT, "SyncMPClient.__init__", "process_outputs_socket")
