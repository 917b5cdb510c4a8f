"""The wrapper around a probed function: what a call costs while it is recorded, and nothing else.

A wrapper notes the enclosing call, makes itself the current one while the function's body runs, and appends one record
when it ends, well or not. There is one for each kind of function, so that a wrapped function is still of its kind.
Nothing here may fail or change what the function does; all that can wait is left to `tracellm.probes.build`.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tracellm.probes.errors import remember
from tracellm.probes.spec import Probe
from tracellm.probes.state import current, next_call, state, thread

__all__ = ["wrap"]

Function = Callable[..., Any]

_enclosing = current.get
_enter = current.set


def wrap(function: Function, probe: Probe) -> Function:
    """`function`, recorded by `probe` while a recording is active; of the same kind and with the same metadata."""
    if inspect.isasyncgenfunction(function):
        wrapper = _async_generator(function, probe)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, probe)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, probe)
    else:
        wrapper = _function(function, probe)
    return functools.wraps(function)(wrapper)


def _function(function: Function, probe: Probe) -> Function:
    of_instance, of_class = probe.receiver == "self", probe.receiver == "cls"

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        append = state.append
        if append is None:
            return function(*args, **kwargs)
        parent = _enclosing()
        call = next_call()
        _enter(call)
        clock = state.clock
        start = clock()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            end = clock()
            _enter(parent)
            _failed(append, probe, call, parent, start, end, args, kwargs, error)
            raise
        end = clock()
        _enter(parent)
        owner = args[0].__class__ if of_instance else args[0] if of_class else None
        capture = probe.capture
        if capture is None:
            append((probe, call, parent, thread.name, owner, start, end, end, None, None))
            return result
        try:
            facts = capture(args, kwargs, result)
        except Exception as error:
            facts = None
            probe.disable("capture", error)
        append((probe, call, parent, thread.name, owner, start, end, clock(), facts, None))
        return result

    return wrapper


def _coroutine(function: Function, probe: Probe) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        append = state.append
        if append is None:
            return await function(*args, **kwargs)
        parent = _enclosing()
        call = next_call()
        _enter(call)
        start = state.clock()
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            end = state.clock()
            _enter(parent)
            _failed(append, probe, call, parent, start, end, args, kwargs, error)
            raise
        end = state.clock()
        _enter(parent)
        _ended(append, probe, call, parent, start, end, args, kwargs, result)
        return result

    return wrapper


def _generator(function: Function, probe: Probe) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        append = state.append
        if append is None:
            return (yield from generator)
        parent = _enclosing()
        call = next_call()
        start = state.clock()
        resume, value = generator.send, None
        try:
            while True:
                outer = _enclosing()
                _enter(call)
                try:
                    item = resume(value)
                except StopIteration as stop:
                    result = stop.value
                    break
                finally:
                    _enter(outer)
                try:
                    resume, value = generator.send, (yield item)
                except GeneratorExit:
                    _close(generator.close, call)
                    raise
                except BaseException as error:
                    resume, value = generator.throw, error
        except GeneratorExit:
            _ended(append, probe, call, parent, start, state.clock(), args, kwargs, None)
            raise
        except BaseException as error:
            _failed(append, probe, call, parent, start, state.clock(), args, kwargs, error)
            raise
        _ended(append, probe, call, parent, start, state.clock(), args, kwargs, result)
        return result

    return wrapper


def _close(close: Callable[[], None], call: int) -> None:
    outer = _enclosing()
    _enter(call)
    try:
        close()
    finally:
        _enter(outer)


def _async_generator(function: Function, probe: Probe) -> Function:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        append = state.append
        recording = append is not None
        parent = _enclosing()
        call = next_call() if recording else parent
        start = state.clock()
        resume, value = generator.asend, None
        try:
            while True:
                outer = _enclosing()
                _enter(call)
                try:
                    item = await resume(value)
                except StopAsyncIteration:
                    break
                finally:
                    _enter(outer)
                try:
                    resume, value = generator.asend, (yield item)
                except GeneratorExit:
                    await _aclose(generator.aclose, call)
                    raise
                except BaseException as error:
                    resume, value = generator.athrow, error
        except GeneratorExit:
            if append is not None:
                _ended(append, probe, call, parent, start, state.clock(), args, kwargs, None)
            raise
        except BaseException as error:
            if append is not None:
                _failed(append, probe, call, parent, start, state.clock(), args, kwargs, error)
            raise
        if append is not None:
            _ended(append, probe, call, parent, start, state.clock(), args, kwargs, None)

    return wrapper


async def _aclose(close: Callable[[], Any], call: int) -> None:
    outer = _enclosing()
    _enter(call)
    try:
        await close()
    finally:
        _enter(outer)


def _ended(
    append: Callable[[Any], None],
    probe: Probe,
    call: int,
    parent: int,
    start: int,
    end: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> None:
    facts = None
    if probe.capture is not None:
        try:
            facts = probe.capture(args, kwargs, result)
        except Exception as error:
            probe.disable("capture", error)
    append((probe, call, parent, thread.name, probe.owner(args), start, end, state.clock(), facts, None))


def _failed(
    append: Callable[[Any], None],
    probe: Probe,
    call: int,
    parent: int,
    start: int,
    end: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    error: BaseException,
) -> None:
    facts = None
    if probe.capture is not None and probe.even_if_raises:
        try:
            facts = probe.capture(args, kwargs, None)
        except Exception as mistake:
            probe.disable("capture", mistake)
    append((probe, call, parent, thread.name, probe.owner(args), start, end, end, facts, remember(error)))
