"""The wrapper around a probed function: what a call costs while it is recorded, and nothing else.

A wrapper notes the enclosing call, makes itself the current one while the function's body runs, and appends one record
when it ends, well or not. There is one for each kind of function, so that a wrapped function is still of its kind.
Nothing here may fail or change what the function does; all that can wait is left to `tracellm.probes.spans`.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tracellm.probes.context.call_context import (
    CALL,
    PLACE,
    THREAD,
    ThreadContext,
    TraceScope,
    get_ident,
    here,
    next_call,
    return_to,
    spot_here,
    spot_in,
    state,
)
from tracellm.probes.wrapping.call_end import began, ended
from tracellm.probes.wrapping.codegen import written_out
from tracellm.probes.wrapping.probe import Probe
from tracellm.probes.wrapping.trace_scope import around
from tracellm.trace.names import CALL_KIND

__all__ = ["wrap"]

Function = Callable[..., Any]

_spot = here.get


def wrap(function: Function, probe: Probe) -> Function:
    """`function`, recorded by `probe` while a recording is active; of the same kind and with the same metadata."""
    if inspect.isasyncgenfunction(function):
        kind, wrapper = "async_generator", _async_generator(function, probe)
    elif inspect.iscoroutinefunction(function):
        kind, wrapper = "coroutine", written_out(function, probe, is_coroutine=True)
    elif inspect.isgeneratorfunction(function):
        kind, wrapper = "generator", _generator(function, probe)
    else:
        kind, wrapper = "", written_out(function, probe, is_coroutine=False)
    if kind:
        probe.constants.setdefault(CALL_KIND, kind)
    wrapper = around(functools.wraps(function)(wrapper), function, probe)
    return functools.wraps(function)(wrapper)


def _generator(function: Function, probe: Probe) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        append = state.append
        if append is None:
            return (yield from generator)
        spot = spot_here()
        parent, place = spot[CALL], spot[PLACE]
        call = next_call()
        start = state.clock()
        site = began(probe, call, parent, place, start, args)
        resume, value = generator.send, None
        try:
            while True:
                try:
                    if _spot() is not spot or spot[THREAD] != get_ident() or state.settle is not None:
                        item = _within(call, place.begun, resume, value)
                    else:  # the same without a call, where it began and still is
                        outer = spot[CALL]
                        try:
                            spot[CALL] = call
                            item = resume(value)
                        finally:
                            spot[CALL] = outer
                except StopIteration as stop:
                    result = stop.value
                    break
                try:
                    resume, value = generator.send, (yield item)
                except GeneratorExit:
                    _within(call, place.begun, generator.close)
                    raise
                except BaseException as error:
                    resume, value = generator.throw, error
        except GeneratorExit:
            ended(append, probe, site, call, parent, place, start, state.clock(), args, kwargs)
            raise
        except BaseException as error:
            ended(append, probe, site, call, parent, place, start, state.clock(), args, kwargs, None, error)
            raise
        ended(append, probe, site, call, parent, place, start, state.clock(), args, kwargs, result)
        return result

    return wrapper


def _within(call: int, begun: TraceScope | None, function: Function, *args: Any) -> Any:
    """`function(*args)` with `call` as the current one; wherever the generator is being resumed from."""
    spot = spot_here()
    place = spot[PLACE]
    if place.begun is not begun:  # in the midst of another trace
        try:
            return_to(spot_in(ThreadContext(place.thread, place.thread_name, begun), call))
            return function(*args)
        finally:
            return_to(spot)
    outer = spot[CALL]
    try:
        spot[CALL] = call
        if state.settle is not None:  # a span may be attached in there, or here
            state.settle()
        return function(*args)
    finally:
        spot[CALL] = outer
        if state.settle is not None:
            state.settle()


def _async_generator(function: Function, probe: Probe) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        append = state.append
        spot = spot_here()
        parent, place = spot[CALL], spot[PLACE]
        call = next_call() if append is not None else 0
        start = state.clock()
        site = began(probe, call, parent, place, start, args) if append is not None else 0
        resume, value = generator.asend, None
        try:
            while True:
                try:
                    item = await _within_async(call, place.begun, resume, value)
                except StopAsyncIteration:
                    break
                try:
                    resume, value = generator.asend, (yield item)
                except GeneratorExit:
                    await _within_async(call, place.begun, generator.aclose)
                    raise
                except BaseException as error:
                    resume, value = generator.athrow, error
        except GeneratorExit:
            if append is not None:
                ended(append, probe, site, call, parent, place, start, state.clock(), args, kwargs)
            raise
        except BaseException as error:
            if append is not None:
                ended(append, probe, site, call, parent, place, start, state.clock(), args, kwargs, None, error)
            raise
        if append is not None:
            ended(append, probe, site, call, parent, place, start, state.clock(), args, kwargs)

    return wrapper


async def _within_async(call: int, begun: TraceScope | None, function: Function, *args: Any) -> Any:
    """The same for what may pause: others in the outer place must not see `call` meanwhile. 0: nothing is recorded."""
    if not call:
        return await function(*args)
    outer = spot_here()
    place = outer[PLACE]
    if place.begun is not begun:
        place = ThreadContext(place.thread, place.thread_name, begun)
    try:
        return_to(spot_in(place, call, call))
        return await function(*args)
    finally:
        return_to(outer)
