"""Several processes' clocks become one, so that what happened in all of them can be told in one order.

Each process read its monotonic clock and wrote wall-clock times, converted by a pair of readings of both. `merge` puts
them all on the clock of the first process, the one that no other started:

1. The processes of one machine have the same monotonic clock, so their times are counted from one pair. Whether
   somebody set the wall clock between two readings does not matter then.
2. Other machines, and processes for which that cannot be so, are moved by one amount each, and only when a message
   contradicts their wall clock: none can have arrived before it was sent. Messages one way bound the amount from below,
   those the other way from above; the middle is taken (Cristian's algorithm), or the bound itself where there is but
   one. Bounds are carried from process to process, beginning at the first.
3. Where bounds contradict one another, as when two clocks run at different speeds, no one amount will do. Then the
   timeline of a whole machine is moved on from the moment of each message that would still arrive too early
   (`tracellm.trace.timeline`), and a Problem tells of it. All calls of a machine are moved alike: their order is kept,
   callers still surround their callees, and no call becomes shorter; one that goes on at such a moment becomes longer.

Afterwards no receive begins before its send has ended, and no call before one in another process that made it.
"""

from collections.abc import Callable, Collection, Sequence

from tracellm.trace import names
from tracellm.trace.messages import pairs, sent_at
from tracellm.trace.model import Process, Span
from tracellm.trace.problems import Problem
from tracellm.trace.timeline import Cause, Timeline, move_on

__all__ = ["MOST_APART_NS", "merge"]

MOST_APART_NS = 3600 * 10**9
"""Readings of two processes that differ by more were made on two machines of one name, or the machine was restarted."""

_ROUNDS = 100
"""How often bounds are carried on from clock to clock before they count as contradictory."""


def merge(processes: Sequence[Process], spans: Collection[Span], problems: list[Problem]) -> None:
    """Put the times of these spans on one clock, in place; what no amounts can explain is told in `problems`.

    A recording of one process stays as it is, and so do several of one machine whose pairs of readings agree. Takes
    time in proportion to the spans (and their messages' logarithm).
    """
    if len(processes) < 2:
        return
    clocks = _Clocks(processes)
    sent = [(send, receive) for send, receive in pairs(spans) if receive is not None]
    clocks.part(sent)
    if len(set(clocks.number.values())) == 1:
        clocks.move(spans, {})
        return
    causes = _causes(clocks, sent, spans)
    amounts = _amounts(causes, clocks.count)
    causes = [
        Cause(one.source, one.before + amounts[one.source], one.target, one.after + amounts[one.target], one.message)
        for one in causes
    ]
    timelines: list[Timeline] = [Timeline() for _ in range(clocks.count)]
    early = sum(cause.message for cause in causes if cause.before > cause.after)
    if any(cause.before > cause.after for cause in causes):
        timelines, impossible = move_on(causes, clocks.count)
        most = max(timeline.amount for timeline in timelines)
        if early:
            problems.append(Problem("clocks_drift", count=early, ms=f"{most / 1e6:.3f}"))
        if lost := sum(causes[number].message for number in impossible):
            problems.append(Problem("messages_circular", count=lost))
    clocks.move(spans, {i: (amounts[i], timelines[i]) for i in range(clocks.count)})


class _Clocks:
    """Which processes share a clock, and by how much each is moved for it.

    `number` is the clock of each process, by `id(process)`, 0 for the first's; `shift` the nanoseconds to add to a
    process' times to be on its clock.
    """

    def __init__(self, processes: Sequence[Process]) -> None:
        self.number: dict[int, int] = {}
        self.shift: dict[int, int] = {}
        self.count = 0
        hosts: dict[str, _Host] = {}
        for process in _by_seniority(processes):
            known = hosts.setdefault(process.host, _Host()).clock(_apart(process), self.count)
            self.number[id(process)], self.shift[id(process)] = known
            self.count = max(self.count, known[0] + 1)

    def part(self, sent: Sequence[tuple[Span, Span]]) -> None:
        """Give each process a clock of its own where a message contradicts that they share one."""
        wrong = {
            self.of(send) for send, receive in sent if self.of(send) == self.of(receive) and self.early(send, receive)
        }
        seen: set[int] = set()
        for process, number in self.number.items():
            if number in wrong:
                self.shift[process] = 0
                if number in seen:
                    self.number[process], self.count = self.count, self.count + 1
                seen.add(number)

    def of(self, span: Span) -> int:
        """The number of a span's clock."""
        return self.number.get(id(span.process), 0)

    def at(self, span: Span, time: int) -> int:
        """A time of a span, on its clock."""
        return time + self.shift.get(id(span.process), 0)

    def early(self, send: Span, receive: Span) -> bool:
        """Whether a message seems to have arrived before it was sent."""
        return self.at(receive, receive.start_ns) < self.at(send, sent_at(send))

    def move(self, spans: Collection[Span], moves: dict[int, tuple[int, Timeline]]) -> None:
        """Change the spans' times: to their clock, by its amount, along its timeline."""
        plans: dict[int, tuple[int, Callable[[int], int]]] = {}  # of each process that is to be moved
        for process, number in self.number.items():
            amount, timeline = moves.get(number, (0, None))
            amount += self.shift[process]
            if amount or (timeline and timeline.times):
                plans[process] = amount, timeline.moved if timeline and timeline.times else int
        for span in spans if plans else ():
            plan = plans.get(id(span.process))
            if plan is not None:
                amount, moved = plan
                span.start_ns, span.end_ns = moved(span.start_ns + amount), moved(span.end_ns + amount)
                for event in span.events:
                    event.time_ns = moved(event.time_ns + amount)


