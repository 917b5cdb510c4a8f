"""Python's garbage collector, held while many objects are made that all stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["gc_paused"]


@contextmanager
def gc_paused() -> Iterator[None]:
    """No garbage is looked for meanwhile, and what was made counts as old afterwards.

    Who reads a million spans makes millions of objects, none of which is garbage. The collector would look through all
    of them, again and again, and once more when it is let go: half of the time that reading takes. Freezing and
    unfreezing puts all that is young among the old, which are looked through seldom, without looking at any of it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # what somebody else has frozen stays so
                gc.freeze()
                gc.unfreeze()
            gc.enable()
