"""What every probed call reads: is something being recorded, where do records go, which call encloses this one.

There is one recording at a time in a process, and this is its only mutable global. A record is the small tuple that a
probed call leaves behind when it ends; `tracellm.probes.build` makes spans of them later.
"""

import itertools
import threading
from _thread import get_ident
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tracellm.probes.build import Builder
    from tracellm.trace.model import Span

__all__ = [
    "CALL",
    "ORIGIN",
    "PLACE",
    "STARTED_IN",
    "THREAD",
    "Begun",
    "Made",
    "Note",
    "Open",
    "Place",
    "Record",
    "Spot",
    "Told",
    "arrive",
    "call_and_place",
    "get_ident",
    "here",
    "later_place",
    "next_call",
    "return_to",
    "spot_here",
    "spot_in",
    "state",
]

Record = tuple[Any, int, int, "Place | None", "type | None", int, int, int, Any, Any]
"""`(probe, call, parent call, place, receiver's class, start, end, end of capture, facts, error)`.

Calls are numbers that count up from 1 in each process; a parent 0 is none. Times are the clock's. `facts` is what the
probe's `capture` returned, `error` what `tracellm.probes.errors.remember` did, each None when there is none.
"""


Open = tuple[Any, int, "Place | None", "type | None", int]
"""`(probe, parent call, place, receiver's class, start)` of a call that has not ended."""


class Note(NamedTuple):
    """What is told to the ledger when its turn among the records comes: `tell(ledger, facts)`."""

    tell: Callable[[Any, Any], None]
    facts: Any


class Made(NamedTuple):
    """A span that was made elsewhere, as by the user with OpenTelemetry: `make(builder)`, when its turn has come.

    `number` is that under which it stood among what is under way.
    """

    make: Callable[["Builder"], "Span"]
    number: int = 0


class Told(NamedTuple):
    """What a user told of a call under way, through OpenTelemetry's current span.

    Attributes:
        call: its number.
        attributes: set on it.
        event: name, attributes, and the time: the clock's, or nanoseconds since 1970 if the last is true.
        link: trace id, span id, attributes.
    """

    call: int
    attributes: Mapping[str, Any] = {}
    event: tuple[str, Mapping[str, Any], int, bool] | None = None
    link: tuple[int, int, Mapping[str, Any]] | None = None


class Begun(NamedTuple):
    """Whose calls these are, if not simply the script's: an HTTP request's, or those in a user's OpenTelemetry span.

    Attributes:
        trace_id: 32 hexadecimal digits.
        parent: the span that outermost calls were called from; None when they are roots.
        recording: the first call of the recording it belongs to.
        request: it is all for one HTTP request.
        outside: the parent is not in the recording.
        sampled: users' spans in it are to be sampled, as far as who began it is concerned.
    """

    trace_id: str
    parent: str | None
    recording: int
    request: bool = False
    outside: bool = False
    sampled: bool = True


def _nothing() -> None:
    """Nobody is to be told."""


class _State:
    """Read by every probed call, changed when a recording starts and stops."""

    __slots__ = ("append", "clock", "first", "ids", "open", "place_of", "settle", "step_ended", "thinned")

    def __init__(self) -> None:
        self.append: Callable[[Record | Note | Made | Told], None] | None = None  # None: nothing is being recorded
        self.clock: Callable[[], int] = int
        self.first = 0  # the first call of this recording
        self.ids: Any = None  # an Ids
        self.open: dict[int, Open | Made] = {}  # what is under way and may last, by the call's number
        self.place_of: Callable[[int, Place], tuple[str, str | None]] | None = None  # Builder's, of this recording
        self.step_ended: Callable[[], None] = _nothing  # Thinning's
        self.thinned = False  # it is: what takes long is not told any more (thinning.py)
        self.settle: Callable[[], None] | None = None  # once a user has attached a span (otel/context.py)


state = _State()

next_call: Callable[[], int] = itertools.count(1).__next__
"""A number for the next call; drawing one cannot be interrupted by another thread."""


class Place:
    """Where calls are made: a thread, or the part of its work that belongs to one trace. Shared by all calls there.

    Attributes:
        thread: the thread's ident.
        thread_name: its name, None for the main thread.
        begun: the trace that calls here belong to; None for the recording's own.
        since: a number of a call: what a user attached before it has no say here (otel/context.py).
    """

    __slots__ = ("begun", "since", "thread", "thread_name")

    def __init__(self, thread: int, thread_name: str | None, begun: Begun | None = None, since: int = 0) -> None:
        self.thread = thread
        self.thread_name = thread_name
        self.begun = begun
        self.since = since

    @property
    def whose(self) -> Begun | None:
        """`begun`, unless that was in a recording that is over."""
        return self.begun if self.begun is not None and self.begun.recording == state.first else None


Spot = list[Any]
"""`[innermost call, origin, thread, place]`: how far a thread, or a probed coroutine, has got. Each has one of its own.

The innermost probed call under way is 0 for none; `origin` is the call of the coroutine whose spot this is, 0 for a
thread's; `thread` is the place's, once more. A function cannot pause, so at one spot calls end in the reverse order of
their beginning, and keeping track of them is two assignments: a context variable of its own for each call would cost
several times as much. It is a list because that is made in a quarter of the time of an object with attributes.
"""

CALL, ORIGIN, THREAD, PLACE = 0, 1, 2, 3


def spot_in(place: Place, call: int = 0, origin: int = 0) -> Spot:
    """A new spot in `place`, where `call` is under way."""
    return [call, origin, place.thread, place]


here: ContextVar[Spot | None] = ContextVar("tracellm_spot", default=None)
"""The spot of the running code. A task begins at the spot where it was made; a thread has none at first."""

STARTED_IN = "_tracellm_started_in"
"""The attribute of a thread that holds `(call, trace begun)` of who started it (see threads.py)."""


def arrive() -> Spot:
    """The spot of this thread, in a context that has none yet or one that was copied from another thread.

    What runs in a thread with a copied context (`asyncio.to_thread`) counts as called from where it was copied: the
    coroutine if it was one, whose other tasks may be in the midst of a call now, else the innermost call there. What a
    thread runs of its own counts as called from where the thread was started.
    """
    own = threading.current_thread()
    name = None if own is threading.main_thread() else own.name
    before = here.get()
    if before is None:
        call, begun = getattr(own, STARTED_IN, (0, None))
    else:
        call, begun = before[ORIGIN] or before[CALL], before[PLACE].begun
    if call < state.first:  # none, or of a recording that is over
        call = 0
        begun = begun if begun is not None and begun.recording == state.first else None
    spot = spot_in(Place(get_ident(), name, begun), call)
    here.set(spot)
    return spot


def spot_here() -> Spot:
    """The spot of the running code."""
    spot = here.get()
    return arrive() if spot is None or spot[THREAD] != get_ident() else spot


def call_and_place() -> tuple[int, Place]:
    """The innermost probed call that is under way here, 0 for none, and the place that it is made in."""
    spot = spot_here()
    return spot[CALL], spot[PLACE]


def later_place(place: Place, begun: Begun | None) -> Place:
    """A place in the same thread, which what users attached before has no say in: for what belongs elsewhere."""
    return Place(place.thread, place.thread_name, begun, 0 if state.settle is None else next_call())


def return_to(spot: Spot) -> None:
    """Be at this spot again, or where spans that users attached, or detached, since then have it."""
    here.set(spot)
    if state.settle is not None:
        state.settle()
