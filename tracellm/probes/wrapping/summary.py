"""Summaries of arguments and results, `hidden_states=float32[7, 256]`, and the user's line that made a call.

`brief` runs inside a probed call and does as little as possible: a tensor becomes dtype and shape, a number stays, a
text becomes its length, anything else its class. `write` formats that later.
"""

import inspect
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from tracellm.probes.context.exceptions import is_probe_file
from tracellm.probes.context.notebook_cell import cell_name
from tracellm.probes.wrapping.codegen import ABSENT, Absent, Signature, signature_of
from tracellm.probes.wrapping.probe import Attributes, Capture
from tracellm.trace import names

__all__ = [
    "CALLER", "NOT_GIVEN", "ArgumentAttributes", "ArgumentCapture", "ExtraCapture", "UserAttributes",
    "VarArgsAttributes", "Where", "arguments_and_result", "brief", "brief_tensor", "caller", "caller_attributes",
    "is_given", "receiver_of", "write", "written",
]  # fmt: skip

Brief = Any
"""Plain data: None, a number, or a tuple that begins with a mark; an empty one is no value. Lists in record files."""

_TENSOR, _TEXT, _SIZED, _OBJECT, _GROUP, _WORD = range(6)  # in the record file, too: docs/run-folder.md
NOT_GIVEN: Brief = ()
"""Summary of an argument that a call did not give."""
_SMALL_GROUP = 4
_VERBATIM = frozenset(("request_id",))
"""Parameters whose text comes from the engine, and is kept."""


# -- summaries --------------------------------------------------------------------------------------------------------


def brief(value: Any) -> Brief:
    """Return a small plain summary of `value`, without a reference to it."""
    return (_SUMMARIZERS.get(value.__class__) or _summarizer(value.__class__))(value)


def brief_tensor(dtype: Any, *shape: int) -> Brief:
    """Return the summary of a tensor that was not made."""
    return (_TENSOR, _dtypes[dtype], *shape)


class _DtypeNames(dict[Any, str]):
    """Names of dtypes, `float32`."""

    def __missing__(self, dtype: Any) -> str:
        name = self[dtype] = str(dtype).removeprefix("torch.")
        return name


_dtypes = _DtypeNames()


def _itself(value: Any) -> Brief:
    return value


def _tensor(value: Any) -> Brief:
    return (_TENSOR, _dtypes[value.dtype], *value.shape)


def _group(value: Any) -> Brief:
    return (_GROUP, *[brief(item) for item in value]) if len(value) <= _SMALL_GROUP else _sized(value)


def _sized(value: Any) -> Brief:
    return (_SIZED, value.__class__.__name__, len(value))


_PLAIN = frozenset((type(None), int, float))
"""Classes whose values are kept. Not bool: True and 1 are equal, and equal values share one cache entry."""

_SUMMARIZERS: dict[type, Callable[[Any], Brief]] = {
    type(None): _itself,
    bool: lambda value: (_WORD, str(value)),
    int: _itself,
    float: _itself,
    str: lambda value: (_TEXT, len(value)),
    bytes: _sized,
    tuple: _group,
    list: _sized,
    dict: _sized,
    set: _sized,
    frozenset: _sized,
    Absent: lambda value: NOT_GIVEN,
}


def _summarizer(kind: type) -> Callable[[Any], Brief]:
    """Return how to summarize a new class. Imports nothing: a class in use is already imported."""
    summarize: Callable[[Any], Brief]
    if any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in kind.__mro__):
        summarize = _tensor
    elif kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        summarize = lambda value: (_WORD, str(value))  # noqa: E731
    elif issubclass(kind, type):
        summarize = lambda value: (_WORD, value.__name__)  # noqa: E731
    else:
        short = (_OBJECT, kind.__name__)
        summarize = lambda value: short  # noqa: E731
    if len(_SUMMARIZERS) < 10_000:
        _SUMMARIZERS[kind] = summarize
    return summarize


def _verbatim(value: Any) -> Brief:
    """Return a text itself; of anything else, the summary."""
    return (_WORD, value) if value.__class__ is str else brief(value)


def _brief_argument(parameter: str, value: Any) -> Brief:
    return _verbatim(value) if parameter in _VERBATIM else brief(value)


