"""What every probed call reads: is something being recorded, where do records go, which call encloses this one.

There is one recording at a time in a process, and this is its only mutable global. A record is the small tuple that a
probed call leaves behind when it ends; `tracellm.probes.build` makes spans of them later.
"""

import itertools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

__all__ = ["Record", "current", "next_call", "state", "thread"]

Record = tuple[Any, int, int, "str | None", "type | None", int, int, int, Any, Any]
"""`(probe, call, parent call, thread name, receiver's class, start, end, end of capture, facts, error)`.

Calls are numbers that count up from 1 in each process; a parent 0 is none. Times are the clock's. `facts` is what the
probe's `capture` returned, `error` what `tracellm.probes.errors.remember` did, each None when there is none.
"""


class _State:
    """Read by every probed call, changed when a recording starts and stops."""

    __slots__ = ("append", "clock")

    def __init__(self) -> None:
        self.append: Callable[[Record], None] | None = None  # None: nothing is being recorded
        self.clock: Callable[[], int] = int


state = _State()

current: ContextVar[int] = ContextVar("tracellm_current_call", default=0)
"""The innermost probed call that is under way here, 0 for none. Each asyncio task and each thread has its own."""

next_call: Callable[[], int] = itertools.count(1).__next__
"""A number for the next call; drawing one cannot be interrupted by another thread."""


class _Thread(threading.local):
    """The name of the thread it is read in; None in the main one."""

    def __init__(self) -> None:
        own = threading.current_thread()
        self.name: str | None = None if own is threading.main_thread() else own.name


thread = _Thread()
