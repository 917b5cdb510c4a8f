"""What every probed call reads: is something being recorded, where do records go, which call encloses this one.

There is one recording at a time in a process, and this is its only mutable global. A record is the small tuple that a
probed call leaves behind when it ends; `tracellm.probes.build` makes spans of them later.
"""

import itertools
import threading
from _thread import get_ident
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

__all__ = ["Open", "Place", "Record", "arrive", "get_ident", "here", "next_call", "state"]

Record = tuple[Any, int, int, "str | None", "type | None", int, int, int, Any, Any]
"""`(probe, call, parent call, thread name, receiver's class, start, end, end of capture, facts, error)`.

Calls are numbers that count up from 1 in each process; a parent 0 is none. Times are the clock's. `facts` is what the
probe's `capture` returned, `error` what `tracellm.probes.errors.remember` did, each None when there is none.
"""


Open = tuple[Any, int, "str | None", "type | None", int]
"""`(probe, parent call, thread name, receiver's class, start)` of a call that has not ended."""


class _State:
    """Read by every probed call, changed when a recording starts and stops."""

    __slots__ = ("append", "clock", "open")

    def __init__(self) -> None:
        self.append: Callable[[Record], None] | None = None  # None: nothing is being recorded
        self.clock: Callable[[], int] = int
        self.open: dict[int, Open] = {}  # calls under way that may last, by their number


state = _State()

next_call: Callable[[], int] = itertools.count(1).__next__
"""A number for the next call; drawing one cannot be interrupted by another thread."""


class Place:
    """Where calls are made: a thread, or a probed coroutine; and the innermost probed call that is under way there.

    A function cannot pause, so within one place calls end in the reverse order of their beginning, and keeping track of
    them is two assignments: a context variable of its own for each call would cost several times as much.

    Attributes:
        call: the innermost call, 0 for none.
        origin: the call of the coroutine whose place this is, 0 for a thread's.
        thread: the thread's ident; its name, None for the main thread.
    """

    __slots__ = ("call", "origin", "thread", "thread_name")

    def __init__(self, call: int, origin: int, thread: int, thread_name: str | None) -> None:
        self.call = call
        self.origin = origin
        self.thread = thread
        self.thread_name = thread_name


here: ContextVar[Place | None] = ContextVar("tracellm_place", default=None)
"""The place that the running code is in. A task begins in the place where it was made; a thread has none at first."""


def arrive() -> Place:
    """The place of this thread, in a context that has none yet or one that was copied from another thread.

    What runs in a thread with a copied context (`asyncio.to_thread`) counts as called from where it was copied: the
    coroutine if it was one, whose other tasks may be in the midst of a call now, else the innermost call there.
    """
    own = threading.current_thread()
    name = None if own is threading.main_thread() else own.name
    before = here.get()
    place = Place(0 if before is None else before.origin or before.call, 0, get_ident(), name)
    here.set(place)
    return place