class _Host:
    """The clocks of one machine. Processes whose readings lie close to each other have the same.

    Each is kept under its reading in hours; those of one hour are close, so a process has three hours to look at.
    """

    def __init__(self) -> None:
        self._hours: dict[int, tuple[int, int]] = {}  # the number of a clock, and what its first process read
        self._first: int | None = None  # the clock of the first process
        self._suits_all = False  # that process does not tell what it read

    def clock(self, apart: int | None, new: int) -> tuple[int, int]:
        """The number of a process' clock, `new` if it has none in common, and what to add to the process' times."""
        if self._first is None:
            self._first, self._suits_all = new, apart is None
        if apart is None or self._suits_all:
            return self._first, 0
        hour = apart // MOST_APART_NS
        near = [known for at in (hour - 1, hour, hour + 1) if (known := self._hours.get(at))]
        close = [(number, lead - apart) for number, lead in near if abs(lead - apart) <= MOST_APART_NS]
        if not close:
            self._hours[hour] = new, apart
            return new, 0
        return min(close)


def _by_seniority(processes: Sequence[Process]) -> list[Process]:
    """The processes that no other here started come first, of them the main one, then those that began earlier."""
    here = {(process.host, process.pid) for process in processes}

    def rank(process: Process) -> tuple[bool, bool, int, int, str]:
        started = (process.host, _integer(process, names.PROCESS_PARENT_PID)) in here
        return started, process.name != "main", _integer(process, names.CLOCK_WALL) or 0, process.pid, process.name

    return sorted(processes, key=rank)


def _apart(process: Process) -> int | None:
    """Wall clock minus monotonic clock, as this process read them; None where it does not tell."""
    wall, monotonic = _integer(process, names.CLOCK_WALL), _integer(process, names.CLOCK_MONOTONIC)
    return None if wall is None or monotonic is None else wall - monotonic


def _integer(process: Process, name: str) -> int | None:
    value = process.attributes.get(name)
    return value if isinstance(value, int) else None


def _causes(clocks: _Clocks, sent: Sequence[tuple[Span, Span]], spans: Collection[Span]) -> list[Cause]:
    """What must come before what, between clocks: sends before receives, and calls before those that they made."""
    found = [
        Cause(clocks.of(send), clocks.at(send, sent_at(send)), clocks.of(receive), clocks.at(receive, receive.start_ns))
        for send, receive in sent
        if clocks.of(send) != clocks.of(receive)
    ]
    by_id = {span.span_id: span for span in spans}
    for span in spans:
        caller = by_id.get(span.parent_span_id) if span.parent_span_id else None
        if caller is not None and caller.process is not span.process and clocks.of(caller) != clocks.of(span):
            before, after = clocks.at(caller, caller.start_ns), clocks.at(span, span.start_ns)
            found.append(Cause(clocks.of(caller), before, clocks.of(span), after, message=False))
    return found


def _amounts(causes: Sequence[Cause], count: int) -> list[int]:
    """The nanoseconds by which each clock is moved; no cause comes too late then, unless no amounts can do that."""
    least: dict[tuple[int, int], int] = {}  # (a, b): b is moved by so much more than a, at least
    for cause in causes:
        key = cause.source, cause.target
        needed = cause.before - cause.after
        least[key] = max(least.get(key, needed), needed)
    beside: list[set[int]] = [set() for _ in range(count)]
    for a, b in least:
        beside[a].add(b)
        beside[b].add(a)
    amounts: dict[int, int] = {}
    firsts: dict[int, int] = {}  # from which clock the bounds of a clock come
    for first in range(count):
        if first in amounts:
            continue
        amounts[first], firsts[first] = 0, first
        reached = [first]
        for clock in reached:
            for other in sorted(number for number in beside[clock] if number not in amounts):
                known = {number for number in beside[other] if number in amounts}
                amounts[other] = _between(other, least, known, amounts)
                firsts[other] = first
                reached.append(other)
    return _carried_on([amounts[clock] for clock in range(count)], firsts, least)


def _between(clock: int, least: dict[tuple[int, int], int], known: set[int], amounts: dict[int, int]) -> int:
    """The amount for one clock that the bounds from the known ones allow."""
    lower = [amounts[other] + least[other, clock] for other in known if (other, clock) in least]
    upper = [amounts[other] - least[clock, other] for other in known if (clock, other) in least]
    if max(lower, default=0) <= 0 <= min(upper, default=0):
        return 0
    if lower and upper:
        return (max(lower) + min(upper)) // 2
    return max(lower) if lower else min(upper)


def _carried_on(amounts: list[int], firsts: dict[int, int], least: dict[tuple[int, int], int]) -> list[int]:
    """The amounts, made to fit all bounds at once; as they were where that cannot be."""
    fitting = amounts.copy()
    for _ in range(min(len(amounts), _ROUNDS) + 1):
        before = fitting.copy()
        for (a, b), needed in least.items():
            fitting[b] = max(fitting[b], fitting[a] + needed)
        if fitting == before:
            return [amount - fitting[firsts[clock]] for clock, amount in enumerate(fitting)]
    return amounts
