"""Ctrl-C between two steps instead of inside one.

A step that is cut in half leaves the engine in a state that is true nowhere: blocks that count as cached but were never
computed, requests that only one side knows. So while `LLM.generate` runs, Ctrl-C is noted, and takes effect at the next
`check()`. A second Ctrl-C does not wait.

vLLM has no counterpart: there, an interrupted engine is not used again.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interrupts", "deferred_interrupts"]


class Interrupts:
    """Holds back the interrupt that came, if one did."""

    def __init__(self) -> None:
        self._pending: tuple[int, FrameType | None] | None = None
        self._previous = signal.getsignal(signal.SIGINT)

    def check(self) -> None:
        """Let an interrupt that was held back take effect now.

        Raises:
            KeyboardInterrupt: one was, and the script did not install another handler.
        """
        if self._pending is not None and callable(self._previous):
            pending, self._pending = self._pending, None
            self._previous(*pending)

    def _hold_back(self, signum: int, frame: FrameType | None) -> None:
        again = self._pending is not None
        self._pending = signum, frame
        if again:
            self.check()


@contextmanager
def deferred_interrupts() -> Iterator[Interrupts]:
    """Hold back Ctrl-C inside the block, but for calls of `check()`.

    Changes nothing outside the main thread, which alone receives signals, or where Ctrl-C is ignored.
    """
    interrupts = Interrupts()
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield interrupts
        return
    signal.signal(signal.SIGINT, interrupts._hold_back)
    try:
        yield interrupts
        interrupts.check()
    finally:
        signal.signal(signal.SIGINT, previous)
