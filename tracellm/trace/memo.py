"""A cache of what several reports make of the same trace, kept for as long as the trace itself.

A cache beside the traces would keep a trace of a million spans alive after its last reader has let it go.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import TypeVar

from tracellm.trace.model import Trace

__all__ = ["per_trace"]

T = TypeVar("T")


def per_trace(make: Callable[..., T]) -> Callable[..., T]:
    """`make(trace, *more)`, called once for each trace and each `more`, all hashable; what it gives is shared."""
    name = f"made by {make.__module__}.{make.__qualname__}"

    @wraps(make)
    def made(trace: Trace, *more: Hashable) -> T:
        kept: dict[tuple[Hashable, ...], T] = vars(trace).setdefault(name, {})  # as functools.cached_property does
        if more not in kept:
            kept[more] = make(trace, *more)
        return kept[more]

    return made
