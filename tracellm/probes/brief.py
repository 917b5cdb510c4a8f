"""Arguments and results in short: `hidden_states=float32[7, 256]`, never their content.

`brief` runs inside a probed call, so it does as little as it can: a tensor is a dtype and a shape, a number itself, a
text its length, anything else its class. `write` makes words of that later.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tracellm.probes.spec import Attributes, Capture
from tracellm.trace import names

__all__ = ["arguments_and_result", "brief", "receiver_of", "write", "written"]

Brief = Any
"""A hashable value: None, a number, or a tuple that begins with a mark."""

_TENSOR, _TEXT, _SIZED, _OBJECT, _GROUP, _WORD = "tensor", "text", "sized", "object", "group", "word"
_SMALL_GROUP = 4
_TOLD = frozenset(("request_id",))
"""Parameters whose text is the engine's own, and is told as it is."""


def brief(value: Any) -> Brief:
    """A small copy of what is to be told of `value`; holds no reference to it."""
    return (_HOW.get(value.__class__) or _learn(value.__class__))(value)


def _itself(value: Any) -> Brief:
    return value


def _tensor(value: Any) -> Brief:
    return (_TENSOR, value.dtype, value.shape)


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
    if isinstance(copy, float):
        return f"{copy:.6g}"
    if not isinstance(copy, tuple):
        return str(copy)
    mark, *rest = copy
    if mark == _TENSOR:
        dtype, shape = rest
        return f"{str(dtype).removeprefix('torch.')}{list(shape)}"
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


def arguments_and_result(function: Callable[..., Any], receiver: str) -> tuple[Capture, Attributes]:
    """The default `capture` and `attributes` for a function: its arguments, by name, and its result, both in short."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell its signature
        parameters = []
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    skip = 1 if receiver else 0
    positional = positional[skip:]

    def general(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        keywords = [(name, told(value) if name in _TOLD else brief(value)) for name, value in kwargs.items()]
        given = [
            told(value) if i < len(positional) and positional[i] in _TOLD else brief(value)
            for i, value in enumerate(args[skip:])
        ]
        return tuple(given), tuple(keywords), brief(result)

    remembered: dict[Any, dict[str, Any]] = {}

    def attributes(facts: Any) -> dict[str, Any]:
        known = remembered.get(facts)
        if known is None:
            given, keywords, result = facts
            more = [f"*{i}" for i in range(len(given) - len(positional))]
            pairs = [*zip(positional + more, given, strict=False), *keywords]
            known = written(pairs, result)
            if len(remembered) < 1000:
                remembered[facts] = known
        return known

    return _unrolled(positional, skip, general), attributes


def told(value: Any) -> Brief:
    """A copy of a text that is told as it is; of anything else what `brief` makes."""
    return (_WORD, value) if value.__class__ is str else brief(value)


def _unrolled(positional: Sequence[str], skip: int, general: Capture) -> Capture:
    """`general`, written out for calls with all positional arguments and no keywords: that takes half the time."""
    count = len(positional) + skip
    given_names = [f"a{i}" for i in range(count)]
    copies = [
        f"{name} if {name}.__class__ in plain else {'told' if parameter in _TOLD else 'brief'}({name})"
        for parameter, name in zip([*positional, "result"], [*given_names[skip:], "result"], strict=True)
    ]
    given = "".join(f"{copy}, " for copy in copies[:-1])
    source = f"""
def capture(args, kwargs, result):
    if kwargs or len(args) != {count}:
        return general(args, kwargs, result)
    {"".join(f"{name}, " for name in given_names) or "()"} = args
    return ({given}), (), {copies[-1]}
"""
    scope: dict[str, Any] = {"plain": _PLAIN, "brief": brief, "told": told, "general": general}
    # Compiled first: running a text would make the interpreter forget that Ctrl-C is what ends it.
    exec(compile(source, __file__, "exec"), scope)
    capture: Capture = scope["capture"]
    return capture


def written(pairs: Sequence[tuple[str, Brief]], result: Brief) -> dict[str, Any]:
    """The attributes for arguments and a result that were copied by `brief`; a result None is not worth a word."""
    attributes: dict[str, Any] = {}
    if pairs:
        attributes[names.ARGUMENTS] = [f"{name}={write(value)}" for name, value in pairs]
    if result is not None:
        attributes[names.RESULT] = write(result)
    return attributes
