"""Spans of several files made one trace: each id once, no span its own ancestor, all times on one clock.

A recording that is damaged, or put together from several, may have two spans with one id, and spans that are their own
ancestors. `repair` reports both as problems.

Each process read its wall clock and its monotonic clock together, and its times are those of the monotonic clock,
converted by that pair. The processes of one machine have the same monotonic clock, so `merge` converts all their times
by one pair, that of the machine's first process: setting the wall clock between two readings has no effect. Wall clocks
of different machines are taken as they are. A message may then seem to arrive before it was sent; reports order events
by cause, not by time alone.
"""

from collections.abc import Collection, Iterable, Sequence

from tracellm.trace import names
from tracellm.trace.model import Process, Span
from tracellm.trace.problems import Problem

__all__ = ["MOST_APART_NS", "merge", "repair"]


def repair(spans: Iterable[Span]) -> tuple[dict[str, Span], list[Problem]]:
    """Return the spans by id, each id once and no parents in a circle, and the problems found.

    A span recorded when it ended replaces one recorded while it was open.
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
    _extend_open(by_id.values())
    if circles := _cut_circles(by_id):
        problems.append(Problem("spans_circular", count=circles))
    return by_id, problems


def _extend_open(spans: Collection[Span]) -> None:
    """Extend calls that never ended to the end of the last span of their process."""
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
    """Make one span of each circle a root, and return the number of circles.

    In every circle, some caller begins no earlier than its callee. So only the ancestors of such callees, few in a
    sound recording, are searched.
    """
    suspects = []
    for span in by_id.values():
        if span.parent_span_id is not None:
            parent = by_id.get(span.parent_span_id)
            if parent is not None:
                span.parent_span_id = parent.span_id  # share one string
                if parent.start_ns >= span.start_ns:
                    suspects.append(span)
    checked: set[str] = set()
    circles = 0
    for span in suspects:
        path: set[str] = set()
        current: Span | None = span
        while current is not None and current.span_id not in checked:
            if current.span_id in path:
                current.parent_span_id = None
                circles += 1
                break
            path.add(current.span_id)
            current = by_id.get(current.parent_span_id) if current.parent_span_id else None
        checked |= path
    return circles


MOST_APART_NS = 3600 * 10**9
"""Maximum difference between the offsets of two processes on one machine.

A greater one means two machines of one name, or a restart between the processes.
"""


def merge(processes: Sequence[Process], spans: Collection[Span]) -> None:
    """Shift the times of these spans, in place, so that all processes of one machine are on one clock."""
    shifts = _shifts(processes)
    for span in spans if shifts else ():
        shift = shifts.get(id(span.process))
        if shift:
            span.start_ns += shift
            span.end_ns += shift
            for event in span.events:
                event.time_ns += shift


def _shifts(processes: Sequence[Process]) -> dict[int, int]:
    """Return the nanoseconds by which to shift each process's times, by `id(process)`; most need none."""
    first: dict[str, int | None] = {}  # machine -> difference of the two readings of its first process
    shifts = {}
    for process in _by_seniority(processes):
        offset = _clock_offset(process)
        reference = first.setdefault(process.host, offset)
        if (
            reference is not None
            and offset is not None
            and reference != offset
            and abs(reference - offset) <= MOST_APART_NS
        ):
            shifts[id(process)] = reference - offset
    return shifts


def _by_seniority(processes: Sequence[Process]) -> list[Process]:
    """Sort processes: those not started by one of these first, the main one at their front; then by start."""
    here = {(process.host, process.pid) for process in processes}

    def rank(process: Process) -> tuple[bool, bool, int, int, str]:
        started = (process.host, _integer(process, names.PROCESS_PARENT_PID)) in here
        return started, process.name != "main", _integer(process, names.CLOCK_WALL) or 0, process.pid, process.name

    return sorted(processes, key=rank)


def _clock_offset(process: Process) -> int | None:
    """Return the wall clock minus the monotonic clock, as this process read them; None if not recorded."""
    wall, monotonic = _integer(process, names.CLOCK_WALL), _integer(process, names.CLOCK_MONOTONIC)
    return None if wall is None or monotonic is None else wall - monotonic


def _integer(process: Process, name: str) -> int | None:
    value = process.attributes.get(name)
    return value if isinstance(value, int) else None
