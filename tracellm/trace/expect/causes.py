"""Which calls came before which, where that is more than chance.

Two processes run side by side. When the engine core begins its loop just as the server goes on to build its routes, the
one that begins first is the one that the machine happened to run. A diagram has to draw them in one order or another,
and is not wrong for that. What does come before, whatever the machine does: within a process, what began earlier; a
message's sending before what follows its arrival; a call before what it made in another process; and what that process
did until the call returned before what its caller did afterwards.
"""

from bisect import bisect_right
from collections.abc import Sequence

from tracellm.trace.expect.calls import Call
from tracellm.trace.model import Process, Span, Trace

__all__ = ["Causes"]


class Causes:
    """The calls of a recording, and for each the last one of every process that came before it."""

    def __init__(self, trace: Trace, calls: Sequence[Call]) -> None:
        self._process: list[int] = []
        self._before: list[tuple[int, ...]] = []
        numbers: dict[int, int] = {}
        for call in calls:
            numbers.setdefault(_id(call.span.process), len(numbers))
        self.processes = len(numbers)
        first: dict[str, int] = {}
        sends = {one.receive.span_id: one.send.span_id for one in trace.messages if one.receive}
        returns = _returns(trace, numbers)
        at = 0
        now = [(-1,) * self.processes for _ in numbers]
        for i, call in enumerate(calls):
            while at < len(returns) and returns[at][0] <= call.time_ns:
                _, caller, other = returns[at]
                now[caller] = _later(now[caller], now[other])
                at += 1
            here = numbers[_id(call.span.process)]
            for cause in (sends.get(call.begun_by.span_id), call.begun_by.parent_span_id):
                if cause in first and self._process[first[cause]] != here:
                    now[here] = _later(now[here], self._before[first[cause]])
            now[here] = (*now[here][:here], i, *now[here][here + 1 :])
            self._process.append(here)
            self._before.append(now[here])
            first.setdefault(call.span.span_id, i)

    def in_turn(self, places: Sequence[Sequence[int]]) -> dict[int, int]:
        """For each arrow the earliest of its calls that did not come before one found already, where there is one."""
        found: dict[int, int] = {}
        done: tuple[int, ...] = (-1,) * self.processes
        for i, of_arrow in enumerate(self._by_process(places)):
            free = [
                at[index] for process, at in of_arrow.items() if (index := bisect_right(at, done[process])) < len(at)
            ]
            if free:
                found[i] = min(free)
                done = _later(done, self._before[found[i]])
        return found

    def _by_process(self, places: Sequence[Sequence[int]]) -> list[dict[int, list[int]]]:
        apart: dict[int, dict[int, list[int]]] = {}  # arrows of one kind share their list of places
        for of_arrow in places:
            if id(of_arrow) not in apart:
                split: dict[int, list[int]] = {}
                for place in of_arrow:
                    split.setdefault(self._process[place], []).append(place)
                apart[id(of_arrow)] = split
        return [apart[id(of_arrow)] for of_arrow in places]


def _id(process: Process | None) -> int:
    return process.pid if process else 0


def _later(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(max, one, other))


def _returns(trace: Trace, numbers: dict[int, int]) -> list[tuple[int, int, int]]:
    """When a call returned that had made one in another process: the time, its process, the other; in order."""
    found: set[tuple[int, int, int]] = set()
    for span in trace.spans:
        parent: Span | None = trace.parent(span)
        if parent is None or parent.open or _id(parent.process) == _id(span.process):
            continue
        if _id(parent.process) in numbers and _id(span.process) in numbers:
            found.add((parent.end_ns, numbers[_id(parent.process)], numbers[_id(span.process)]))
    return sorted(found)
