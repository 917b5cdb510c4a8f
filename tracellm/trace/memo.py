"""A cache of values derived from a trace, kept as long as the trace itself.

A separate cache would keep a trace of a million spans alive after its last use.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import TypeVar

from tracellm.trace.model import Trace

__all__ = ["per_trace"]

T = TypeVar("T")


def per_trace(make: Callable[..., T]) -> Callable[..., T]:
    """Cache `make(trace, *more)` for each trace and each hashable `more`; the result is shared."""
    name = f"made by {make.__module__}.{make.__qualname__}"

    @wraps(make)
    def made(trace: Trace, *more: Hashable) -> T:
        kept: dict[tuple[Hashable, ...], T] = vars(trace).setdefault(name, {})  # as functools.cached_property does
        if more not in kept:
            kept[more] = make(trace, *more)
        return kept[more]

    return made
