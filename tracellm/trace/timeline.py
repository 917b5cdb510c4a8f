"""Timelines moved on until no effect precedes its cause: what merging does when no one amount for a clock will do.

This is a controlled logical clock: Lamport's rule applied to recorded times. Every event keeps its distance to the one
before it on its clock, or gets a larger one.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Cause", "Timeline", "move_on"]


class Cause(NamedTuple):
    """What happened at `before` on the clock `source` cannot be later than what happened at `after` on `target`.

    Clocks are numbers, times nanoseconds. `message` is False for a call that was made in another process.
    """

    source: int
    before: int
    target: int
    after: int
    message: bool = True


class Timeline:
    """By how much the times of one clock are moved: from each `times[i]` on by `amounts[i]`, which never falls."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.amounts: list[int] = []

    @property
    def amount(self) -> int:
        """By how much the last times are moved."""
        return self.amounts[-1] if self.amounts else 0

    def jump(self, time: int, amount: int) -> None:
        """Move what is at `time` and after it by `amount` in all."""
        self.times.append(time)
        self.amounts.append(amount)

    def moved(self, time: int) -> int:
        """Where `time` is moved to."""
        index = bisect_right(self.times, time)
        return time + self.amounts[index - 1] if index else time


def move_on(causes: Sequence[Cause], clocks: int) -> tuple[list[Timeline], set[int]]:
    """A timeline for each clock such that causes come first; and the indexes of causes for which there is none.

    There is none only where causes form a circle: a message that was sent after its own answer had come.
    """
    events: list[list[tuple[int, bool, int]]] = [[] for _ in range(clocks)]
    for number, cause in enumerate(causes):
        events[cause.source].append((cause.before, True, number))
        events[cause.target].append((cause.after, False, number))  # of one moment, what arrives goes first
    for queue in events:
        queue.sort()
    timelines = [Timeline() for _ in range(clocks)]
    heads = [0] * clocks
    known: dict[int, int] = {}  # when the cause happened
    awaited: dict[int, int] = {}  # a cause that is not known yet, by the clock that cannot go on without it
    impossible: set[int] = set()
    ready = deque(range(clocks))
    while True:
        while ready:
            clock = ready.popleft()
            timeline, queue = timelines[clock], events[clock]
            while heads[clock] < len(queue):
                time, is_cause, number = queue[heads[clock]]
                if is_cause:
                    known[number] = time + timeline.amount
                    target = causes[number].target
                    if awaited.get(target) == number:
                        del awaited[target]
                        ready.append(target)
                elif number not in impossible:
                    if number not in known:
                        awaited[clock] = number
                        break
                    if known[number] > time + timeline.amount:
                        timeline.jump(time, known[number] - time)
                heads[clock] += 1
        if not awaited:
            return timelines, impossible
        number = _in_circle(awaited, causes)
        impossible.add(number)
        clock = causes[number].target
        del awaited[clock]
        ready.append(clock)


def _in_circle(awaited: dict[int, int], causes: Sequence[Cause]) -> int:
    """Of the causes that wait for each other, the one whose effect was recorded first."""
    clock, number = awaited.popitem()  # any will do, and this one is found at once
    awaited[clock] = number
    path: list[int] = []
    seen: dict[int, int] = {}
    while clock not in seen:
        seen[clock] = len(path)
        path.append(awaited[clock])
        clock = causes[awaited[clock]].source
    return min(path[seen[clock] :], key=lambda number: (causes[number].after, number))
