"""Ctrl-C between two steps instead of inside one.

An interrupted step leaves the engine inconsistent: blocks marked as cached but never computed, requests that only one
side of the engine has. While `LLM.generate` runs, Ctrl-C is deferred to the next `check()`; a second one is not.

No vLLM counterpart: an interrupted engine cannot be used again there.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupts", "deferred_interrupts"]


class Interrupts:
    """Deferred interrupt, if one came."""

    def __init__(self, signum: int) -> None:
        self._pending: tuple[int, FrameType | None] | None = None
        self._previous = signal.getsignal(signum)

    def check(self) -> None:
        """Handle a deferred interrupt now.

        Raises:
            KeyboardInterrupt: there was one, and the script installed no other handler.
        """
        if self._pending is not None and callable(self._previous):
            pending, self._pending = self._pending, None
            self._previous(*pending)

    def _defer(self, signum: int, frame: FrameType | None) -> None:
        is_second = self._pending is not None
        self._pending = signum, frame
        if is_second:
            self.check()


@contextmanager
def deferred_interrupts(signum: int = signal.SIGINT) -> Iterator[Interrupts]:
    """Defer Ctrl-C, or another signal, inside the block to calls of `check()` and to its end.

    Does nothing in other threads than the main one, which alone receives signals, or if the signal has no handler in
    Python.
    """
    interrupts = Interrupts(signum)
    previous = signal.getsignal(signum)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield interrupts
        return
    signal.signal(signum, interrupts._defer)
    try:
        yield interrupts
    finally:
        signal.signal(signum, previous)
        interrupts.check()  # last: a signal that came just before the previous handler was back
