"""Additions around the call that a few probes record: change its arguments, begin a trace, leave one.

`around` puts it outside of the wrapper (wrapper.py), so that the many other probed calls pay nothing for it.

- An incoming HTTP request begins a trace of its own: all that is called on its behalf belongs to it.
- A loop, such as the task that receives outputs for everybody, belongs to no request, even if one happened to start it.
- A request is given its place in the recording before it goes to another process.
"""

import inspect
from collections.abc import Callable
from typing import Any

from tracellm.probes.context.call_context import (
    PLACE,
    TraceScope,
    here,
    later_place,
    return_to,
    spot_here,
    spot_in,
    state,
)
from tracellm.probes.context.traceparent import is_sampled, parse
from tracellm.probes.wrapping.probe import Probe

__all__ = ["around"]

Function = Callable[..., Any]


def around(wrapper: Function, function: Function, probe: Probe) -> Function:
    """`wrapper`, which records `function`, with what `probe` wants done around it."""
    if probe.before is not None:
        wrapper = _with_before(wrapper, probe)
    if probe.begins_trace is not None:
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{probe.method} cannot begin a trace: it is no coroutine")
        wrapper = _with_trace(wrapper, function, probe)
    elif probe.loop:
        wrapper = _apart_async(wrapper) if inspect.iscoroutinefunction(function) else _apart(wrapper)
    return wrapper


def _with_before(wrapper: Function, probe: Probe) -> Function:
    def outer(*args: Any, **kwargs: Any) -> Any:
        if state.append is not None and probe.before is not None:
            try:
                args, kwargs = probe.before(args, kwargs) or (args, kwargs)
            except Exception as mistake:
                probe.disable("before", mistake)
        return wrapper(*args, **kwargs)

    if not inspect.iscoroutinefunction(wrapper):
        return outer

    async def outer_async(*args: Any, **kwargs: Any) -> Any:
        return await outer(*args, **kwargs)

    return outer_async


def _with_trace(wrapper: Function, function: Function, probe: Probe) -> Function:
    # With ASGI's own parameters: uvicorn calls an application without any to see whether it objects.
    async def outer(app: Any, scope: Any, receive: Any, send: Any) -> Any:
        spot = spot_here()
        place = spot[PLACE]
        around = place.whose
        if state.append is None or probe.begins_trace is None or (around is not None and around.request):
            return await wrapper(app, scope, receive, send)
        try:
            header = probe.begins_trace((app, scope, receive, send), {})
        except Exception as mistake:
            header = None
            probe.disable("begins_trace", mistake)
        if header is None:
            return await function(app, scope, receive, send)
        given = parse(header)
        if around is not None and (given is None or given[0] == around.trace_id):
            begun = around._replace(request=True)  # a user's span, in which the request is being handled
        else:
            trace_id, parent = given or (state.ids.trace(), None)
            sampled = given is None or is_sampled(header)
            begun = TraceScope(trace_id, parent, state.first, request=True, sampled=sampled)
        try:
            here.set(spot_in(later_place(place, begun)))
            return await wrapper(app, scope, receive, send)
        finally:
            return_to(spot)

    return outer


def _apart(wrapper: Function) -> Function:
    def outer(*args: Any, **kwargs: Any) -> Any:
        spot = spot_here()
        place = spot[PLACE]
        if state.append is None or place.whose is None:
            return wrapper(*args, **kwargs)
        try:
            here.set(spot_in(later_place(place, None)))
            return wrapper(*args, **kwargs)
        finally:
            return_to(spot)

    return outer


def _apart_async(wrapper: Function) -> Function:
    async def outer(*args: Any, **kwargs: Any) -> Any:
        spot = spot_here()
        place = spot[PLACE]
        if state.append is None or place.whose is None:
            return await wrapper(*args, **kwargs)
        try:
            here.set(spot_in(later_place(place, None)))
            return await wrapper(*args, **kwargs)
        finally:
            return_to(spot)

    return outer
