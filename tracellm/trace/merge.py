"""The clocks of several processes become one: times are shifted by each process's recorded pair of readings.

Each process read its wall clock and its monotonic clock together, and wrote times of the monotonic clock converted by
that pair. The processes of one machine have the same monotonic clock, so `merge` counts their times from one pair, that
of the machine's first process: it does not matter then if somebody set the wall clock between two readings. Wall clocks
of different machines are believed. A message may then seem to arrive before it was sent, by as much as the clocks of
two machines differ; reports order what happened by cause, not by time alone.
"""

from collections.abc import Collection, Sequence

from tracellm.trace import names
from tracellm.trace.model import Process, Span

__all__ = ["MOST_APART_NS", "merge"]

MOST_APART_NS = 3600 * 10**9
"""Readings of two processes that differ by more were made on two machines of one name, or the machine was restarted."""


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
    """The nanoseconds by which the times of each process are shifted, by `id(process)`; none for most."""
    first: dict[str, int | None] = {}  # of each machine: the difference of its first process's two readings
    shifts = {}
    for process in _by_seniority(processes):
        apart = _apart(process)
        lead = first.setdefault(process.host, apart)
        if lead is not None and apart is not None and lead != apart and abs(lead - apart) <= MOST_APART_NS:
            shifts[id(process)] = lead - apart
    return shifts


def _by_seniority(processes: Sequence[Process]) -> list[Process]:
    """The processes that no other here started come first, of them the main one, then those that began earlier."""
    here = {(process.host, process.pid) for process in processes}

    def rank(process: Process) -> tuple[bool, bool, int, int, str]:
        started = (process.host, _integer(process, names.PROCESS_PARENT_PID)) in here
        return started, process.name != "main", _integer(process, names.CLOCK_WALL) or 0, process.pid, process.name

    return sorted(processes, key=rank)


def _apart(process: Process) -> int | None:
    """Wall clock minus monotonic clock, as this process read them; None where that was not recorded."""
    wall, monotonic = _integer(process, names.CLOCK_WALL), _integer(process, names.CLOCK_MONOTONIC)
    return None if wall is None or monotonic is None else wall - monotonic


def _integer(process: Process, name: str) -> int | None:
    value = process.attributes.get(name)
    return value if isinstance(value, int) else None
