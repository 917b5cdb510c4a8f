"""Times of calls that overlap: coroutines of one thread wait side by side.

The sum of such times may exceed the run by far: sixteen requests that wait for one second each have waited for one
second together. A report counts each moment once for a thread.
"""

from collections.abc import Iterable

from tracellm.report.tree.nodes import Node, calls_below
from tracellm.trace.model import Span
from tracellm.trace.ranges import covered

__all__ = ["times_once", "total_once"]

_Interval = tuple[int, int]


def times_once(node: Node) -> tuple[int, int]:
    """Return total and own time of a node's calls in nanoseconds; a moment of several calls in one thread counts once.

    Own time is without callees in the same thread and without the recording, as in `Node`.
    """
    total = total_once(node.spans)
    if total >= node.total_ns:
        return node.total_ns, node.own_ns
    made: dict[str | None, list[Span]] = {}
    for child in calls_below(node):
        for span in child.spans:
            made.setdefault(span.parent_span_id, []).append(span)
    own = sum(
        covered(part for span in spans for part in _without(span, made.get(span.span_id, ())))
        for spans in _by_thread(node.spans)
    )
    return total, min(own, node.own_ns)


def total_once(spans: Iterable[Span]) -> int:
    """Return the time of calls in nanoseconds; a moment of several calls in one thread counts once."""
    return sum(covered((span.start_ns, span.end_ns) for span in own) for own in _by_thread(spans))


def _by_thread(spans: Iterable[Span]) -> Iterable[list[Span]]:
    threads: dict[tuple[str, int, str], list[Span]] = {}
    for span in spans:
        threads.setdefault(span.thread, []).append(span)
    return threads.values()


def _without(span: Span, callees: Iterable[Span]) -> list[_Interval]:
    """Return the intervals of a call in which none of its callees in the same thread was under way."""
    parts = []
    reached = span.start_ns
    for callee in sorted(callees, key=lambda callee: callee.start_ns):
        if callee.thread == span.thread:
            if callee.start_ns > reached:
                parts.append((reached, callee.start_ns))
            reached = max(reached, callee.end_ns)
    if span.end_ns > reached:
        parts.append((reached, span.end_ns))
    return parts
