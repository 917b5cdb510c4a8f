"""What every probed call reads: is something being recorded, where do records go, which call encloses this one.

There is one recording at a time in a process, and this is its only mutable global. A record is the small tuple that a
probed call leaves behind when it ends; `tracellm.probes.spans` makes spans of them later.
"""

import itertools
import threading
from _thread import get_ident
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

__all__ = [
    "CALL",
    "DEPTH_LIMITED",
    "ORIGIN",
    "PLACE",
    "RECORDING",
    "STARTED_IN",
    "SUBMITTED",
    "THREAD",
    "USER_SPAN",
    "USER_UPDATE",
    "CallContext",
    "Open",
    "Record",
    "ThreadContext",
    "TraceScope",
    "arrive",
    "call_and_place",
    "get_ident",
    "here",
    "later_place",
    "next_call",
    "place_numbered",
    "return_to",
    "spot_here",
    "spot_in",
    "state",
]

Record = tuple[int, int, int, int, int, int, Any, Any]
"""`(site, call, parent call, place's number, start, end, facts, error)`, all of it plain data: a recorder appends it to
a file as it is (record/record_file.py).

`site` numbers a probe and the receiver's class (probe.py), or is one of the kinds below, which are no calls. Calls
count up from 1 in each process; parent 0 is none. Times are the clock's. `facts` is the probe's capture, after
`(nanoseconds,)` where the probe is timed; `error` what `errors.remember` made of the exception. Each is None when there
is none.
"""

SUBMITTED, USER_SPAN, USER_UPDATE, RECORDING, DEPTH_LIMITED = -1, -2, -3, -4, -5
"""Sites of records that are no calls.

- SUBMITTED: a request is about to be submitted; facts `(request id, trace id, span id, parent's span id)`, the call is
  the one around it, 0 for none, and the start the time.
- USER_SPAN: a span of the program's own has ended; facts as `otel.user_spans.span_data` returns them.
- USER_UPDATE: the program set attributes, an event or a link on the span of a call; facts
  `(attributes, event, link)`.
- RECORDING: records were written from start to end, within the parent call.
- DEPTH_LIMITED: from here on only requests and steps are recorded.
"""

Open = tuple[int, int, int, int]
"""`(site, parent call, place's number, start)` of a call that has not ended."""


class TraceScope(NamedTuple):
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


def _ignore(parent: int) -> None:
    """Do nothing at the end of a step."""


class _State:
    """Read by every probed call, changed when a recording starts and stops."""

    __slots__ = ("append", "clock", "first", "ids", "open", "place_of", "segment", "settle", "step_ended", "thinned")

    def __init__(self) -> None:
        self.append: Callable[[Record], None] | None = None  # None: nothing is being recorded
        self.clock: Callable[[], int] = int
        self.first = 0  # the first call of this recording
        self.ids: Any = None  # an Ids
        self.open: dict[int, Open | Callable[[], Any]] = {}  # calls that may last; user spans as what makes their facts
        self.place_of: Callable[[int, ThreadContext], tuple[str, str | None]] | None = (
            None  # trace and span id of a call
        )
        self.step_ended: Callable[[int], None] = _ignore  # called with the step's parent (recorder.py)
        self.thinned = False  # only requests and steps are recorded from here on (depth_limit.py)
        self.segment = 0  # of a ring: what is recorded once is recorded again in each (recorder.py)
        self.settle: Callable[[], None] | None = None  # once a user has attached a span (otel/context.py)


state = _State()

next_call: Callable[[], int] = itertools.count(1).__next__
"""A number for the next call; drawing one cannot be interrupted by another thread."""


class ThreadContext:
    """Where calls are made: a thread, or the part of its work that belongs to one trace. Shared by all calls there.

    Attributes:
        number: how records name it (`place_numbered`).
        thread: the thread's ident.
        thread_name: its name, None for the main thread.
        begun: the trace that calls here belong to; None for the recording's own.
        since: a number of a call: what a user attached before it has no say here (otel/context.py).
    """

    __slots__ = ("__weakref__", "begun", "number", "since", "thread", "thread_name")

    def __init__(self, thread: int, thread_name: str | None, begun: TraceScope | None = None, since: int = 0) -> None:
        self.number = next(_place_numbers)
        _new_places[self.number] = self
        self.thread = thread
        self.thread_name = thread_name
        self.begun = begun
        self.since = since

    @property
    def whose(self) -> TraceScope | None:
        """`begun`, unless that was in a recording that is over."""
        return self.begun if self.begun is not None and self.begun.recording == state.first else None


_place_numbers = itertools.count(1)
_new_places: dict[int, ThreadContext] = {}
_places: WeakValueDictionary[int, ThreadContext] = WeakValueDictionary()
_MOST_NEW_PLACES = 4096


def place_numbered(number: int) -> ThreadContext | None:
    """The place of this number; None for one that was gone before any record of it was written."""
    place = _new_places.pop(number, None) or _places.get(number)
    if place is not None:
        _places[number] = place
    if len(_new_places) > _MOST_NEW_PLACES:  # places in which no call was made
        for old in list(_new_places)[: _MOST_NEW_PLACES // 2]:
            if (unused := _new_places.pop(old, None)) is not None:
                _places[old] = unused
    return place


CallContext = list[Any]
"""`[innermost call, origin, thread, place]`: how far a thread, or a probed coroutine, has got. Each has one of its own.

The innermost probed call under way is 0 for none; `origin` is the call of the coroutine whose spot this is, 0 for a
thread's; `thread` is the place's, once more. A function cannot pause, so at one spot calls end in the reverse order of
their beginning, and keeping track of them is two assignments: a context variable of its own for each call would cost
several times as much. It is a list because that is made in a quarter of the time of an object with attributes.
"""

CALL, ORIGIN, THREAD, PLACE = 0, 1, 2, 3


def spot_in(place: ThreadContext, call: int = 0, origin: int = 0) -> CallContext:
    """A new spot in `place`, where `call` is under way."""
    return [call, origin, place.thread, place]


here: ContextVar[CallContext | None] = ContextVar("tracellm_spot", default=None)
"""The spot of the running code. A task begins at the spot where it was made; a thread has none at first."""

STARTED_IN = "_tracellm_started_in"
"""The attribute of a thread that holds `(call, trace begun)` of who started it (see threads.py)."""


def arrive() -> CallContext:
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
    spot = spot_in(ThreadContext(get_ident(), name, begun), call)
    here.set(spot)
    return spot


def spot_here() -> CallContext:
    """The spot of the running code."""
    spot = here.get()
    return arrive() if spot is None or spot[THREAD] != get_ident() else spot


def call_and_place() -> tuple[int, ThreadContext]:
    """The innermost probed call that is under way here, 0 for none, and the place that it is made in."""
    spot = spot_here()
    return spot[CALL], spot[PLACE]


def later_place(place: ThreadContext, begun: TraceScope | None) -> ThreadContext:
    """A place in the same thread, which what users attached before has no say in: for what belongs elsewhere."""
    return ThreadContext(place.thread, place.thread_name, begun, 0 if state.settle is None else next_call())


def return_to(spot: CallContext) -> None:
    """Be at this spot again, or where spans that users attached, or detached, since then have it."""
    here.set(spot)
    if state.settle is not None:
        state.settle()
