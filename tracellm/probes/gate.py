"""What keeps the buffer of records bounded when calls are recorded faster than they can be written.

The buffer is a list, and a probed call appends to it: nothing is cheaper. Should the writer fall so far behind that the
list grows beyond all measure, it closes the gate: from then on a call appends its record and then waits until the
writer has caught up. So nothing is dropped and memory stays bounded, and in the usual case it costs nothing at all.
"""

import threading
import time
from _thread import get_ident
from collections.abc import Callable
from typing import Any

from tracellm.probes.state import state

__all__ = ["Gate"]

_LONGEST_WAIT = 0.1  # seconds until somebody who waits looks again whether the writer is still there


class Gate:
    """Stands before `buffer`, which the thread `writer` empties.

    Attributes:
        held_up_ns: how long calls have waited, all threads together.
    """

    def __init__(self, buffer: list[Any], writer: threading.Thread) -> None:
        self.held_up_ns = 0
        self._append: Callable[[Any], None] = buffer.append
        self._writer = writer
        self._open = threading.Event()
        self._open.set()
        self._counting = threading.Lock()

    def close(self) -> None:
        """Who appends from now on has to wait."""
        if self._open.is_set():
            self._open.clear()
        if state.append == self._append:
            state.append = self.append

    def open(self) -> None:
        """All may go on."""
        if state.append == self.append:
            state.append = self._append
        self._open.set()

    def append(self, record: Any) -> None:
        """Append a record, then wait for the gate to open."""
        self._append(record)
        if self._open.is_set() or get_ident() == self._writer.ident:
            return
        start = time.perf_counter_ns()
        try:
            while self._writer.is_alive() and not self._open.wait(_LONGEST_WAIT):
                pass
        finally:
            with self._counting:
                self.held_up_ns += time.perf_counter_ns() - start
