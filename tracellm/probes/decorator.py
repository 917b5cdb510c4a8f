"""`@tracellm.probe`: record a user's own function among the engine's.

    @tracellm.probe
    def answer(question): ...

    @tracellm.probe(name="retrieve", attributes=lambda args, kwargs, result: {"documents": len(result)})
    async def retrieve(question): ...

Without a recording (`tracellm run --explain`) it only calls the function.
"""

import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

from tracellm.probes.context.notebook_cell import NOTEBOOK, is_in_notebook
from tracellm.probes.wrapping.probe import Mistake, Probe, code_constants
from tracellm.probes.wrapping.summary import CALLER, UserAttributes, arguments_and_result, caller, receiver_of
from tracellm.probes.wrapping.wrapper import wrap

__all__ = ["own_problems", "probe"]

F = TypeVar("F", bound=Callable[..., Any])

OwnAttributes = Mapping[str, Any] | Callable[[tuple[Any, ...], dict[str, Any], Any], Mapping[str, Any]]

_MAX_TEXT = 16_384
_SCALARS = (bool, int, float, str)

own_problems: list[Mistake] = []
"""Failures of users' `attributes` functions; a recording reports them when it ends."""


@overload
def probe(function: F, /) -> F: ...


@overload
def probe(*, name: str | None = None, attributes: OwnAttributes | None = None) -> Callable[[F], F]: ...


def probe(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    attributes: OwnAttributes | None = None,
) -> Any:
    """Record every call of a function, coroutine, generator, asynchronous generator or method.

    Args:
        function: the function; omitted when the decorator has arguments.
        name: the span's name; by default that of the function, with its class.
        attributes: further attributes of the span: a mapping, or `attributes(args, kwargs, result)`, which returns one
            and is called when a call returns. By default a summary of arguments and result, without any text. Names
            that begin with `tracellm.` are reserved.

    Raises:
        TypeError: what is decorated is not a function.
        ValueError: `attributes` has a reserved name.
    """
    if function is None:
        return functools.partial(_probe, name=name, attributes=attributes)
    return _probe(function, name, attributes)


def _probe(function: Any, name: str | None, attributes: OwnAttributes | None) -> Any:
    if isinstance(function, staticmethod | classmethod):  # the decorator stands above @staticmethod
        return type(function)(_probe(function.__func__, name, attributes))
    if isinstance(function, type) or not callable(function) or not hasattr(function, "__qualname__"):
        what = f"the class {function.__qualname__}" if isinstance(function, type) else repr(function)
        raise TypeError(f"@tracellm.probe records functions and methods, not {what}; put it on the methods")
    return wrap(function, _own_probe(function, name, attributes))


def _own_probe(function: Any, name: str | None, attributes: OwnAttributes | None) -> Probe:
    path = function.__qualname__.replace("<locals>.", "").split(".")
    in_class = "." in function.__qualname__ and not function.__qualname__.endswith(f"<locals>.{path[-1]}")
    receiver = receiver_of(function) if in_class else ""
    own_probe = Probe(
        method=path[-1],
        level="request",
        receiver=receiver,  # type: ignore[arg-type]
        span_name=name or (None if receiver else ".".join(path)),
        lifeline=None if receiver else path[-2] if in_class else _module(function),
        constants=code_constants(function),
        problems=own_problems,
    )
    if callable(attributes):
        own = attributes
        own_probe.capture = lambda args, kwargs, result: (caller(), _plain_attributes(own(args, kwargs, result)))
        own_probe.attributes = UserAttributes()
        own_probe.timed = True
    else:
        own_probe.capture, own_probe.attributes = arguments_and_result(function, receiver, also=CALLER)
        own_probe.users_attributes = _plain_attributes(attributes or {})
        own_probe.even_if_raises = True
    return own_probe


def _plain_attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes as OpenTelemetry can hold them.

    Raises:
        ValueError: a name is reserved.
    """
    plain = {str(name): _plain(value) for name, value in attributes.items()}
    for name in plain:
        if name.startswith("tracellm."):
            raise ValueError(f"an attribute of @tracellm.probe cannot be called {name!r}: choose a name of your own")
    return plain


def _plain(value: Any) -> Any:
    """Return a scalar, a list of scalars of one type, or else the value as text."""
    for kind in _SCALARS:
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, list | tuple) and value:
        kind = type(value[0])
        if kind in _SCALARS and all(type(item) is kind for item in value):
            return list(value)
    try:
        return str(value)[:_MAX_TEXT]
    except Exception:  # raised by the value's own class
        return type(value).__name__


def _module(function: Any) -> str:
    """Return the lifeline of a function: its module, the script's file name, or `notebook`."""
    if function.__module__ == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None) or (NOTEBOOK if is_in_notebook() else "__main__")
        return Path(file).name
    return str(function.__module__)
