"""Generated wrapper of a function or coroutine: the hottest code of the probes.

A generic wrapper with `*args, **kwargs` builds a tuple and a dictionary for each call and unpacks them again, which
takes longer than everything else it does. So each probed function gets a wrapper compiled for its own parameters,
with its capture inlined, at about half the cost. Functions with other signatures, and probes with a `capture` of their
own, get the same text with `*args, **kwargs`. Dataclasses generate their `__init__` in the same way.

Names in the text begin with `_`, to be distinct from parameters.
"""

import inspect
import linecache
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from tracellm.probes.context.call_context import (
    CALL,
    THREAD_CONTEXT,
    THREAD_ID,
    Record,
    ThreadContext,
    context_var,
    enter_thread,
    next_call,
    state,
)
from tracellm.probes.context.exceptions import PROBE_FILE, is_an_end, remember
from tracellm.probes.wrapping.probe import Probe, new_site

if TYPE_CHECKING:
    from tracellm.probes.wrapping.summary import ArgumentCapture

__all__ = ["ABSENT", "Absent", "Signature", "compile_wrapper", "record_call", "signature_of"]

Function = Callable[..., Any]


# -- signatures -------------------------------------------------------------------------------------------------------


class Absent:
    """Class of ABSENT."""

    __slots__ = ()


ABSENT = Absent()
"""Default of every optional parameter in a wrapper: an argument that was not given is not passed on either."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Source text for a wrapper with a function's own parameters.

    Attributes:
        parameters: in `def wrapper(...)`.
        call: calls `_function` with what was given.
        args: a tuple of all arguments.
        kwargs: a dictionary of those given by keyword besides.
        first: the first argument.
        names: names of all parameters, in order.
    """

    parameters: str
    call: str
    args: str
    kwargs: str
    first: str
    names: tuple[str, ...] = ()


_ANY = Signature("*args, **kwargs", "_function(*args, **kwargs)", "args", "kwargs", "(args[0] if args else None)")
_MAX_CASES = 4


def signature_of(function: Function) -> Signature | None:
    """Return the signature of a plain function; None with `*args` or `**kwargs`, or under a decorator."""
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return None
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    is_plain = all(name.isidentifier() and not name.startswith("_") for name in names)
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or not is_plain:
        return None
    positional, keywords = names[: code.co_argcount], names[code.co_argcount :]
    optional = {*positional[len(positional) - len(function.__defaults__ or ()) :], *(function.__kwdefaults__ or ())}
    if optional.intersection(positional[: code.co_posonlyargcount]):
        return None  # a positional-only argument cannot be left out in the middle
    declared = [f"{name}=_absent" if name in optional else name for name in names]
    if keywords:
        declared.insert(len(positional), "*")
    if code.co_posonlyargcount:
        declared.insert(code.co_posonlyargcount, "/")
    return Signature(
        ", ".join(declared),
        _call_source(positional, keywords, optional),
        f"({''.join(f'{name}, ' for name in names)})",
        "{}",
        names[0] if positional else "None",
        names,
    )


def _call_source(positional: tuple[str, ...], keywords: tuple[str, ...], optional: set[str]) -> str:
    """Return a call with the arguments that were given.

    Mostly these are the first few optional ones: these cases are written out, and all others take a slower path.
    """
    arguments = {**{name: name for name in positional}, **{name: f"{name}={name}" for name in keywords}}
    optional_names = [name for name in arguments if name in optional]
    required = [name for name in arguments if name not in optional]

    def call(names: list[str], *more: str) -> str:
        return f"_function({', '.join([*(text for name, text in arguments.items() if name in names), *more])})"

    if not optional_names:
        return call(required)
    cases = ""
    for num_given in (
        range(len(optional_names), -1, -1) if len(optional_names) <= _MAX_CASES else (len(optional_names), 0)
    ):
        present = [f"{name} is not _absent" for name in optional_names[:num_given]]
        absent = [f"{name} is _absent" for name in optional_names[num_given:]]
        cases += f"{call([*required, *optional_names[:num_given]])} if {' and '.join([*present, *absent])} else "
    given = ", ".join(f"{name}={name}" for name in optional_names)
    return f"({cases}{call(required, f'**_given({given})')})"


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not ABSENT}


# -- wrappers ---------------------------------------------------------------------------------------------------------

_WRAPPER = """
{async_def} wrapper({parameters}):
    _append = _state.append
    if _append is None:
        return {called}
    _context = _get_context()
    if _context is None or _context[{THREAD_ID}] != _get_ident():
        _context = _enter_thread()
    _parent, _thread = _context[{CALL}], _context[{THREAD_CONTEXT}]
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
        _record_call(_append, _probe, _site, _call, _parent, _thread, _start, _end, {args}, {kwargs}, None, _error)
        raise
    {capture}
    {forget}
    _append((_site, _call, _parent, _thread.number, _start, _end, {facts}, None))
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
            _append((_site, _call, _parent, _thread.number, _start, _end, None, None))
            raise"""

