"""Arguments and results in short: `hidden_states=float32[7, 256]`, never their content.

`brief` runs inside a probed call, so it does as little as it can: a tensor is a dtype and a shape, a number itself, a
text its length, anything else its class. `write` makes words of that later.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tracellm.probes.wrapping.probe import Attributes, Capture
from tracellm.probes.wrapping.signature import ABSENT, Absent, Signature, signature_of
from tracellm.trace import names

__all__ = [
    "NOT_GIVEN",
    "ArgumentAttributes",
    "ArgumentCapture",
    "ExtraCapture",
    "UserAttributes",
    "VarArgsAttributes",
    "Where",
    "arguments_and_result",
    "brief",
    "brief_tensor",
    "caller_attributes",
    "is_given",
    "receiver_of",
    "write",
    "written",
]

Brief = Any
"""Plain data: None, a number, or a tuple that begins with a mark; an empty one is no value at all. Read back from a
record file, tuples are lists."""

_TENSOR, _TEXT, _SIZED, _OBJECT, _GROUP, _WORD = range(6)  # in the record file, too: docs/run-folder.md
NOT_GIVEN: Brief = ()
"""Stands for an argument that a call did not give."""
_SMALL_GROUP = 4
_TOLD = frozenset(("request_id",))
"""Parameters whose text is the engine's own, and is told as it is."""


def brief(value: Any) -> Brief:
    """A small copy of what is to be told of `value`; holds no reference to it."""
    return (_HOW.get(value.__class__) or _learn(value.__class__))(value)


def _itself(value: Any) -> Brief:
    return value


def _tensor(value: Any) -> Brief:
    return (_TENSOR, _dtypes[value.dtype], *value.shape)


class _DtypeNames(dict[Any, str]):
    """Names of dtypes, `float32`."""

    def __missing__(self, dtype: Any) -> str:
        name = self[dtype] = str(dtype).removeprefix("torch.")
        return name


_dtypes = _DtypeNames()


def brief_tensor(dtype: Any, *shape: int) -> Brief:
    """The same of a tensor that need not be made for it."""
    return (_TENSOR, _dtypes[dtype], *shape)


def _group(value: Any) -> Brief:
    if len(value) <= _SMALL_GROUP:
        return (_GROUP, *[brief(item) for item in value])
    return (_SIZED, value.__class__.__name__, len(value))


def _sized(value: Any) -> Brief:
    return (_SIZED, value.__class__.__name__, len(value))


_PLAIN = frozenset((type(None), int, float))
"""Classes whose values are told as they are. Not bool: True and 1 are equal, and what equals is remembered once."""

_HOW: dict[type, Callable[[Any], Brief]] = {
    type(None): _itself,
    bool: lambda value: (_WORD, str(value)),
    int: _itself,
    float: _itself,
    str: lambda value: (_TEXT, len(value)),
    bytes: lambda value: (_TEXT, len(value)),
    tuple: _group,
    list: _sized,
    dict: _sized,
    set: _sized,
    frozenset: _sized,
    Absent: lambda value: NOT_GIVEN,
}


def _learn(kind: type) -> Callable[[Any], Brief]:
    """How to copy a class met for the first time. Nothing is imported: a class that is in use is already there."""
    how: Callable[[Any], Brief]
    if any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in kind.__mro__):
        how = _tensor
    elif kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        how = lambda value: (_WORD, str(value))  # noqa: E731
    elif issubclass(kind, type):
        how = lambda value: (_WORD, value.__name__)  # noqa: E731
    else:
        short = (_OBJECT, kind.__name__)
        how = lambda value: short  # noqa: E731
    if len(_HOW) < 10_000:
        _HOW[kind] = how
    return how


def write(copy: Brief) -> str:
    """What `brief` kept, in words."""
    if isinstance(copy, float):  # 2 and 2.0 are equal, so that whoever remembers one has the other
        return str(int(copy)) if copy.is_integer() and abs(copy) < 1e15 else f"{copy:.6g}"
    if not isinstance(copy, tuple | list):
        return str(copy)
    mark, *rest = copy
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


