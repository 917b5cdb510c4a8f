"""Times of a run, in few numbers that mean the same whichever client it used."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tracellm.trace import names
from tracellm.trace.compare.boundary import Spread
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import Step

__all__ = ["RunTimes", "run_times"]


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Nanoseconds. `startup_ns` is what making engines took; `requests_ns` the time in which some request was there.

    `between` are the times from the end of a step to the beginning of the next, where a request was there all along:
    what the engine core waits for the front half, or whatever else lies between. `recording_ns` is what the recording
    took in all calls together; it is part of the other times.
    """

    startup_ns: int
    requests_ns: int
    steps: Spread
    between: Spread
    recording_ns: int = 0


def run_times(trace: Trace, steps: Sequence[Step]) -> RunTimes:
    """The times of a run."""
    lives = _together(trace.named(names.REQUEST_SPAN))
    gaps, spell = [], 0
    for before, after in pairwise(steps):
        while spell < len(lives) and lives[spell][1] < before.span.end_ns:
            spell += 1
        if not lives or (spell < len(lives) and _within(before.span.end_ns, after.span.start_ns, lives[spell])):
            gaps.append(max(0, after.span.start_ns - before.span.end_ns))
    return RunTimes(
        startup_ns=_length(_together(filter(_starts, trace.spans))),
        requests_ns=_length(lives),
        steps=Spread.of([step.span.duration_ns for step in steps]),
        between=Spread.of(gaps),
        recording_ns=sum(span.recording_ns for span in trace.spans),
    )


def _starts(span: Span) -> bool:
    """Whether it is the making of an engine, the outermost such call or one inside it."""
    return span.attributes.get(names.PHASE) == "startup" or span.name == "AsyncLLM.__init__"


def _within(start: int, end: int, stretch: tuple[int, int]) -> bool:
    return stretch[0] <= start and end <= stretch[1]


def _together(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """The stretches of time that spans ordered by their start cover."""
    covered: list[tuple[int, int]] = []
    for span in spans:
        if covered and span.start_ns <= covered[-1][1]:
            covered[-1] = covered[-1][0], max(covered[-1][1], span.end_ns)
        else:
            covered.append((span.start_ns, span.end_ns))
    return covered


def _length(stretches: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in stretches)
