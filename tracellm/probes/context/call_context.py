"""State that every probed call reads: whether a recording is active, where records go, and the enclosing call.

A process has one recording at a time, and `state` is its only mutable global. A record is the tuple that a probed call
appends when it ends; `tracellm.probes.spans` makes spans of records later.

OpenTelemetry: the current span of `opentelemetry.context` is the counterpart of the innermost call.
"""

import itertools
import threading
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

__all__ = [
    "CALL", "DEPTH_LIMITED", "ORIGIN", "RECORDING", "STARTED_IN", "SUBMITTED", "THREAD_CONTEXT", "THREAD_ID",
    "USER_SPAN", "USER_UPDATE", "CallContext", "OpenCall", "Record", "ThreadContext", "TraceScope", "context_var",
    "current_call", "current_context", "enter_thread", "find_thread_context", "new_context", "new_thread_context",
    "next_call", "return_to", "state",
]  # fmt: skip

Record = tuple[int, int, int, int, int, int, Any, Any]
"""`(site, call, parent call, thread context's number, start, end, facts, error)`, all of it plain data.

`site` numbers a probe and the receiver's class (wrapping/probe.py), or is one of the negative kinds below. Calls count
up from 1 in each process; parent 0 is none. Times are the clock's. `facts` is what the probe's capture returned, after
`(nanoseconds,)` for a timed probe; `error` is an `ErrorSummary`. Both may be None.
"""

SUBMITTED, USER_SPAN, USER_UPDATE, RECORDING, DEPTH_LIMITED = -1, -2, -3, -4, -5
"""Sites of records that are not calls.

- SUBMITTED: a request is about to be submitted. Facts are `(request id, trace id, span id, parent's span id)`, the call
  is the enclosing one or 0, and start is the time.
- USER_SPAN: a span of the program ended; facts are what `otel.user_spans.span_data` returns.
- USER_UPDATE: the program set attributes, an event or a link on a call's span; facts are `(attributes, event, link)`.
- RECORDING: records were written from start to end, within the parent call.
- DEPTH_LIMITED: from here on only requests and steps are recorded.
"""

OpenCall = tuple[int, int, int, int]
"""`(site, parent call, thread context's number, start)` of a call that has not ended."""


class TraceScope(NamedTuple):
    """A trace other than the recording's own: that of an HTTP request, or of a user's OpenTelemetry span.

    Attributes:
        trace_id: 32 hexadecimal digits.
        parent: the span id of the outermost calls' parent; None when they are roots.
        recording: the first call of the recording it belongs to.
        request: whether it covers one HTTP request.
        outside: whether the parent is not part of the recording.
        sampled: whether the parent's sampled flag is set, for users' spans below it.
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
    """State of the process, read by every probed call and changed when a recording starts and stops."""

    __slots__ = (
        "append", "clock", "depth_limited", "first", "ids", "open", "reconcile", "segment", "span_ids", "step_ended",
    )  # fmt: skip

    def __init__(self) -> None:
        self.append: Callable[[Record], None] | None = None  # None: no recording is active
        self.clock: Callable[[], int] = int
        self.first = 0  # the recording's first call
        self.ids: Any = None  # an Ids
        self.open: dict[int, OpenCall | Callable[[], Any]] = {}  # lasting calls; of user spans, what makes their facts
        self.span_ids: Callable[[int, ThreadContext], tuple[str, str | None]] | None = None  # a call's trace, span id
        self.step_ended: Callable[[int], None] = _ignore  # called with the step's parent
        self.depth_limited = False  # from here on only requests and steps are recorded
        self.segment = 0  # current segment of a ring: each repeats what is otherwise recorded once
        self.reconcile: Callable[[], None] | None = None  # set once a user attaches a span (otel/context.py)


state = _State()

next_call: Callable[[], int] = itertools.count(1).__next__
"""Return the next call's number; atomic, as no other thread can interrupt it."""