def receiver_of(function: Callable[..., Any]) -> str:
    """`self` or `cls` if the function's first parameter is called so, else nothing."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    first = code.co_varnames[0] if code is not None and code.co_argcount else ""
    return first if first in ("self", "cls") else ""


class ExtraCapture(NamedTuple):
    """What is kept of a call besides: what `call()` returns. `source` says it in the wrapper, `scope` has its names."""

    call: Callable[[], Any]
    source: str
    scope: dict[str, Any]


class ArgumentCapture:
    """The default capture where all parameters are known: `(each argument in short..., the result in short)`.

    With `also`, the capture is a pair of that and of this tuple. The wrapper has `source` in place of a call
    (codegen.py), which needs `scope`.
    """

    def __init__(self, signature: Signature, skip: int, also: ExtraCapture | None) -> None:
        self.signature = signature
        self.names = signature.names[skip:]
        self._skip = skip
        self.also = also
        short = f"({', '.join(map(_copied, [*self.names, '_result']))},)"
        self.source = short if also is None else f"({also.source}, {short})"
        self.scope = {**_SCOPE, **({} if also is None else {"_also": also.call, **also.scope})}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """The same, where it is not written out."""
        if len(args) == len(self.signature.names) and _TOLD.isdisjoint(self.names):
            facts = (*map(brief, args[self._skip :]), brief(result))
        else:
            given = {**dict(zip(self.signature.names, args, strict=False)), **kwargs}
            facts = (*[_copy(name, given.get(name, ABSENT)) for name in self.names], brief(result))
        return facts if self.also is None else (self.also.call(), facts)


@dataclass(frozen=True, slots=True)
class ArgumentAttributes:
    """The attributes of what `ArgumentCapture` kept; each argument has the name that stands here.

    With `where`, facts are a pair whose first part is the user's line.
    """

    names: tuple[str, ...]
    where: bool = False

    def __call__(self, facts: Any) -> dict[str, Any]:
        """The arguments that were given, by their names, and the result."""
        attributes, facts = _where_and_rest(self.where, facts)
        *given, result = facts
        told = [(name, value) for name, value in zip(self.names, given, strict=True) if is_given(value)]
        return attributes | written(told, result)


@dataclass(frozen=True, slots=True)
class VarArgsAttributes:
    """The same for a function that takes any number of arguments or hides its own; `names` are of those by position."""

    names: tuple[str, ...]
    where: bool = False

    def __call__(self, facts: Any) -> dict[str, Any]:
        """Arguments beyond the names are `*0`, `*1`, ..."""
        attributes, facts = _where_and_rest(self.where, facts)
        given, keywords, result = facts
        more = [f"*{i}" for i in range(len(given) - len(self.names))]
        return attributes | written([*zip([*self.names, *more], given, strict=False), *keywords], result)


@dataclass(frozen=True, slots=True)
class UserAttributes:
    """The user's line, and the attributes that a user's function made of the call."""

    def __call__(self, facts: Any) -> dict[str, Any]:
        """The user's line as attributes; what the user's function returned is the second of the facts."""
        return caller_attributes(facts[0])


def _where_and_rest(where: bool, facts: Any) -> tuple[dict[str, Any], Any]:
    return (caller_attributes(facts[0]), facts[1]) if where else ({}, facts)


def is_given(value: Brief) -> bool:
    """Whether a call gave this argument."""
    return value.__class__ not in (tuple, list) or len(value) > 0


def arguments_and_result(
    function: Callable[..., Any], receiver: str, also: ExtraCapture | None = None
) -> tuple[Capture, Attributes]:
    """The default `capture` and `attributes` for a function: its arguments, by name, and its result, both in short.

    With `also`, the capture is a pair of what that returns and of the facts that `attributes` is about.
    """
    skip = 1 if receiver else 0
    signature = signature_of(function)
    if signature is not None:
        in_short = ArgumentCapture(signature, skip, also)
        return in_short, ArgumentAttributes(in_short.names, also is not None)
    names = _positional(function)[skip:]
    capture = _of_any(names, skip)
    attributes = VarArgsAttributes(names, also is not None)
    return capture if also is None else lambda *call: (also.call(), capture(*call)), attributes


def _positional(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell its signature
        return ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def _of_any(names: Sequence[str], skip: int) -> Capture:
    """Capture for a function that takes any number of arguments or hides its own."""
    told_ones = [i for i, name in enumerate(names) if name in _TOLD]

    def capture(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        given = tuple(map(brief, args[skip:] if skip else args))
        for i in told_ones:
            if i < len(given):
                given = (*given[:i], told(args[skip + i]), *given[i + 1 :])
        keywords = tuple([(name, _copy(name, value)) for name, value in kwargs.items()]) if kwargs else ()
        return given, keywords, brief(result)

    return capture


def _copy(parameter: str, value: Any) -> Brief:
    return told(value) if parameter in _TOLD else brief(value)


def told(value: Any) -> Brief:
    """A copy of a text that is told as it is; of anything else what `brief` makes."""
    return (_WORD, value) if value.__class__ is str else brief(value)


def _copied(name: str) -> str:
    """What `_copy` does, as source text for a variable; nothing is called for the plainest of values."""
    if name in _TOLD:
        return f"_told({name})"
    return f"{name} if {name}.__class__ in _plain else (_how({name}.__class__) or _learn({name}.__class__))({name})"


_SCOPE = {"_plain": _PLAIN, "_how": _HOW.get, "_learn": _learn, "_told": told}


Where = tuple[str, int, str]
"""A line of the user's: its file from the folder of the start if it lies there, its number, its text."""


def caller_attributes(where: Where | None) -> dict[str, Any]:
    """The user's line as attributes."""
    if where is None:
        return {}
    file, line, text = where
    attributes: dict[str, Any] = {names.CALLER_FILE: file, names.CALLER_LINE: line}
    if text:
        attributes[names.CALLER_TEXT] = text
    return attributes


def written(pairs: Sequence[tuple[str, Brief]], result: Brief) -> dict[str, Any]:
    """The attributes for arguments and a result that were copied by `brief`; a result None is not worth a word."""
    attributes: dict[str, Any] = {}
    if pairs:
        attributes[names.ARGUMENTS] = [f"{name}={write(value)}" for name, value in pairs]
    if result is not None:
        attributes[names.RESULT] = write(result)
    return attributes
