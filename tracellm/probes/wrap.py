"""The wrapper around a probed function: what a call costs while it is recorded, and nothing else.

A wrapper notes the enclosing call, makes itself the current one while the function's body runs, and appends one record
when it ends, well or not. There is one for each kind of function, so that a wrapped function is still of its kind.
Nothing here may fail or change what the function does; all that can wait is left to `tracellm.probes.build`.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tracellm.probes.around import around
from tracellm.probes.errors import is_an_end, remember
from tracellm.probes.spec import Probe
from tracellm.probes.state import (
    CALL,
    PLACE,
    THREAD,
    Begun,
    Place,
    arrive,
    get_ident,
    here,
    next_call,
    spot_here,
    spot_in,
    state,
)
from tracellm.trace.names import CALL_KIND

__all__ = ["wrap"]

Function = Callable[..., Any]

_spot = here.get
_move = here.set


def wrap(function: Function, probe: Probe) -> Function:
    """`function`, recorded by `probe` while a recording is active; of the same kind and with the same metadata."""
    if inspect.isasyncgenfunction(function):
        kind, wrapper = "async_generator", _async_generator(function, probe)
    elif inspect.iscoroutinefunction(function):
        kind, wrapper = "coroutine", _coroutine(function, probe)
    elif inspect.isgeneratorfunction(function):
        kind, wrapper = "generator", _generator(function, probe)
    else:
        kind, wrapper = "", _function(function, probe)
    if kind:
        probe.constants.setdefault(CALL_KIND, kind)
    wrapper = around(functools.wraps(function)(wrapper), function, probe)
    return functools.wraps(function)(wrapper)


def _function(function: Function, probe: Probe) -> Function:
    of_instance, of_class, timed = probe.receiver == "self", probe.receiver == "cls", probe.timed
    lasting = probe.lasting

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        append = state.append
        if append is None:
            return function(*args, **kwargs)
        spot = _spot()
        if spot is None or spot[THREAD] != get_ident():
            spot = arrive()
        parent, place = spot[CALL], spot[PLACE]
        call = next_call()
        owner = None
        if args:
            owner = args[0].__class__ if of_instance else args[0] if of_class else None
        clock = state.clock
        start = clock()
        try:  # an interrupt may strike at any call, and must not leave `call` behind as the current one
            spot[CALL] = call
            if lasting:
                state.open[call] = (probe, parent, place, owner, start)
            result = function(*args, **kwargs)
            end = clock()
            spot[CALL] = parent
        except BaseException as error:
            end = clock()
            spot[CALL] = parent
            _ended(append, probe, call, parent, place, start, end, args, kwargs, None, error)
            raise
        capture = probe.capture
        if capture is None:
            append((probe, call, parent, place, owner, start, end, end, None, None))
        else:
            try:
                facts = capture(args, kwargs, result)
            except Exception as error:
                facts = None
                probe.disable("capture", error)
            captured = clock() if timed else end
            append((probe, call, parent, place, owner, start, end, captured, facts, None))
        if lasting:
            state.open.pop(call, None)
        return result

    return wrapper


def _coroutine(function: Function, probe: Probe) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        append = state.append
        if append is None:
            return await function(*args, **kwargs)
        spot = _spot()
        if spot is None or spot[THREAD] != get_ident():
            spot = arrive()
        parent, place = spot[CALL], spot[PLACE]
        call = next_call()
        start = state.clock()
        _began(probe, call, parent, place, start, args)
        try:
            _move([call, call, spot[THREAD], place])
            result = await function(*args, **kwargs)
            end = state.clock()
            _move(spot)
        except BaseException as error:
            end = state.clock()
            _move(spot)
            _ended(append, probe, call, parent, place, start, end, args, kwargs, None, error)
            raise
        _ended(append, probe, call, parent, place, start, end, args, kwargs, result)
        return result

    return wrapper


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
        _began(probe, call, parent, place, start, args)
        resume, value = generator.send, None
        try:
            while True:
                try:
                    item = _within(call, place.begun, resume, value)
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
            _ended(append, probe, call, parent, place, start, state.clock(), args, kwargs)
            raise
        except BaseException as error:
            _ended(append, probe, call, parent, place, start, state.clock(), args, kwargs, None, error)
            raise
        _ended(append, probe, call, parent, place, start, state.clock(), args, kwargs, result)
        return result

    return wrapper


def _within(call: int, begun: Begun | None, function: Function, *args: Any) -> Any:
    """`function(*args)` with `call` as the current one; wherever the generator is being resumed from."""
    spot = spot_here()
    place = spot[PLACE]
    if place.begun is not begun:  # in the midst of another trace
        try:
            _move(spot_in(Place(place.thread, place.thread_name, begun), call))
            return function(*args)
        finally:
            _move(spot)
    outer = spot[CALL]
    try:
        spot[CALL] = call
        return function(*args)
    finally:
        spot[CALL] = outer


def _async_generator(function: Function, probe: Probe) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        append = state.append
        spot = spot_here()
        parent, place = spot[CALL], spot[PLACE]
        call = next_call() if append is not None else 0
        start = state.clock()
        if append is not None:
            _began(probe, call, parent, place, start, args)
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
                _ended(append, probe, call, parent, place, start, state.clock(), args, kwargs)
            raise
        except BaseException as error:
            if append is not None:
                _ended(append, probe, call, parent, place, start, state.clock(), args, kwargs, None, error)
            raise
        if append is not None:
            _ended(append, probe, call, parent, place, start, state.clock(), args, kwargs)

    return wrapper


async def _within_async(call: int, begun: Begun | None, function: Function, *args: Any) -> Any:
    """The same for what may pause: others in the outer place must not see `call` meanwhile. 0: nothing is recorded."""
    if not call:
        return await function(*args)
    outer = spot_here()
    place = outer[PLACE]
    if place.begun is not begun:
        place = Place(place.thread, place.thread_name, begun)
    try:
        _move(spot_in(place, call, call))
        return await function(*args)
    finally:
        _move(outer)


def _began(probe: Probe, call: int, parent: int, place: Place, start: int, args: tuple[Any, ...]) -> None:
    """Note a call that may last, so that it is known of should it never end."""
    if probe.lasting:
        state.open[call] = (probe, parent, place, probe.owner(args), start)


def _ended(
    append: Callable[[Any], None],
    probe: Probe,
    call: int,
    parent: int,
    place: Place,
    start: int,
    end: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any = None,
    error: BaseException | None = None,
) -> None:
    """Append the record of a call that returned `result`, or that `error` left."""
    facts = None
    if probe.capture is not None and (error is None or probe.even_if_raises):
        try:
            facts = probe.capture(args, kwargs, result)
        except Exception as mistake:
            probe.disable("capture", mistake)
    captured = state.clock() if probe.timed and error is None else end
    remembered = None if error is None or is_an_end(error, probe.loop) else remember(error)
    append((probe, call, parent, place, probe.owner(args), start, end, captured, facts, remembered))
    state.open.pop(call, None)
