"""Lanes: a lane is a process's main thread, another thread, or a task of an event loop.

A call that lasts as long as the engine, such as `EngineCoreProc.run_busy_loop` or the thread `process_input_sockets`,
has a parent, the call that started it, but is no part of that call's work. `Lanes` finds the calls that begin a lane,
the long calls whose parts matter more than they do, and the calls that wait for another lane.
"""

from bisect import bisect_right

from tracellm.trace import names
from tracellm.trace.gc_pause import gc_paused
from tracellm.trace.model import Span, Trace

__all__ = ["WAITS", "Lane", "Lanes", "process_id"]

Lane = tuple[int, str]
"""The process's id, and the lane's name in it: empty for the main thread."""

LONG = frozenset({"loop", "coroutine", "async_generator"})
"""Kinds of calls whose parts are drawn where they happened. A plain generator's parts are its consumer's."""

WAITS = frozenset({"SyncMPClient.get_output", "AsyncMPClient.get_output_async", "DPLBAsyncMPClient.get_output_async"})
"""Calls by which a client takes messages of the engine core, one each, in the order they came."""

_WAITS_LONG = frozenset(
    {
        *("SyncMPClient.get_output", "SyncMPClient.call_utility", "FutureWrapper.result"),
        *("MultiprocExecutor.collective_rpc", "RayDistributedExecutor.collective_rpc"),
    }
)
"""Plain calls during which the work of the other process is drawn."""


class Lanes:
    """The lanes of a trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._of: dict[str, Lane] = {}
        self._lanes: dict[Lane, Lane] = {}
        self.heads: dict[Lane, Span] = {}
        """The first call of each lane that is not a process's main thread."""
        self._begins: set[str] = set()
        self._long: set[str] = set()
        self._hosts: set[str] = set()
        self._starts: dict[str, dict[Lane, list[int]]] = {}  # starts of a call's callees, by thread
        with gc_paused():
            for span in reversed(self._callers_first()):
                self._look_up(span, trace.by_id.get(span.parent_span_id or ""))

    @property
    def several(self) -> bool:
        """True if there are several lanes."""
        return bool(self._begins or self._long)

    def of(self, span: Span) -> Lane:
        """Return the lane that a call ran in."""
        return self._of[span.span_id]

    def begins(self, span: Span) -> bool:
        """Return whether a call runs beside the call that started it."""
        return span.span_id in self._begins

    def is_long(self, span: Span) -> bool:
        """Return whether a call is long, or contains a long one: its parts are drawn where they happened."""
        return span.span_id in self._long

    def is_host(self, span: Span) -> bool:
        """Return whether a plain call, or one below it, waits for another lane or starts one, whose work then belongs
        in it.
        """
        return span.span_id in self._hosts

    def _callers_first(self) -> list[Span]:
        """Find the lane of every call, and return the calls, each after its caller."""
        by_id = self._trace.by_id
        found: list[Span] = []
        for span in self._trace.spans:
            path = [span]  # by another clock, a call may seem to begin before its caller
            while path[-1].span_id not in self._of:
                parent = by_id.get(path[-1].parent_span_id or "")
                if parent is not None and parent.span_id not in self._of and len(path) < len(by_id):
                    path.append(parent)
                    continue
                self._settle(path[-1], parent)
                found.append(path.pop())
                if not path:
                    break
        return found

    def _settle(self, span: Span, parent: Span | None) -> None:
        own = _thread(span)
        lane = self._lanes.setdefault(own, own)
        if parent is not None:
            if own != _thread(parent):
                self._begins.add(span.span_id)
            elif _kind(span) == "loop" and (_outlives(span, parent) or self._beside_others(span, parent)):
                self._begins.add(span.span_id)
                lane = own[0], f"{own[1]}|{span.name}"
            else:
                lane = self._of.get(parent.span_id, lane)
        self._of[span.span_id] = lane
        if lane[1]:
            self.heads.setdefault(lane, span)

    def _beside_others(self, span: Span, parent: Span) -> bool:
        """Return whether the same caller made other calls while this one was open."""
        if parent.span_id not in self._starts:
            threads = self._starts[parent.span_id] = {}
            for one in self._trace.children(parent):
                threads.setdefault(_thread(one), []).append(one.start_ns)
        starts = self._starts[parent.span_id][_thread(span)]
        after = bisect_right(starts, span.start_ns)
        return after < len(starts) and starts[after] < span.end_ns

    def _look_up(self, span: Span, parent: Span | None) -> None:
        """Classify a call whose callees are known, and derive what follows for its caller."""
        id = span.span_id
        if _kind(span) in LONG:
            self._long.add(id)
        if span.name in _WAITS_LONG:
            self._hosts.add(id)
        if id in self._long:
            self._hosts.discard(id)
        if parent is None:
            return
        if id in self._begins or id in self._hosts:
            self._hosts.add(parent.span_id)
        elif id in self._long and not _outlives(span, parent):
            self._long.add(parent.span_id)


def process_id(span: Span) -> int:
    """Return the id of the process that made a call; 0 if it is not known."""
    return span.process.pid if span.process else 0


def _thread(span: Span) -> Lane:
    """Return the process and the thread that a call ran in; the main thread has no name."""
    name = span.attributes.get(names.THREAD_NAME)
    return process_id(span), name if isinstance(name, str) and name != "MainThread" else ""


def _kind(span: Span) -> str:
    return str(span.attributes.get(names.CALL_KIND, ""))


def _outlives(span: Span, parent: Span) -> bool:
    return span.end_ns > parent.end_ns
