"""Recording time: how much of what a run took is the recording's own, in all and in each engine step."""

from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import STEP_SPAN

__all__ = ["recording_by_step"]


@per_trace
def recording_by_step(trace: Trace) -> dict[str, int]:
    """Nanoseconds that the recording took within each engine step, by the id of the step's span; none for most runs."""
    found: dict[str, int] = {}
    for span in trace.spans:
        if (nanoseconds := span.recording_ns) and (step := _step_around(trace, span)) is not None:
            found[step.span_id] = found.get(step.span_id, 0) + nanoseconds
    return found


def _step_around(trace: Trace, span: Span) -> Span | None:
    """The step that a call is, or is part of, in the same thread."""
    above: Span | None = span
    while above is not None and above.name != STEP_SPAN:
        above = trace.parent(above)
    return above if above is not None and above.thread == span.thread else None
