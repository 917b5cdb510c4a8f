"""Wrappers of probed functions: what happens around a call while a recording is active.

A wrapper notes the enclosing call, makes its own call the current one while the function's body runs, and appends a
record when it ends, with or without an exception. Coroutines, generators and plain functions each have a wrapper of the
same kind. A wrapper never fails, and never changes what the function does; all that can wait is left to
`tracellm.probes.spans`.

A few probes do more around the call; other probed calls pay nothing for that:

- `before` changes the arguments: a request gets its trace and span before it goes to another process.
- `begins_trace`: an incoming HTTP request begins a trace of its own, to which all calls on its behalf belong.
- `loop`: a loop, such as the task that receives outputs, belongs to no request, even if a request started it.
"""

import functools
import inspect
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tracellm.probes.context.call_context import (
    CALL,
    THREAD_CONTEXT,
    THREAD_ID,
    ThreadContext,
    TraceScope,
    context_var,
    current_call,
    current_context,
    new_context,
    new_thread_context,
    next_call,
    return_to,
    state,
)
from tracellm.probes.context.traceparent import is_sampled, parse
from tracellm.probes.wrapping.codegen import compile_wrapper, record_call
from tracellm.probes.wrapping.probe import Probe
from tracellm.probes.wrapping.summary import ArgumentCapture
from tracellm.trace.names import CALL_KIND

__all__ = ["wrap"]

Function = Callable[..., Any]

_get_context = context_var.get


def wrap(function: Function, probe: Probe) -> Function:
    """Return `function`, recorded by `probe` while a recording is active; of the same kind, with the same metadata.

    Raises:
        TypeError: the probe begins a trace, and the function is not a coroutine.
    """
    is_coroutine = inspect.iscoroutinefunction(function)
    if inspect.isasyncgenfunction(function):
        kind, wrapper = "async_generator", _wrap_async_generator(function, probe)
    elif inspect.isgeneratorfunction(function):
        kind, wrapper = "generator", _wrap_generator(function, probe)
    else:
        summary = probe.capture if isinstance(probe.capture, ArgumentCapture) else None
        kind, wrapper = "coroutine" if is_coroutine else "", compile_wrapper(function, probe, summary, is_coroutine)
    if kind:
        probe.constants.setdefault(CALL_KIND, kind)
    if probe.before is not None:
        wrapper = _with_before(wrapper, probe)
    if probe.begins_trace is not None:
        if not is_coroutine:
            raise TypeError(f"{probe.method} cannot begin a trace: it is no coroutine")
        wrapper = _with_trace(wrapper, function, probe)
    elif probe.loop:
        wrapper = _outside_scopes(wrapper)
    return functools.wraps(function)(wrapper)


# -- generators -------------------------------------------------------------------------------------------------------


def _begin_call(probe: Probe, call: int, parent: int, thread: ThreadContext, start: int, args: tuple[Any, ...]) -> int:
    """Track a call that may last long. Return its site."""
    site = probe.site(args)
    if probe.lasting:
        state.open[call] = (site, parent, thread.number, start)
    return site


def _wrap_generator(function: Function, probe: Probe) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        append = state.append
        if append is None:
            return (yield from generator)
        context = current_context()
        parent, thread = context[CALL], context[THREAD_CONTEXT]
        call = next_call()
        start = state.clock()
        site = _begin_call(probe, call, parent, thread, start, args)
        resume, value = generator.send, None
        try:
            while True:
                try:
                    if (
                        _get_context() is not context
                        or context[THREAD_ID] != get_ident()
                        or state.reconcile is not None
                    ):
                        item = _run_within(call, thread.scope, resume, value)
                    else:  # the same inline, where it began and still is
                        outer = context[CALL]
                        try:
                            context[CALL] = call
                            item = resume(value)
                        finally:
                            context[CALL] = outer
                except StopIteration as stop:
                    result = stop.value
                    break
                try:
                    resume, value = generator.send, (yield item)
                except GeneratorExit:
                    _run_within(call, thread.scope, generator.close)
                    raise
                except BaseException as error:
                    resume, value = generator.throw, error
        except GeneratorExit:
            record_call(append, probe, site, call, parent, thread, start, state.clock(), args, kwargs)
            raise
        except BaseException as error:
            record_call(append, probe, site, call, parent, thread, start, state.clock(), args, kwargs, None, error)
            raise
        record_call(append, probe, site, call, parent, thread, start, state.clock(), args, kwargs, result)
        return result

    return wrapper


