"""The spans in an export: all, or those down to a level, or those of some classes and what leads there.

The choice is that of a sequence diagram (`tracellm.report.tree.select`), made on spans, since most formats have no
tree. A call whose caller is left out counts as called by the nearest caller that is kept.
"""

from collections.abc import Collection

from msgspec.structs import replace

from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.names import LEVELS, Level

__all__ = ["Chosen", "same_thread"]


class Chosen:
    """The spans of a trace that are exported, chosen in linear time and memory.

    Attributes:
        trace: the whole recording.
        calls: the chosen calls by start, each after its caller.
        requests: the spans of all requests, in the order of submission.
        begin_ns: start of the recording's first span, in nanoseconds since 1970.
    """

    def __init__(self, trace: Trace, *, detail: Level | None = None, focus: Collection[str] = ()) -> None:
        self.trace = trace
        self.begin_ns = trace.spans[0].start_ns if trace.spans else 0
        self.requests = [span for span in trace.spans if span.name == names.REQUEST_SPAN]
        self._all = detail is None and not focus
        self._request_ids = {request.span_id for request in self.requests}
        calls = [span for span in trace.spans if span.name != names.REQUEST_SPAN] if self.requests else trace.spans
        if focus:
            kept = self._on_focus(calls, frozenset(focus))
            calls = [span for span in calls if span.span_id in kept or self._is_root(span)]
        if detail is not None:
            shown = frozenset(LEVELS[: LEVELS.index(detail) + 1])
            calls = [span for span in calls if span.level in shown or span.error is not None or self._is_root(span)]
        self._kept = frozenset() if self._all else frozenset(span.span_id for span in calls)
        self._nearest: dict[str, Span | None] = {}
        self.calls = _callers_first(calls)

    def holds(self, span: Span) -> bool:
        """Return whether a call is among the chosen ones."""
        return self._all or span.span_id in self._kept

    def caller(self, span: Span) -> Span | None:
        """Return the nearest chosen call around `span`; a request's span is not a call."""
        above = self.trace.parent(span)
        if above is None or (self._all and above.span_id not in self._request_ids):
            return above
        passed = []
        while above is not None and not (self.holds(above) and above.span_id not in self._request_ids):
            if above.span_id in self._nearest:
                above = self._nearest[above.span_id]
                break
            passed.append(above.span_id)
            above = self.trace.parent(above)
        for span_id in passed:
            self._nearest[span_id] = above
        return above

    def spans(self) -> list[Span]:
        """Return calls and requests by start; the parent of a call is its nearest chosen caller."""
        if self._all:
            return self.trace.spans
        spans = [self._under_its_caller(span) for span in (*self.calls, *self.requests)]
        return sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))

    def _under_its_caller(self, span: Span) -> Span:
        above = self.trace.parent(span)
        if above is None or self.holds(above) or above.span_id in self._request_ids:
            return span
        caller = self.caller(span)
        return replace(span, parent_span_id=caller.span_id if caller else None)

    def _is_root(self, span: Span) -> bool:
        return self.trace.parent(span) is None

    def _on_focus(self, calls: list[Span], lifelines: frozenset[str]) -> set[str]:
        """Return the calls into and out of these lifelines, and the calls that lead there."""
        kept: set[str] = set()
        for span in calls:
            above = self.trace.parent(span)
            if span.lifeline in lifelines or (above is not None and above.lifeline in lifelines):
                current: Span | None = span
                while current is not None and current.span_id not in kept:
                    kept.add(current.span_id)
                    current = self.trace.parent(current)
        return kept


def same_thread(a: Span, b: Span) -> bool:
    """Return whether two calls ran in one thread of one process."""
    return a.process is b.process and a.attributes.get(names.THREAD_NAME) == b.attributes.get(names.THREAD_NAME)


def _callers_first(calls: list[Span]) -> list[Span]:
    """Put calls of zero length with one start after their callers; the rest is in order."""
    ordered: list[Span] = []
    begin = 0
    for end in range(1, len(calls) + 1):
        first = calls[begin]
        if end < len(calls) and (calls[end].start_ns, calls[end].end_ns) == (first.start_ns, first.end_ns):
            continue
        if end - begin == 1:
            ordered.append(first)
        else:
            ordered += _by_depth(calls[begin:end])
        begin = end
    return ordered


def _by_depth(alike: list[Span]) -> list[Span]:
    waiting = {span.span_id: span for span in alike}
    ordered = []
    for innermost in alike:
        chain = [innermost] if innermost.span_id in waiting else []
        while chain and chain[-1].parent_span_id in waiting:
            chain.append(waiting[chain[-1].parent_span_id])
        for span in reversed(chain):
            del waiting[span.span_id]
            ordered.append(span)
    return ordered
