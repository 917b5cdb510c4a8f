"""Propagation of the current call to new threads and thread pools.

A new thread starts with an empty context, so its outermost calls would have no parent. So the code that starts a
thread, or submits work to a pool, stores its current call there.

OpenTelemetry: opentelemetry-instrumentation-threading.
"""

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tracellm.probes.context.call_context import (
    STARTED_IN,
    THREAD_CONTEXT,
    TraceScope,
    context_var,
    current_call,
    current_context,
    new_context,
    new_thread_context,
    return_to,
    state,
)

__all__ = ["THREAD_PATCHES"]

Function = Callable[..., Any]

_LOOP = "vllm.v1.engine.core_client", "SyncMPClient.__init__.<locals>.process_outputs_socket"


def _start(start: Function) -> Function:
    def outer(self: Any) -> Any:
        if state.append is not None:
            call, thread = current_call()
            setattr(self, STARTED_IN, (call, thread.scope))
            _name_loop(self)
        return start(self)

    return outer


def _name_loop(thread: Any) -> None:
    """Run a loop of vLLM's that is a nested function within a module-level one, which can be recorded."""
    target = getattr(thread, "_target", None)
    if (getattr(target, "__module__", None), getattr(target, "__qualname__", None)) == _LOOP:
        with suppress(Exception):  # as below
            from tracellm.probes.catalog.vllm import closures

            thread._target = functools.partial(_run_loop, closures, target)


def _run_loop(closures: Any, target: Any) -> None:
    closures.process_outputs_socket_thread(target)  # looked up when the thread runs: wrapped by then


def _submit(submit: Function) -> Function:
    def outer(self: Any, fn: Function, /, *args: Any, **kwargs: Any) -> Any:
        if state.append is None:
            return submit(self, fn, *args, **kwargs)
        call, thread = current_call()
        return submit(self, _run_from, call, thread.scope, fn, args, kwargs)

    return outer


def _run_from(call: int, scope: TraceScope | None, fn: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `fn(*args, **kwargs)` in a pool's thread, with `call` as its parent."""
    context = current_context()
    try:
        context_var.set(new_context(new_thread_context(context[THREAD_CONTEXT], scope), call))
        return fn(*args, **kwargs)
    finally:
        return_to(context)


def _ensure_task(ensure: Function) -> Function:
    """Patch a method of vLLM's `AsyncMPClient`: the loop it makes a task of is recorded like that of a thread."""

    def outer(self: Any) -> Any:
        if state.append is not None:
            with suppress(Exception):  # differences in other versions must not break their runs
                if self.resources.output_queue_task is None:
                    from tracellm.probes.catalog.vllm import closures

                    closures.stand_in("process_outputs_socket")
        return ensure(self)

    return outer


THREAD_PATCHES = {
    "threading:Thread.start": _start,
    "vllm.v1.engine.core_client:AsyncMPClient._ensure_output_queue_task": _ensure_task,
    "concurrent.futures.thread:ThreadPoolExecutor.submit": _submit,
}
"""Targets to patch, and what makes their replacements (install/patcher.py)."""