def _run_within(call: int, scope: TraceScope | None, function: Function, *args: Any) -> Any:
    """Run `function(*args)` with `call` as the current one, wherever the generator is resumed from."""
    context = current_context()
    thread = context[THREAD_CONTEXT]
    if thread.scope is not scope:  # resumed within another trace
        try:
            return_to(new_context(ThreadContext(thread.thread, thread.thread_name, scope), call))
            return function(*args)
        finally:
            return_to(context)
    outer = context[CALL]
    try:
        context[CALL] = call
        if state.reconcile is not None:  # a span may be attached in there, or here
            state.reconcile()
        return function(*args)
    finally:
        context[CALL] = outer
        if state.reconcile is not None:
            state.reconcile()


def _wrap_async_generator(function: Function, probe: Probe) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        append = state.append
        parent, thread = current_call()
        call = next_call() if append is not None else 0
        start = state.clock()
        site = _begin_call(probe, call, parent, thread, start, args) if append is not None else 0
        resume, value = generator.asend, None
        try:
            while True:
                try:
                    item = await _run_within_async(call, thread.scope, resume, value)
                except StopAsyncIteration:
                    break
                try:
                    resume, value = generator.asend, (yield item)
                except GeneratorExit:
                    await _run_within_async(call, thread.scope, generator.aclose)
                    raise
                except BaseException as error:
                    resume, value = generator.athrow, error
        except GeneratorExit:
            if append is not None:
                record_call(append, probe, site, call, parent, thread, start, state.clock(), args, kwargs)
            raise
        except BaseException as error:
            if append is not None:
                record_call(append, probe, site, call, parent, thread, start, state.clock(), args, kwargs, None, error)
            raise
        if append is not None:
            record_call(append, probe, site, call, parent, thread, start, state.clock(), args, kwargs)

    return wrapper


async def _run_within_async(call: int, scope: TraceScope | None, function: Function, *args: Any) -> Any:
    """Await `function(*args)` in a call context of its own, as it may pause. Call 0 means that no recording is
    active."""
    if not call:
        return await function(*args)
    outer = current_context()
    thread = outer[THREAD_CONTEXT]
    if thread.scope is not scope:
        thread = ThreadContext(thread.thread, thread.thread_name, scope)
    try:
        return_to(new_context(thread, call, call))
        return await function(*args)
    finally:
        return_to(outer)


# -- around the wrapper -----------------------------------------------------------------------------------------------


def _with_before(wrapper: Function, probe: Probe) -> Function:
    def outer(*args: Any, **kwargs: Any) -> Any:
        if state.append is not None and probe.before is not None:
            try:
                args, kwargs = probe.before(args, kwargs) or (args, kwargs)
            except Exception as mistake:
                probe.disable("before", mistake)
        return wrapper(*args, **kwargs)

    async def outer_async(*args: Any, **kwargs: Any) -> Any:
        return await outer(*args, **kwargs)

    return outer_async if inspect.iscoroutinefunction(wrapper) else outer


def _with_trace(wrapper: Function, function: Function, probe: Probe) -> Function:
    # With ASGI's own parameters: uvicorn calls an application without any to see whether it objects.
    async def outer(app: Any, scope: Any, receive: Any, send: Any) -> Any:
        context = current_context()
        thread = context[THREAD_CONTEXT]
        enclosing = thread.active_scope
        if state.append is None or probe.begins_trace is None or (enclosing is not None and enclosing.request):
            return await wrapper(app, scope, receive, send)
        try:
            header = probe.begins_trace((app, scope, receive, send), {})
        except Exception as mistake:
            header = None
            probe.disable("begins_trace", mistake)
        if header is None:
            return await function(app, scope, receive, send)
        parent_ids = parse(header)
        if enclosing is not None and (parent_ids is None or parent_ids[0] == enclosing.trace_id):
            trace = enclosing._replace(request=True)  # a user's span, in which the request is handled
        else:
            trace_id, parent = parent_ids or (state.ids.trace(), None)
            sampled = parent_ids is None or is_sampled(header)
            trace = TraceScope(trace_id, parent, state.first, request=True, sampled=sampled)
        try:
            context_var.set(new_context(new_thread_context(thread, trace)))
            return await wrapper(app, scope, receive, send)
        finally:
            return_to(context)

    return outer


def _outside_scopes(wrapper: Function) -> Function:
    def outer(*args: Any, **kwargs: Any) -> Any:
        with _without_scope():
            return wrapper(*args, **kwargs)

    async def outer_async(*args: Any, **kwargs: Any) -> Any:
        with _without_scope():
            return await wrapper(*args, **kwargs)

    return outer_async if inspect.iscoroutinefunction(wrapper) else outer


@contextmanager
def _without_scope() -> Iterator[None]:
    """Leave the trace of an enclosing request or user's span, if there is one."""
    context = current_context()
    thread = context[THREAD_CONTEXT]
    if state.append is None or thread.active_scope is None:
        yield
        return
    try:
        context_var.set(new_context(new_thread_context(thread, None)))
        yield
    finally:
        return_to(context)
