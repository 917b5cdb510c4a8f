"""Time and ids of a recording, both of which a test can replace so that it may compare whole traces.

The hot path reads only a monotonic clock and counts calls. Wall-clock times, span ids and trace ids are made from these
later, off the hot path.
"""

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["Clock", "Ids"]


@dataclass(frozen=True)
class Clock:
    """A monotonic clock, and the pair of readings that turns its times into wall-clock times.

    Attributes:
        now: the monotonic time in nanoseconds; called twice in every probed call.
        wall_ns: nanoseconds since 1970 ...
        monotonic_ns: ... at this moment of `now`.
    """

    now: Callable[[], int]
    wall_ns: int
    monotonic_ns: int

    @classmethod
    def real(cls) -> "Clock":
        """The machine's clocks."""
        return cls(time.perf_counter_ns, time.time_ns(), time.perf_counter_ns())

    @classmethod
    def counting(cls, step_ns: int = 1000, wall_ns: int = 1_700_000_000_000_000_000) -> "Clock":
        """A clock for tests: each reading is `step_ns` after the one before, the first is `wall_ns`."""
        return cls(itertools.count(0, step_ns).__next__, wall_ns, 0)

    @property
    def readings(self) -> list[int] | None:
        """The pair, with which another process of this machine can have the same clock; None for one of a test."""
        return [self.wall_ns, self.monotonic_ns] if self.now is time.perf_counter_ns else None

    def wall(self, monotonic_ns: int) -> int:
        """The wall-clock time of a monotonic one, in nanoseconds since 1970."""
        return self.wall_ns + monotonic_ns - self.monotonic_ns


@dataclass(frozen=True)
class Ids:
    """Where the ids of a recording come from.

    A process numbers its calls 0, 1, 2, ...; call n has the span id `first_span + n`. So an id costs the hot path
    nothing. The spans of requests count from `first_request`.

    Attributes:
        first_span: 64 bits, picked at random for each process.
        first_request: the same, far away from it.
        trace: makes a trace id, 32 hexadecimal digits.
    """

    first_span: int = field(default_factory=lambda: secrets.randbits(62) + 1)
    first_request: int = field(default_factory=lambda: (1 << 63) + secrets.randbits(62))
    trace: Callable[[], str] = lambda: secrets.token_hex(16)
    _requests: Iterator[int] = field(default_factory=itertools.count)

    def request_span(self) -> str:
        """A span id for the next request; drawing one cannot be interrupted by another thread."""
        return f"{self.first_request + next(self._requests) & (1 << 64) - 1:016x}"

    @classmethod
    def counting(cls) -> "Ids":
        """Ids for tests: spans 1, 2, 3, ..., requests from 2**63, traces 1, 2, 3, ..."""
        return cls(1, 1 << 63, map("{:032x}".format, itertools.count(1)).__next__)
