"""The wrapper around a function or a coroutine, written out for it and compiled: the hottest code of all the probes.

A wrapper with `*args, **kwargs` that serves every function makes a tuple and a dictionary for each call, spreads them
out again for the function, and once more to look at what is in them; that takes longer than all else it does. So each
probed function gets a wrapper with its own parameters and with its capture in place, about half as dear. Functions
whose signature does not allow that, and probes with a `capture` of their own, have the same text with `*args,
**kwargs`. Dataclasses get their `__init__` in the same way.

Names in the text begin with `_`, so that they do not meet those of parameters.
"""

import linecache
from collections.abc import Callable
from functools import cache
from itertools import count
from types import CodeType
from typing import Any

from tracellm.probes.context.call_context import CALL, PLACE, THREAD, arrive, get_ident, here, next_call, state
from tracellm.probes.context.exceptions import PROBE_FILE
from tracellm.probes.wrapping.call_end import ended
from tracellm.probes.wrapping.probe import Probe, new_site
from tracellm.probes.wrapping.signature import ABSENT, ANY, given, signature_of
from tracellm.probes.wrapping.summary import ArgumentCapture

__all__ = ["written_out"]

Function = Callable[..., Any]

_WRAPPER = """
{async_def} wrapper({parameters}):
    _append = _state.append
    if _append is None:
        return {called}
    _spot = _spot_here()
    if _spot is None or _spot[{THREAD}] != _get_ident():
        _spot = _arrive()
    _parent, _place = _spot[{CALL}], _spot[{PLACE}]
    {site}
    _call = _next_call()
    _clock = _state.clock
    _start = _clock()
    try:  # an interrupt may strike at any call, and must not leave _call behind as the current one
        {enter}
        {note}
        _result = {called}
        _end = _clock()
        {leave}
    except BaseException as _error:
        _end = _clock()
        {fail}
        _ended(_append, _probe, _site, _call, _parent, _place, _start, _end, {args}, {kwargs}, None, _error)
        raise
    {capture}
    {forget}
    _append((_site, _call, _parent, _place.number, _start, _end, {facts}, None))
    {step_ended}
    return _result
"""

_SITE = """try:
        _site = _sites[{owner}]
    except Exception:  # a class that is new, or has no hash
        _site = _new_site(_probe, {owner})"""

_CAPTURE = """_facts = None
    _capture = _probe.capture
    if _capture is not None:
        try:
            _facts = {kept}{timing}
        except Exception as _error:
            _probe.disable("capture", _error)
        except BaseException:  # Ctrl-C: the call itself has ended, and is recorded
            {forget}
            _append((_site, _call, _parent, _place.number, _start, _end, None, None))
            raise"""

_TIMING = """
            _facts = (_clock() - _end, _facts)"""

_NOTE = "_open = _state.open; _open[_call] = (_site, _parent, _place.number, _start)"

_FUNCTION = {
    "async_def": "def",
    "enter": f"_spot[{CALL}] = _call",
    "leave": f"_spot[{CALL}] = _parent",
    "fail": f"_spot[{CALL}] = _parent",
}
_SETTLE = """
        if _state.settle is not None:
            _state.settle()"""
_COROUTINE = {  # while it waits, others must not see its call as the current one: it has a spot of its own
    "async_def": "async def",
    "enter": f"_token = _move([_call, _call, _spot[{THREAD}], _place])",
    "leave": f"""try:
            _move_back(_token)
        except ValueError:  # it was begun in another context
            _move(_spot){_SETTLE}""",
    "fail": f"_move(_spot){_SETTLE}",
}
_SCOPE = {
    "_absent": ABSENT,
    "_arrive": arrive,
    "_ended": ended,
    "_given": given,
    "_get_ident": get_ident,
    "_move": here.set,
    "_move_back": here.reset,
    "_new_site": new_site,
    "_next_call": next_call,
    "_spot_here": here.get,
    "_state": state,
}


def written_out(function: Function, probe: Probe, is_coroutine: bool) -> Function:
    """A wrapper around `function` that records its calls by `probe`."""
    capture = probe.capture
    in_short = capture if isinstance(capture, ArgumentCapture) else None
    if in_short is not None:
        signature = in_short.signature
    else:  # a capture of the probe's own wants the arguments as a tuple and a dictionary
        signature = (signature_of(function) if capture is None else None) or ANY
    owner = {"self": f"{signature.first}.__class__", "cls": signature.first, "": "None"}[probe.receiver]
    kept = in_short.source if in_short is not None else f"_capture({signature.args}, {signature.kwargs}, _result)"
    forget = "del _open[_call]" if probe.lasting else ""
    parts = {
        "CALL": CALL,
        "THREAD": THREAD,
        "PLACE": PLACE,
        **(_COROUTINE if is_coroutine else _FUNCTION),
        "parameters": signature.parameters,
        "called": f"await {signature.call}" if is_coroutine else signature.call,
        "args": signature.args,
        "kwargs": signature.kwargs,
        "site": _SITE.format(owner=owner) if probe.receiver else "_site = _only_site",
        "note": _NOTE if probe.lasting else "",
        "forget": forget,
        "step_ended": "_state.step_ended(_parent)" if probe.is_step else "",
        "capture": _CAPTURE.format(kept=kept, timing=_TIMING if probe.timed else "", forget=forget)
        if capture is not None
        else "",
        "facts": "_facts" if capture is not None else "None",
    }
    scope: dict[str, Any] = {
        **_SCOPE,
        **(in_short.scope if in_short is not None else {}),
        "_function": function,
        "_probe": probe,
        "_sites": probe.sites,
    }
    if not probe.receiver:
        scope["_only_site"] = new_site(probe, None)
    source = _WRAPPER.format_map(parts)
    exec(_compiled(source), scope)
    wrapper: Function = scope["wrapper"]
    # A file of its own, which tracebacks and debuggers find in `linecache`.
    file = f"{PROBE_FILE} {function.__module__}.{function.__qualname__} #{next(_numbers)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    wrapper.__code__ = wrapper.__code__.replace(co_filename=file)
    return wrapper


_numbers = count(1)


@cache
def _compiled(source: str) -> CodeType:
    # Compiled by itself: running a text would make the interpreter forget that Ctrl-C is what ends it.
    return compile(source, __file__, "exec")
