"""Pause of Python's garbage collector while many long-lived objects are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["gc_paused"]


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable garbage collection; the objects made count as old afterwards.

    Reading a million spans makes millions of objects, none of them garbage. The collector would scan all of them again
    and again, and once more when enabled: half of the reading time. Freezing and unfreezing moves all young objects to
    the oldest generation without a scan.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # keep what other code has frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