def write(summary: Brief) -> str:
    """Return a summary as text."""
    if isinstance(summary, float):  # 2 and 2.0 are equal, and share one cache entry
        return str(int(summary)) if summary.is_integer() and abs(summary) < 1e15 else f"{summary:.6g}"
    if not isinstance(summary, tuple | list):
        return str(summary)
    mark, *rest = summary
    if mark == _TENSOR:
        dtype, *shape = rest
        return f"{dtype}{shape}"
    if mark == _TEXT:
        return f"str of {rest[0]}"
    if mark == _SIZED:
        return f"{rest[0]} of {rest[1]}"
    if mark == _GROUP:
        return f"({', '.join(map(write, rest))})"
    return str(rest[0])


def written(pairs: Sequence[tuple[str, Brief]], result: Brief) -> dict[str, Any]:
    """Return the attributes for summaries of arguments and of a result; a result None is omitted."""
    attributes: dict[str, Any] = {}
    if pairs:
        attributes[names.ARGUMENTS] = [f"{name}={write(value)}" for name, value in pairs]
    if result is not None:
        attributes[names.RESULT] = write(result)
    return attributes


def is_given(value: Brief) -> bool:
    """Return whether a call gave this argument."""
    return value.__class__ not in (tuple, list) or len(value) > 0


# -- the default capture ----------------------------------------------------------------------------------------------


class ExtraCapture(NamedTuple):
    """Another value to keep of a call, what `call()` returns. `source` is the same for a wrapper, with `names_used`."""

    call: Callable[[], Any]
    source: str
    names_used: dict[str, Any]


class ArgumentCapture:
    """Default capture of a function whose parameters are known: `(each argument's summary..., the result's)`.

    With `also`, the facts are a pair of that value and this tuple. Wrappers inline `source`, with `names_used`
    (codegen.py).
    """

    def __init__(self, signature: Signature, skip: int, also: ExtraCapture | None) -> None:
        self.signature = signature
        self.names = signature.names[skip:]
        self._skip = skip
        self.also = also
        summaries = f"({', '.join(map(_brief_source, [*self.names, '_result']))},)"
        self.source = summaries if also is None else f"({also.source}, {summaries})"
        self.names_used = {**_NAMES_USED, **({} if also is None else {"_also": also.call, **also.names_used})}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """Return the facts, where the capture is not inlined."""
        if len(args) == len(self.signature.names) and _VERBATIM.isdisjoint(self.names):
            facts = (*map(brief, args[self._skip :]), brief(result))
        else:
            given = {**dict(zip(self.signature.names, args, strict=False)), **kwargs}
            facts = (*[_brief_argument(name, given.get(name, ABSENT)) for name in self.names], brief(result))
        return facts if self.also is None else (self.also.call(), facts)


def _brief_source(name: str) -> str:
    """Return source text with the effect of `_brief_argument`, without a call for the plainest values."""
    if name in _VERBATIM:
        return f"_verbatim({name})"
    kind = f"{name}.__class__"
    return f"{name} if {kind} in _plain else (_known_summarizer({kind}) or _summarizer({kind}))({name})"


