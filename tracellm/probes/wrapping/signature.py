"""A function's own parameters as source text, with which a wrapper is written out for it (codegen.py).

The wrapper has the same parameters, so that positional and keyword arguments end up where they belong without a tuple
and a dictionary made for each call. What is not given must not be passed on either: its default here is `ABSENT`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

__all__ = ["ABSENT", "ANY", "Absent", "Signature", "given", "signature_of"]


class Absent:
    """The class of ABSENT."""

    __slots__ = ()


ABSENT = Absent()
"""Stands for an argument that a call did not give."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters and what is done with them, each as source text.

    Attributes:
        parameters: as they stand in `def wrapper(...)`.
        call: calls `_function` with what was given.
        args: all of them as a tuple ...
        kwargs: ... and what is given by keyword besides, as a dictionary.
        first: the first one.
        names: of all parameters in the order in which they are declared.
    """

    parameters: str
    call: str
    args: str
    kwargs: str
    first: str
    names: tuple[str, ...] = ()


ANY = Signature("*args, **kwargs", "_function(*args, **kwargs)", "args", "kwargs", "(args[0] if args else None)")
"""For a function of which nothing is known."""


def given(**arguments: Any) -> dict[str, Any]:
    """Those that are not absent."""
    return {name: value for name, value in arguments.items() if value is not ABSENT}


def signature_of(function: Callable[..., Any]) -> Signature | None:
    """The signature, where it is plain: no `*args` or `**kwargs`, nothing hidden beneath a decorator; else None."""
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return None
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or not all(map(_is_plain, names)):
        return None
    positional, keywords = names[: code.co_argcount], names[code.co_argcount :]
    with_default = {*positional[len(positional) - len(function.__defaults__ or ()) :], *(function.__kwdefaults__ or ())}
    if with_default.intersection(positional[: code.co_posonlyargcount]):
        return None  # what is passed on by its place cannot be left out in the middle
    return Signature(
        _declared(positional, keywords, code.co_posonlyargcount, with_default),
        _called(positional, keywords, with_default),
        _tuple(names),
        "{}",
        names[0] if positional else "None",
        names,
    )


def _is_plain(name: str) -> bool:
    return name.isidentifier() and not name.startswith("_")  # names with `_` are the wrapper's own


def _declared(positional: tuple[str, ...], keywords: tuple[str, ...], before_slash: int, optional: set[str]) -> str:
    parts = [f"{name}=_absent" if name in optional else name for name in (*positional, *keywords)]
    if keywords:
        parts.insert(len(positional), "*")
    if before_slash:
        parts.insert(before_slash, "/")
    return ", ".join(parts)


def _called(positional: tuple[str, ...], keywords: tuple[str, ...], optional: set[str]) -> str:
    """A call with what was given. Mostly that is the first so many of those that may be left out: the cases that are
    written out, one after the other; what remains is slower."""
    arguments = {**{name: name for name in positional}, **{name: f"{name}={name}" for name in keywords}}
    may_go = [name for name in arguments if name in optional]
    needed = [name for name in arguments if name not in optional]

    def call(names: list[str], *more: str) -> str:
        return f"_function({', '.join([*(text for name, text in arguments.items() if name in names), *more])})"

    if not may_go:
        return call(needed)
    cases = ""
    for count in range(len(may_go), -1, -1) if len(may_go) <= _MOST_CASES else (len(may_go), 0):
        there = [f"{name} is not _absent" for name in may_go[:count]]
        gone = [f"{name} is _absent" for name in may_go[count:]]
        cases += f"{call([*needed, *may_go[:count]])} if {' and '.join([*there, *gone])} else "
    given = ", ".join(f"{name}={name}" for name in may_go)
    return f"({cases}{call(needed, f'**_given({given})')})"


_MOST_CASES = 4


def _tuple(names: tuple[str, ...]) -> str:
    return f"({''.join(f'{name}, ' for name in names)})"
