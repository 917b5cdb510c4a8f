"""Clock and ids of a recording. Tests replace both to compare whole traces.

Probed calls only read a monotonic clock and count. Wall-clock times, span ids and trace ids are computed from these
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
        now: returns the monotonic time in nanoseconds; called twice in every probed call.
        wall_ns: nanoseconds since 1970 at `monotonic_ns`.
        monotonic_ns: a reading of `now`.
    """

    now: Callable[[], int]
    wall_ns: int
    monotonic_ns: int

    @classmethod
    def real(cls) -> "Clock":
        """Return the machine's clock."""
        return cls(time.perf_counter_ns, time.time_ns(), time.perf_counter_ns())

    @classmethod
    def counting(cls) -> "Clock":
        """Return a clock for tests, which advances by a microsecond with each reading."""
        return cls(itertools.count(0, 1000).__next__, 1_700_000_000_000_000_000, 0)

    @property
    def readings(self) -> list[int] | None:
        """The pair of readings, by which other processes of this machine share the clock; None for a test's clock."""
        return [self.wall_ns, self.monotonic_ns] if self.now is time.perf_counter_ns else None

    def wall(self, monotonic_ns: int) -> int:
        """Return the wall-clock time of a monotonic one, in nanoseconds since 1970."""
        return self.wall_ns + monotonic_ns - self.monotonic_ns


@dataclass(frozen=True)
class Ids:
    """Source of a recording's ids.

    A process numbers its calls 0, 1, 2, ...; call n has the span id `first_span + n`, so an id costs a call nothing.
    Span ids of requests count from `first_request`.

    Attributes:
        first_span: 64 bits, random for each process.
        first_request: 64 bits, random and far from `first_span`.
        trace: returns a new trace id, 32 hexadecimal digits.
    """

    first_span: int = field(default_factory=lambda: secrets.randbits(62) + 1)
    first_request: int = field(default_factory=lambda: (1 << 63) + secrets.randbits(62))
    trace: Callable[[], str] = lambda: secrets.token_hex(16)
    _requests: Iterator[int] = field(default_factory=itertools.count)

    def request_span(self) -> str:
        """Return a span id for the next request; atomic, as no other thread can interrupt it."""
        return f"{self.first_request + next(self._requests) & (1 << 64) - 1:016x}"

    @classmethod
    def counting(cls) -> "Ids":
        """Return ids for tests: spans 1, 2, 3, ..., requests from 2**63, traces 1, 2, 3, ..."""
        return cls(1, 1 << 63, map("{:032x}".format, itertools.count(1)).__next__)
