"""Lanes: what runs beside what. A lane is a process's main thread, another thread, or a task of an event loop.

A call of vLLM's engine that goes on for as long as the engine lives, such as `EngineCoreProc.run_busy_loop` or the
thread `process_input_sockets`, has a parent, the call that started it, but is no part of that call's work. Here it is
told which calls begin a lane of their own, which go on for long, so that their parts are what is of interest, and which
wait for another lane.
"""

from bisect import bisect_right

from tracellm.trace import names
from tracellm.trace.model import Span, Trace

__all__ = ["WAITS", "Lane", "Lanes"]

Lane = tuple[int, str]
"""The process's id, and what tells the lane from the others there: empty for the main thread."""

LONG = frozenset({"loop", "coroutine", "async_generator"})
"""Kinds of calls whose parts stand where they happened. A plain generator's parts are its consumer's."""

WAITS = frozenset({"SyncMPClient.get_output", "AsyncMPClient.get_output_async"})
"""The calls by which a client takes what the engine core has sent, one message each, in the order they came."""

_WAITS_LONG = frozenset({"SyncMPClient.get_output", "SyncMPClient.call_utility"})
"""Plain calls during which what the other process does is drawn."""


class Lanes:
    """The lanes of a trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._of: dict[str, Lane] = {}
        self.heads: dict[Lane, Span] = {}
        """The first call of each lane that is not a process's main thread."""
        self._begins: set[str] = set()
        self._long: set[str] = set()
        self._hosts: set[str] = set()
        for root in trace.roots:
            for span in reversed(self._walk(root)):
                self._look_up(span)

    @property
    def several(self) -> bool:
        """Whether there is anything to interleave at all."""
        return bool(self._begins or self._long)

    def of(self, span: Span) -> Lane:
        """The lane that a call ran in."""
        return self._of[span.span_id]

    def begins(self, span: Span) -> bool:
        """Whether a call runs beside the call that started it."""
        return span.span_id in self._begins

    def is_long(self, span: Span) -> bool:
        """Whether a call goes on for long, or holds one that does: its parts stand where they happened."""
        return span.span_id in self._long

    def is_host(self, span: Span) -> bool:
        """Whether a plain call, or one below it, waits for another lane or starts one: what that did belongs in it."""
        return span.span_id in self._hosts

    def _walk(self, root: Span) -> list[Span]:
        """Find the lane of a root and of all below it; gives these, each after its caller."""
        path: list[Span] = []
        walked: list[Span] = []
        for depth, span in self._trace.walk(root):
            del path[depth:]
            lane = self._lane(span, path[-1] if path else None)
            self._of[span.span_id] = lane
            if lane[1]:
                self.heads.setdefault(lane, span)
            path.append(span)
            walked.append(span)
        return walked

    def _lane(self, span: Span, parent: Span | None) -> Lane:
        own = _pid(span), _thread(span)
        if parent is None:
            return own
        if own != (_pid(parent), _thread(parent)):
            self._begins.add(span.span_id)
            return own
        if _kind(span) == "loop" and (_outlives(span, parent) or self._beside_others(span, parent)):
            self._begins.add(span.span_id)
            return own[0], f"{own[1]}|{span.name}"
        return self._of[parent.span_id]

    def _beside_others(self, span: Span, parent: Span) -> bool:
        """Whether the same caller made other calls while this one went on."""
        own = _pid(span), _thread(span)
        calls = self._trace.children(parent)
        after = bisect_right(calls, span.start_ns, key=lambda one: one.start_ns)
        following = (one for one in calls[after:] if (_pid(one), _thread(one)) == own)
        return next((one.start_ns < span.end_ns for one in following), False)

    def _look_up(self, span: Span) -> None:
        """What a call is, its callees being known."""
        for child in self._trace.children(span):
            if child.span_id in self._begins or child.span_id in self._hosts:
                self._hosts.add(span.span_id)
            elif child.span_id in self._long and not _outlives(child, span):
                self._long.add(span.span_id)
        if _kind(span) in LONG:
            self._long.add(span.span_id)
        if span.name in _WAITS_LONG:
            self._hosts.add(span.span_id)
        if span.span_id in self._long:
            self._hosts.discard(span.span_id)


def _pid(span: Span) -> int:
    return span.process.pid if span.process else 0


def _thread(span: Span) -> str:
    told = span.attributes.get(names.THREAD_NAME)
    return told if isinstance(told, str) and told != "MainThread" else ""


def _kind(span: Span) -> str:
    return str(span.attributes.get(names.CALL_KIND, ""))


def _outlives(span: Span, parent: Span) -> bool:
    return span.end_ns > parent.end_ns
