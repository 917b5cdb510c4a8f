"""Time of each part of an engine step: scheduling, preparing inputs, forward pass, sampling, processing outputs."""

from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace
from tracellm.trace.steps import STEP_SPAN

__all__ = ["parts_by_step"]

_PARTS = {
    "Scheduler.schedule": "schedule",
    "GPUModelRunner._update_states": "prepare",
    "GPUModelRunner._prepare_inputs": "prepare",
    "GPUModelRunner._model_forward": "forward",
    "GPUModelRunner._sample": "sample",
    "Scheduler.update_from_output": "process",
}
"""Calls within a step, and the part of its time that each is; the rest of the step is none of these."""


@per_trace
def parts_by_step(trace: Trace) -> dict[str, dict[str, int]]:
    """Return the nanoseconds of each part of a step, without the recording's, by the id of the step's span."""
    found: dict[str, dict[str, int]] = {}
    for name, part in _PARTS.items():
        for span in trace.named(name):
            step: Span | None = span
            while step is not None and step.name != STEP_SPAN:
                step = trace.parent(step)
            if step is not None:
                times = found.setdefault(step.span_id, {})
                times[part] = times.get(part, 0) + span.duration_ns - span.recording_ns
    return found
