"""Time of each part of an engine step, and of the front end's work on its outputs after it."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Process, Span, Trace
from tracellm.trace.steps import STEP_SPAN, step_around

__all__ = ["output_times", "parts_by_step"]

_PARTS = {
    "Scheduler.schedule": "schedule",
    "GPUModelRunner._update_states": "prepare",
    "GPUModelRunner._prepare_inputs": "prepare",
    "GPUModelRunner._model_forward": "forward",
    "GPUModelRunner._sample": "sample",
    "GPUModelRunner._pool": "pool",
    "Scheduler.update_from_output": "process",
}
"""Calls within a step, and the part of its time that each is; the rest of the step is none of these."""
_ORDER = ("schedule", "prepare", "forward", "logits", "sample", "pool", "process")
_LOGITS = ".compute_logits"
"""End of the name of the model's call that computes the logits."""
_OUTPUTS = "OutputProcessor.process_outputs"


@per_trace
def parts_by_step(trace: Trace) -> dict[str, dict[str, int]]:
    """Return the nanoseconds of each part of a step, without the recording's, by the id of the step's span."""
    found: dict[str, dict[str, int]] = {}
    recording: Counter[str] = Counter()
    for span in trace.spans:
        if span.recording_ns and (around := _part_around(trace, span)) is not None:
            recording[around.span_id] += span.recording_ns
    for span in trace.spans:
        part = _part(span)
        step = step_around(trace, span) if part else None
        if part and step is not None:
            times = found.setdefault(step.span_id, {})
            times[part] = times.get(part, 0) + span.duration_ns - recording[span.span_id]
    return {id: {part: times[part] for part in _ORDER if part in times} for id, times in found.items()}


def _part(span: Span) -> str | None:
    return _PARTS.get(span.name) or ("logits" if span.name.endswith(_LOGITS) else None)


def _part_around(trace: Trace, span: Span) -> Span | None:
    """Return the call that is a part of a step and made this one in its own thread, directly or not; or this one."""
    around: Span | None = span
    while around is not None and around.thread == span.thread:
        if _part(around):
            return around
        around = trace.by_id.get(around.parent_span_id or "")
    return None


@per_trace
def output_times(trace: Trace) -> dict[str, int]:
    """Return the nanoseconds in which the front end processed a step's outputs, by the id of the step's span.

    `OutputProcessor.process_outputs` turns tokens into text after the step: in the same process, or in the process that
    the outputs were sent to.
    """
    calls: dict[int, list[Span]] = {}
    for span in trace.named(_OUTPUTS):
        calls.setdefault(id(span.process), []).append(span)
    found: dict[str, int] = {}
    for step_id, process, earliest, latest in _arrivals(trace):
        own = calls.get(id(process), [])
        index = bisect_left(own, earliest, key=lambda span: span.start_ns)
        if index < len(own) and (latest is None or own[index].start_ns < latest):
            found[step_id] = own[index].duration_ns - own[index].recording_ns
    return found


def _arrivals(trace: Trace) -> Iterator[tuple[str, Process | None, int, int | None]]:
    """Yield the id of each step's span, the process that got its outputs, and the times between which they came."""
    steps = trace.named(STEP_SPAN)
    by_number = {(id(step.process), step.attributes.get(names.STEP_INDEX)): step.span_id for step in steps}
    by_process: dict[int, list[Span]] = {}
    for step in steps:
        by_process.setdefault(id(step.process), []).append(step)
    sent = set()
    for message in trace.messages:
        send, receive = message.send, message.receive
        if receive is None or send.attributes.get(names.MESSAGE_TYPE) != "OUTPUTS":
            continue
        number = send.attributes.get(names.MESSAGE_STEP)
        if number is None:  # a recording of an older version: the step that had ended
            own = by_process.get(id(send.process), [])
            ended = bisect_left(own, send.start_ns, key=lambda step: step.end_ns)
            step_id = own[ended - 1].span_id if ended else None
        else:
            step_id = by_number.get((id(send.process), number))
        if step_id is not None and step_id not in sent:
            sent.add(step_id)
            yield step_id, receive.process, receive.start_ns, None
    following: dict[int, int] = {}
    for step in reversed(steps):
        if step.span_id not in sent:
            yield step.span_id, step.process, step.end_ns, following.get(id(step.process))
        following[id(step.process)] = step.start_ns
