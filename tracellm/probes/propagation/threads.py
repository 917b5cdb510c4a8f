"""A thread's calls belong to the call that started the thread, and a pool's to the one that submitted the work.

A new thread has no context, so that its outermost calls would hang in the air. The idea is that of OpenTelemetry's
threading instrumentation: whoever starts a thread, or gives work to a pool, leaves word of where it was.
"""

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tracellm.probes.context.call_context import (
    PLACE,
    STARTED_IN,
    TraceScope,
    call_and_place,
    here,
    later_place,
    return_to,
    spot_here,
    spot_in,
    state,
)

__all__ = ["THREAD_PATCHES"]

Function = Callable[..., Any]


def _start(start: Function) -> Function:
    def outer(self: Any) -> Any:
        if state.append is not None:
            call, place = call_and_place()
            setattr(self, STARTED_IN, (call, place.begun))
            _name_loop(self)
        return start(self)

    return outer


def _name_loop(thread: Any) -> None:
    """A loop of vLLM's that is a function within a function runs within one that has a name and can be recorded."""
    target = getattr(thread, "_target", None)
    if getattr(target, "__module__", None) == _LOOP[0] and getattr(target, "__qualname__", None) == _LOOP[1]:
        with suppress(Exception):  # as below
            from tracellm.probes.catalog.vllm import closures

            thread._target = functools.partial(_run_loop, closures, target)


_LOOP = "vllm.v1.engine.core_client", "SyncMPClient.__init__.<locals>.process_outputs_socket"


def _run_loop(closures: Any, target: Any) -> None:
    closures.process_outputs_socket_thread(target)


def _submit(submit: Function) -> Function:
    def outer(self: Any, fn: Function, /, *args: Any, **kwargs: Any) -> Any:
        if state.append is None:
            return submit(self, fn, *args, **kwargs)
        call, place = call_and_place()
        return submit(self, _carried, call, place.begun, fn, args, kwargs)

    return outer


def _carried(call: int, begun: TraceScope | None, fn: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`fn(*args, **kwargs)` in a pool's thread, as called from `call`."""
    spot = spot_here()
    place = spot[PLACE]
    try:
        here.set(spot_in(later_place(place, begun), call))
        return fn(*args, **kwargs)
    finally:
        return_to(spot)


def _ensure_task(ensure: Function) -> Function:
    """Of a vLLM's `AsyncMPClient`: the loop that it makes a task of, the first time, is recorded as one that it makes
    a thread of elsewhere."""

    def outer(self: Any) -> Any:
        if state.append is not None:
            with suppress(Exception):  # whatever another version has there must not break its run
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
"""What to replace, and by what (patcher.py)."""
