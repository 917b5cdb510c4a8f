"""What the writer's thread costs the program that it writes of: processor time, and how long it holds the others up."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

__all__ = ["Effort"]


class Effort:
    """The writer's own account. All times are processor time of the thread that writes.

    Attributes:
        spans: how many it has written, those of calls under way not counted.
        seconds: how long that took, all that its thread does included.
    """

    def __init__(self) -> None:
        self.spans = 0
        self.seconds = 0.0
        self._worst_ns = 0
        self._since_ns = 0

    @contextmanager
    def spent(self) -> Iterator[None]:
        """What is done within is the writer's work."""
        begin = self._since_ns = time.thread_time_ns()
        try:
            yield
        finally:
            self.lets_go()
            self.seconds += (time.thread_time_ns() - begin) / 1e9

    def lets_go(self) -> None:
        """Others may run now: the writer pauses. At the latest the interpreter made it do so after its interval."""
        held_ns = min(time.thread_time_ns() - self._since_ns, int(sys.getswitchinterval() * 1e9))
        self._worst_ns = max(self._worst_ns, held_ns)

    def goes_on(self) -> None:
        """The pause is over."""
        self._since_ns = time.thread_time_ns()

    def told(self, desk: Mapping[str, Any], held_up_ns: int) -> dict[str, float]:
        """As run.json has it; `desk` is what the desk says of itself, calls have waited for `held_up_ns`."""
        spans, seconds = desk.get("spans", 0), desk.get("seconds", self.seconds)
        return {
            "spans": spans,
            "seconds": round(seconds, 6),
            "us_per_span": round(seconds / spans * 1e6, 3) if spans else 0.0,
            "seconds_within": round(self.seconds, 6),
            "worst_pause_ms": round(self._worst_ns / 1e6, 3),
            "held_up_s": round(held_up_ns / 1e9, 6),
        }