class ThreadContext:
    """A thread, or the part of its work that belongs to one trace. Shared by all calls made there.

    Attributes:
        number: its number in records (`find_thread_context`).
        thread: the thread's ident.
        thread_name: its name; None for the main thread.
        scope: the trace of the calls made here; None for the recording's own.
        since: a call number; contexts that a user attached before that call do not apply here (otel/context.py).
    """

    __slots__ = ("__weakref__", "number", "scope", "since", "thread", "thread_name")

    def __init__(self, thread: int, thread_name: str | None, scope: TraceScope | None = None, since: int = 0) -> None:
        self.number = next(_numbers)
        _new_contexts[self.number] = self
        self.thread = thread
        self.thread_name = thread_name
        self.scope = scope
        self.since = since

    @property
    def active_scope(self) -> TraceScope | None:
        """`scope`, unless it belongs to an earlier recording."""
        return self.scope if self.scope is not None and self.scope.recording == state.first else None


_numbers = itertools.count(1)
_new_contexts: dict[int, ThreadContext] = {}
_contexts: WeakValueDictionary[int, ThreadContext] = WeakValueDictionary()
_MAX_NEW_CONTEXTS = 4096
_found_contexts: deque[ThreadContext] = deque(maxlen=10_000)
"""Contexts that were found last: the live feed, and the next segment of a ring, ask for some that have ended."""


def find_thread_context(number: int) -> ThreadContext | None:
    """Return the thread context of this number, or None if it ended long ago, or before a record of it was written."""
    found = _new_contexts.pop(number, None) or _contexts.get(number)
    if found is not None:
        _contexts[number] = found
        _found_contexts.append(found)
    if len(_new_contexts) > _MAX_NEW_CONTEXTS:  # contexts in which no call was made
        for old in list(_new_contexts)[: _MAX_NEW_CONTEXTS // 2]:
            if (unused := _new_contexts.pop(old, None)) is not None:
                _contexts[old] = unused
    return found


CallContext = list[Any]
"""`[innermost call, origin, thread ident, thread context]` of a thread, or of a probed coroutine. Each has its own.

The innermost call is 0 when none is under way; `origin` is the call of the coroutine that the context belongs to, 0 for
a thread's. A function cannot pause, so calls in one context end in reverse order, and tracking them takes two
assignments: a context variable for each call would cost several times as much. It is a list, which is made in a quarter
of the time of an object with attributes.
"""

CALL, ORIGIN, THREAD_ID, THREAD_CONTEXT = 0, 1, 2, 3


def new_context(thread: ThreadContext, call: int = 0, origin: int = 0) -> CallContext:
    """Return a new call context in `thread`, in which `call` is under way."""
    return [call, origin, thread.thread, thread]


context_var: ContextVar[CallContext | None] = ContextVar("tracellm_call_context", default=None)
"""The call context of the running code. A task inherits the one it was made in; a new thread has none."""

STARTED_IN = "_tracellm_started_in"
"""Attribute of a thread: call and trace scope that started it (propagation/threads.py)."""


def enter_thread() -> CallContext:
    """Set a new call context for this thread, which has none yet or one copied from another thread.

    With a copied one (`asyncio.to_thread`), the parent is the coroutine it was copied in, since other tasks may be
    within a call now. Without a coroutine, it is the innermost call there. Otherwise, the parent is the call that
    started the thread.
    """
    own = threading.current_thread()
    name = None if own is threading.main_thread() else own.name
    copied = context_var.get()
    if copied is None:
        call, scope = getattr(own, STARTED_IN, (0, None))
    else:
        call, scope = copied[ORIGIN] or copied[CALL], copied[THREAD_CONTEXT].scope
    if call < state.first:  # no call, or one of an earlier recording
        call = 0
        scope = scope if scope is not None and scope.recording == state.first else None
    context = new_context(ThreadContext(get_ident(), name, scope), call)
    context_var.set(context)
    return context


def current_context() -> CallContext:
    """Return the call context of the running code."""
    context = context_var.get()
    return enter_thread() if context is None or context[THREAD_ID] != get_ident() else context


def current_call() -> tuple[int, ThreadContext]:
    """Return the innermost probed call under way here, 0 for none, and its thread context."""
    context = current_context()
    return context[CALL], context[THREAD_CONTEXT]


def new_thread_context(thread: ThreadContext, scope: TraceScope | None) -> ThreadContext:
    """Return a context in the same thread, unaffected by contexts that users attached before."""
    return ThreadContext(thread.thread, thread.thread_name, scope, 0 if state.reconcile is None else next_call())


def return_to(context: CallContext) -> None:
    """Make this call context current again, adjusted for spans that users attached or detached since then."""
    context_var.set(context)
    if state.reconcile is not None:
        state.reconcile()
