"""Repair of spans as they were read, so that a tree can be made of them.

A recording that is damaged, or was put together from several, may have two spans of one id, and spans that are their
own ancestors. Both are reported as problems; what remains is sound. All of it takes time in proportion to the spans.
"""

from collections.abc import Collection, Iterable

from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.problems import Problem

__all__ = ["repair"]


def repair(spans: Iterable[Span]) -> tuple[dict[str, Span], list[Problem]]:
    """The spans by their ids, of which each is there once, and whose parents form no circle; and what was wrong.

    A span that was recorded while it was open gives way to itself when it had ended.
    """
    by_id: dict[str, Span] = {}
    repeated = 0
    for span in spans:
        known = by_id.setdefault(span.span_id, span)
        if known is not span:
            if known.open:
                by_id[span.span_id] = span
            elif not span.open:
                repeated += 1
    problems = [Problem("spans_repeated", count=repeated)] if repeated else []
    _let_last(by_id.values())
    if circles := _cut_circles(by_id):
        problems.append(Problem("spans_circular", count=circles))
    return by_id, problems


def _let_last(spans: Collection[Span]) -> None:
    """Let what never ended last until the end of the last span of its process."""
    still_open = [span for span in spans if names.OPEN in span.attributes and span.open]
    if not still_open:
        return
    last: dict[int, int] = {}
    for span in spans:
        process = id(span.process)
        if span.end_ns > last.get(process, 0):
            last[process] = span.end_ns
    for span in still_open:
        span.end_ns = last.get(id(span.process), span.end_ns)


def _cut_circles(by_id: dict[str, Span]) -> int:
    """Make a root of one span in each circle; what is returned is how many circles there were.

    Somewhere in a circle a caller begins no earlier than what it called. So only from such calls is the way up looked
    at, which in a sound recording are few.
    """
    doubtful = []
    for span in by_id.values():
        if span.parent_span_id is not None:
            parent = by_id.get(span.parent_span_id)
            if parent is not None:
                span.parent_span_id = parent.span_id  # one text for both
                if parent.start_ns >= span.start_ns:
                    doubtful.append(span)
    settled: set[str] = set()
    circles = 0
    for span in doubtful:
        path: set[str] = set()
        current: Span | None = span
        while current is not None and current.span_id not in settled:
            if current.span_id in path:
                current.parent_span_id = None
                circles += 1
                break
            path.add(current.span_id)
            current = by_id.get(current.parent_span_id) if current.parent_span_id else None
        settled |= path
    return circles
