"""The wrapper around a function or a coroutine, written out for it and compiled: the hottest code of all the probes.

A wrapper with `*args, **kwargs` that serves every function makes a tuple and a dictionary for each call, spreads them
out again for the function, and once more to look at what is in them; that takes longer than all else it does. So each
probed function gets a wrapper with its own parameters and with its capture in place, about half as dear. Functions
whose signature does not allow that, and probes with a `capture` of their own, have the same text with `*args,
**kwargs`. Dataclasses get their `__init__` in the same way.

Names in the text begin with `_`, so that they do not meet those of parameters.
"""

from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any

from tracellm.probes.brief import InShort
from tracellm.probes.record import ended
from tracellm.probes.signature import ABSENT, ANY, given, signature_of
from tracellm.probes.spec import Probe
from tracellm.probes.state import CALL, PLACE, THREAD, arrive, get_ident, here, next_call, state

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
        _ended(_append, _probe, _call, _parent, _place, _start, _end, {args}, {kwargs}, None, _error)
        raise
    {capture}
    _append((_probe, _call, _parent, _place, {owner}, _start, _end, {captured}, {facts}, None))
    {forget}
    {hand_over}
    return _result
"""

_CAPTURE = """_facts = None
    _capture = _probe.capture
    if _capture is not None:
        try:
            _facts = {kept}
        except Exception as _error:
            _probe.disable("capture", _error)"""

_NOTE = "_open = _state.open; _open[_call] = (_probe, _parent, _place, {owner}, _start)"

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
    "_next_call": next_call,
    "_spot_here": here.get,
    "_state": state,
}


def written_out(function: Function, probe: Probe, is_coroutine: bool) -> Function:
    """A wrapper around `function` that records its calls by `probe`."""
    capture = probe.capture
    in_short = capture if isinstance(capture, InShort) else None
    if in_short is not None:
        signature = in_short.signature
    else:  # a capture of the probe's own wants the arguments as a tuple and a dictionary
        signature = (signature_of(function) if capture is None else None) or ANY
    owner = {"self": f"{signature.first}.__class__", "cls": signature.first, "": "None"}[probe.receiver]
    kept = in_short.source if in_short is not None else f"_capture({signature.args}, {signature.kwargs}, _result)"
    parts = {
        "CALL": CALL,
        "THREAD": THREAD,
        "PLACE": PLACE,
        **(_COROUTINE if is_coroutine else _FUNCTION),
        "parameters": signature.parameters,
        "called": f"await {signature.call}" if is_coroutine else signature.call,
        "args": signature.args,
        "kwargs": signature.kwargs,
        "owner": owner,
        "note": f"_open = _state.open; _open[_call] = (_probe, _parent, _place, {owner}, _start)"
        if probe.lasting
        else "",
        "forget": "del _open[_call]" if probe.lasting else "",
        "hand_over": "_state.step_ended()" if probe.is_step else "",
        "capture": _CAPTURE.format(kept=kept) if capture is not None else "",
        "facts": "_facts" if capture is not None else "None",
        "captured": "_clock()" if probe.timed else "_end",
    }
    scope: dict[str, Any] = {
        **_SCOPE,
        **(in_short.scope if in_short is not None else {}),
        "_function": function,
        "_probe": probe,
    }
    exec(_compiled(_WRAPPER.format_map(parts)), scope)
    wrapper: Function = scope["wrapper"]
    return wrapper


@cache
def _compiled(source: str) -> CodeType:
    # Compiled by itself: running a text would make the interpreter forget that Ctrl-C is what ends it.
    return compile(source, __file__, "exec")
