"""Python's garbage collector, held while many objects are made that all stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_held"]


@contextmanager
def collector_held() -> Iterator[None]:
    """No garbage is looked for meanwhile.

    Who reads a million spans makes millions of objects, none of which is garbage. The collector would look through all
    of them, again and again: half of the time that reading takes.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
