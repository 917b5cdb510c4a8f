"""What pickle makes of records that another process is to understand: plain data, whatever classes it is of here.

A part of parcel.py. Both processes have the same tracellm; what else there is here, the other one need not have: not
the engine, which needs torch, nor anybody's module. So nothing is named there that is not known to be harmless.
"""

import io
import numbers
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Protocol

from tracellm.probes.spec import Probe
from tracellm.probes.state import Place

__all__ = ["CannotBeSent", "PlainPickler", "PlainUnpickler"]

Function = Callable[..., Any]

_PROTOCOL = 5
_ENGINE = "tracellm.engine."


class CannotBeSent(Exception):
    """Something in a message is of use in this process only."""


class Stands(Protocol):
    """Says what is sent in place of a probe and of a class: a function and its arguments."""

    def probe(self, probe: Probe) -> tuple[Any, ...]:
        """For a probe."""

    def owner(self, kind: type) -> tuple[Any, ...]:
        """For a class that the other process lacks."""


_BASES: tuple[type, ...] = (str, int, float, bytes, tuple, list, dict, set, frozenset)


class PlainPickler(pickle.Pickler):
    """Packs into `stream`; of probes, and of classes, what `stands` for them."""

    def __init__(self, stream: io.BytesIO, stands: Stands) -> None:
        super().__init__(stream, _PROTOCOL)
        self._stands = stands

    def reducer_override(self, thing: Any) -> Any:
        """How to pack what is not one of the interpreter's plainest types; `NotImplemented`: as pickle does."""
        kind = type(thing)
        if kind is Probe:
            return self._stands.probe(thing)
        if kind is Place:
            return Place, (thing.thread, thing.thread_name, thing.begun, thing.since)
        if issubclass(kind, type):
            return NotImplemented if _is_known(thing) else self._stands.owner(thing)
        if kind in (FunctionType, BuiltinFunctionType, MethodType):
            if kind is MethodType or (_is_known(thing) and "<" not in thing.__qualname__):
                return NotImplemented
        elif _is_known(kind):
            return NotImplemented
        elif kind.__module__ == "torch" and kind.__name__ == "dtype":
            return str, (str(thing),)
        elif (base := next((one for one in _BASES if isinstance(thing, one)), None)) is not None:
            return base, (_plainer(thing, base),)
        elif issubclass(kind, numbers.Integral):  # NumPy's
            return int, (int(thing),)
        raise CannotBeSent(f"it holds an object of {kind.__qualname__}, which only this process knows")


def _plainer(thing: Any, base: type) -> Any:
    """The same as an object of `base`, which it derives from."""
    if base in (str, int, float):
        return getattr(base, f"__{base.__name__}__")(thing)
    return base(thing)


class PlainUnpickler(pickle.Unpickler):
    """Unpacks; what a message names is made by the function of the same name that stands in `makes`, if one does."""

    def __init__(self, stream: io.BytesIO, makes: Mapping[Function, Function]) -> None:
        super().__init__(stream)
        self._makes = {(one.__module__, one.__name__): makes[one] for one in makes}

    def find_class(self, module: str, name: str) -> Any:
        """What a message names: only what is known here."""
        if (own := self._makes.get((module, name))) is not None:
            return own
        found = super().find_class(module, name)
        if not _is_known(found):
            raise pickle.UnpicklingError(f"{module}.{name} is not expected in a message")
        return found


def _is_known(thing: Any) -> bool:
    """Is it a class or function that the other process has too?"""
    module = thing.__module__ or ""
    ours = module.startswith("tracellm.") and not module.startswith(_ENGINE)
    return ours or thing in (*_BASES, getattr, partial)