_TIMING = """
            _facts = (_clock() - _end, _facts)"""

_NOTE = "_open = _state.open; _open[_call] = (_site, _parent, _thread.number, _start)"

_FUNCTION = {
    "async_def": "def",
    "enter": f"_context[{CALL}] = _call",
    "leave": f"_context[{CALL}] = _parent",
    "fail": f"_context[{CALL}] = _parent",
}
_RECONCILE = """
        if _state.reconcile is not None:
            _state.reconcile()"""
_COROUTINE = {  # has a call context of its own: while it waits, its call must not be the current one of other tasks
    "async_def": "async def",
    "enter": f"_token = _set_context([_call, _call, _context[{THREAD_ID}], _thread])",
    "leave": f"""try:
            _reset_context(_token)
        except ValueError:  # it began in another context
            _set_context(_context){_RECONCILE}""",
    "fail": f"_set_context(_context){_RECONCILE}",
}


def record_call(
    append: Callable[[Record], None],
    probe: Probe,
    site: int,
    call: int,
    parent: int,
    thread: ThreadContext,
    start: int,
    end: int,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any = None,
    error: BaseException | None = None,
) -> None:
    """Append the record of a call that returned `result` or raised `error`.

    Wrappers written below do this inline when a call returns; calling this function would double the cost.
    """
    facts = None
    capture = probe.capture
    summary = None if error is None or is_an_end(error, probe.loop) else remember(error)
    try:
        if capture is not None and (error is None or probe.even_if_raises):
            try:
                facts = capture(args, kwargs, result)
                if probe.timed:
                    facts = state.clock() - end, facts
            except Exception as mistake:
                probe.disable("capture", mistake)
    finally:  # Ctrl-C may strike in the capture
        state.open.pop(call, None)
        append((site, call, parent, thread.number, start, end, facts, summary))


_SCOPE = {
    "_absent": ABSENT,
    "_enter_thread": enter_thread,
    "_get_context": context_var.get,
    "_get_ident": get_ident,
    "_given": _given,
    "_new_site": new_site,
    "_next_call": next_call,
    "_record_call": record_call,
    "_reset_context": context_var.reset,
    "_set_context": context_var.set,
    "_state": state,
}


def compile_wrapper(
    function: Function, probe: Probe, summary: "ArgumentCapture | None", is_coroutine: bool
) -> Function:
    """Return a wrapper that records calls of `function`; `summary` is the probe's capture if it can be inlined."""
    if summary is not None:
        signature, kept = summary.signature, summary.source
    else:  # any other capture takes the arguments as a tuple and a dictionary
        signature = (signature_of(function) if probe.capture is None else None) or _ANY
        kept = f"_capture({signature.args}, {signature.kwargs}, _result)"
    owner = {"self": f"{signature.first}.__class__", "cls": signature.first, "": "None"}[probe.receiver]
    forget = "del _open[_call]" if probe.lasting else ""
    capture = _CAPTURE.format(kept=kept, timing=_TIMING if probe.timed else "", forget=forget)
    source = _WRAPPER.format(
        CALL=CALL,
        THREAD_ID=THREAD_ID,
        THREAD_CONTEXT=THREAD_CONTEXT,
        parameters=signature.parameters,
        called=f"await {signature.call}" if is_coroutine else signature.call,
        args=signature.args,
        kwargs=signature.kwargs,
        site=_SITE.format(owner=owner) if probe.receiver else "_site = _only_site",
        note=_NOTE if probe.lasting else "",
        forget=forget,
        step_ended="_state.step_ended(_parent)" if probe.is_step else "",
        capture=capture if probe.capture is not None else "",
        facts="_facts" if probe.capture is not None else "None",
        **(_COROUTINE if is_coroutine else _FUNCTION),
    )
    names = {**_SCOPE, **(summary.names_used if summary is not None else {}), "_function": function, "_probe": probe}
    names["_sites"] = probe.sites
    if not probe.receiver:
        names["_only_site"] = new_site(probe, None)
    exec(_compile(source), names)
    wrapper: Function = names["wrapper"]
    # A file of its own, which tracebacks and debuggers find in `linecache`.
    file = f"{PROBE_FILE} {function.__module__}.{function.__qualname__} #{next(_file_numbers)}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    wrapper.__code__ = wrapper.__code__.replace(co_filename=file)
    return wrapper


_file_numbers = count(1)


@cache
def _compile(source: str) -> CodeType:
    # Compiled separately: exec() of a text would make the interpreter forget that Ctrl-C ends it.
    return compile(source, __file__, "exec")