_NAMES_USED = {
    "_plain": _PLAIN, "_known_summarizer": _SUMMARIZERS.get, "_summarizer": _summarizer, "_verbatim": _verbatim,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ArgumentAttributes:
    """Makes attributes of what `ArgumentCapture` kept; `names` are the arguments'.

    With `where`, facts are a pair that begins with the user's line.
    """

    names: tuple[str, ...]
    where: bool = False

    def __call__(self, facts: Any) -> dict[str, Any]:
        """Return the given arguments by name, and the result."""
        attributes, facts = _split_caller(self.where, facts)
        *arguments, result = facts
        given = [(name, value) for name, value in zip(self.names, arguments, strict=True) if is_given(value)]
        return attributes | written(given, result)


@dataclass(frozen=True, slots=True)
class VarArgsAttributes:
    """The same for a function with any number of arguments or a hidden signature; `names` are the positional ones."""

    names: tuple[str, ...]
    where: bool = False

    def __call__(self, facts: Any) -> dict[str, Any]:
        """Return the given arguments, those without names as `*0`, `*1`, ..., and the result."""
        attributes, facts = _split_caller(self.where, facts)
        given, keywords, result = facts
        more = [f"*{i}" for i in range(len(given) - len(self.names))]
        return attributes | written([*zip([*self.names, *more], given, strict=False), *keywords], result)


@dataclass(frozen=True, slots=True)
class UserAttributes:
    """Makes attributes of a pair: the user's line, and what a user's `attributes` function returned."""

    def __call__(self, facts: Any) -> dict[str, Any]:
        """Return the user's line; the rest is added later."""
        return caller_attributes(facts[0])


def _split_caller(where: bool, facts: Any) -> tuple[dict[str, Any], Any]:
    return (caller_attributes(facts[0]), facts[1]) if where else ({}, facts)


def receiver_of(function: Callable[..., Any]) -> str:
    """Return the name of the first parameter if it is `self` or `cls`, else ""."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    first = code.co_varnames[0] if code is not None and code.co_argcount else ""
    return first if first in ("self", "cls") else ""


def arguments_and_result(
    function: Callable[..., Any], receiver: str, also: ExtraCapture | None = None
) -> tuple[Capture, Attributes]:
    """Return the default `capture` and `attributes` of a function: summaries of its arguments and its result."""
    skip = 1 if receiver else 0
    signature = signature_of(function)
    if signature is not None:
        summary = ArgumentCapture(signature, skip, also)
        return summary, ArgumentAttributes(summary.names, also is not None)
    names = _positional(function)[skip:]
    capture = _var_args_capture(names, skip)
    attributes = VarArgsAttributes(names, also is not None)
    return capture if also is None else lambda *call: (also.call(), capture(*call)), attributes


def _positional(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def _var_args_capture(names: Sequence[str], skip: int) -> Capture:
    verbatim = [i for i, name in enumerate(names) if name in _VERBATIM]

    def capture(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        given = tuple(map(brief, args[skip:] if skip else args))
        for i in verbatim:
            if i < len(given):
                given = (*given[:i], _verbatim(args[skip + i]), *given[i + 1 :])
        keywords = tuple([(name, _brief_argument(name, value)) for name, value in kwargs.items()]) if kwargs else ()
        return given, keywords, brief(result)

    return capture


# -- the user's line --------------------------------------------------------------------------------------------------

Where = tuple[str, int, str]
"""Line of the user's code: file, relative to the initial directory if possible, line number, text."""

_PACKAGE = str(Path(__file__).parents[2]) + os.sep
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))

_START = ""
"""The current directory at import; a script may leave or remove it."""
with suppress(OSError):
    _START = os.getcwd()

_MAX_KNOWN = 10_000
_known: dict[tuple[int, int], Where] = {}
"""Lines by the code's id and the call's offset in it. Computing a line number takes microseconds in a long script."""
_codes: list[CodeType] = []
"""Keeps the codes alive, so that their ids are not reused."""


@cache
def _owner(file: str) -> str:
    """Return the owner of a file's code: `probes`, the rest of `tracellm`, `library` or `user`."""
    if is_probe_file(file):
        return "probes"
    if file.startswith(_PACKAGE):
        return "tracellm"
    packaged = "site-packages" in file or "dist-packages" in file
    return "library" if packaged or file.startswith((*_LIBRARIES, "<frozen")) else "user"


def caller() -> Where | None:
    """Return the user's line that made the call being recorded; None if the engine made it.

    Called by the wrapper of a probed call, or by what that calls.
    """
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        owner = _owner(code.co_filename)
        if owner == "user":
            return _known.get((id(code), frame.f_lasti)) or _add_known(code, frame.f_lasti, frame.f_lineno)
        if owner == "tracellm":
            return None
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _add_known(code: CodeType, position: int, line: int) -> Where:
    file = code.co_filename
    below = _START and Path(file).is_relative_to(_START)
    short = cell_name(file) or (Path(file).relative_to(_START).as_posix() if below else file)
    where = short, line, linecache.getline(file, line).strip()
    if len(_known) < _MAX_KNOWN:
        _codes.append(code)
        _known[id(code), position] = where
    return where


CALLER = ExtraCapture(
    caller,
    "_known_calls.get((_id((_frame := _getframe(1)).f_code), _frame.f_lasti)) or _also()",
    {"_getframe": sys._getframe, "_id": id, "_known_calls": _known},
)
"""The user's line for `@tracellm.probe`. The caller is usually the user's code, which is checked without a call."""


def caller_attributes(where: Where | None) -> dict[str, Any]:
    """Return the user's line as attributes."""
    if where is None:
        return {}
    file, line, text = where
    attributes: dict[str, Any] = {names.CALLER_FILE: file, names.CALLER_LINE: line}
    if text:
        attributes[names.CALLER_TEXT] = text
    return attributes
