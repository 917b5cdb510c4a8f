"""Recording time: the part of a run that the recording itself took, in each engine step and in generation.

Spans have the time of captures and of writing records as `tracellm.recording.duration_ns`. The rest of a probe's cost
is too short to time: run.json has what the probe of one call takes (`probes.per_call_us`).
"""

from collections.abc import Mapping
from typing import Any

from tracellm.report.facts.coverage import numbers_in
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.steps import STEP_SPAN, step_around

__all__ = ["generation", "recording_by_step", "share_of_generation"]


@per_trace
def recording_by_step(trace: Trace) -> dict[str, int]:
    """Return each step's recording time in nanoseconds, by the id of the step's span; steps without any are absent."""
    found: dict[str, int] = {}
    for span in trace.spans:
        step = step_around(trace, span) if span.recording_ns else None
        if step is not None and step.thread == span.thread:
            found[step.span_id] = found.get(step.span_id, 0) + span.recording_ns
    return found


@per_trace
def generation(trace: Trace) -> tuple[int, int] | None:
    """Return the start of the first step and the end of the last one, over all engines; None without steps."""
    steps = trace.named(STEP_SPAN)
    return (steps[0].start_ns, max(step.end_ns for step in steps)) if steps else None


def share_of_generation(trace: Trace, manifest: Mapping[str, Any]) -> float | None:
    """Return the recording's share of generation, or None without steps or without a probe's cost in run.json.

    The sum is that of run.json's `probes.share`, within generation: a probe's cost for each call that began there, and
    the recording time of calls. A call that overlaps generation counts in part.
    Several processes add up.
    """
    probes = manifest.get("probes")
    cost = numbers_in(probes, "per_call_us") if isinstance(probes, Mapping) else {}
    within = generation(trace)
    if not cost or within is None or within[0] >= within[1]:
        return None
    start, end = within
    calls, recording_ns = 0, 0.0
    for span in trace.spans:
        if start <= span.start_ns <= end and span.name != names.REQUEST_SPAN:
            calls += 1
        if nanoseconds := span.recording_ns:
            overlap = min(end, span.end_ns) - max(start, span.start_ns)
            recording_ns += nanoseconds * max(0, overlap) / span.duration_ns
    return (calls * cost["per_call_us"] * 1e3 + recording_ns) / (end - start)
