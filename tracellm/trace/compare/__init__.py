"""The comparison of two recordings, A and B, as plain data: calls, steps, requests, times and messages.

A comparison is most useful if one thing differs, such as other limits, or an engine core in a process of its own. Any
two traces can be compared, in linear time. vLLM has no counterpart.
"""

from dataclasses import dataclass

from tracellm.trace.compare.calls import CallPair, call_pairs
from tracellm.trace.compare.requests import ComparedRequest, RequestPair, request_pairs
from tracellm.trace.compare.steps import StepPair, step_pairs
from tracellm.trace.compare.times import Boundary, MessageTally, RunTimes, Spread, boundary, run_times
from tracellm.trace.model import Trace
from tracellm.trace.steps import steps

__all__ = [
    "Boundary",
    "CallPair",
    "ComparedRequest",
    "Comparison",
    "MessageTally",
    "RequestPair",
    "RunTimes",
    "Spread",
    "StepPair",
    "compare",
]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences and similarities of two traces."""

    calls: tuple[CallPair, ...]
    steps: tuple[StepPair, ...]
    requests: tuple[RequestPair, ...]
    times: tuple[RunTimes, RunTimes]
    boundaries: tuple[Boundary, Boundary]
    empty_steps: tuple[int, int]
    """Steps in which nothing was scheduled: a busy loop runs one when requests have ended. No other number here counts
    them."""

    @property
    def num_steps(self) -> tuple[int, int]:
        """Number of steps of each run in which something was scheduled."""
        return sum(pair.a is not None for pair in self.steps), sum(pair.b is not None for pair in self.steps)

    @property
    def different_steps(self) -> list[StepPair]:
        """The steps that differ, in order."""
        return [pair for pair in self.steps if pair.differs]

    @property
    def different_calls(self) -> list[CallPair]:
        """The calls that differ in their number, process, thread or class."""
        return [pair for pair in self.calls if pair.differs]


def compare(a: Trace, b: Trace) -> Comparison:
    """Compare two traces."""
    all_a, all_b = steps(a), steps(b)
    steps_a, steps_b = ([step for step in every if step.requests] for every in (all_a, all_b))
    requests = request_pairs(a, steps_a, b, steps_b)
    return Comparison(
        calls=tuple(call_pairs(a, b)),
        steps=tuple(step_pairs(steps_a, steps_b, requests)),
        requests=tuple(requests),
        times=(run_times(a, steps_a), run_times(b, steps_b)),
        boundaries=(boundary(a), boundary(b)),
        empty_steps=(len(all_a) - len(steps_a), len(all_b) - len(steps_b)),
    )
