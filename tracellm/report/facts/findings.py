"""Findings: the moments of a run that need an explanation, each with its step.

Preemptions, aborted requests, requests that waited, prompts computed in pieces, prefix cache hits, shrinking batches,
slow first tokens and slow steps. A report shows them first, since they answer the questions that people open it with.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any

from tracellm.report.facts.engines import EngineFacts, engines
from tracellm.report.facts.requests import RequestsByStep, request_times
from tracellm.report.facts.steps.parts import parts_by_step
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace
from tracellm.trace.replay import BlockReplay
from tracellm.trace.steps import Held, Step

__all__ = ["Finding", "findings"]

SLOW = 2.0
"""A first token is slow if it took this many times the median."""
SLOW_STEP = 4.0
"""A step is slow if it took this many times the median of its kind."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One moment: its `kind` is the key of its text, `held` the recorded reason if there is one.

    `engine` is the engine's index in `engines`, `step` the number of its step. `request_id` is empty for a batch.
    """

    kind: str
    engine: int
    step: int
    request_id: str
    values: dict[str, Any]
    held: Held | None = None


@per_trace
def findings(trace: Trace) -> tuple[Finding, ...]:
    """Return all findings, kind by kind: preemptions and aborts in order, of other kinds the largest first."""

    def each(kind: Callable[[int, EngineFacts], Iterable[Finding]]) -> Iterable[Finding]:
        return chain.from_iterable(kind(number, engine) for number, engine in enumerate(engines(trace)))

    return (
        *each(_preemptions),
        *_aborts(trace),
        *each(_waits),
        *each(_pieces),
        *_hits(trace),
        *each(_shrinking),
        *_slow_first_tokens(trace),
        *_slow_steps(trace),
    )


def _preemptions(number: int, engine: EngineFacts) -> Iterable[Finding]:
    """Yield a finding for each preemption, with the tokens that had to be computed again."""
    computed: dict[str, int] = {}
    resumed: dict[tuple[str, int], tuple[Step, int]] = {}
    begun: dict[str, int] = {}
    preempted: list[tuple[str, Step, int, int]] = []
    replay = BlockReplay(engine.block_size, prefix_caching=engine.prefix_caching)
    for step in engine.steps:
        for request_id in step.preempted:
            blocks = len(replay.tables.get(request_id, ()))
            preempted.append((request_id, step, computed.get(request_id, 0), blocks))
            begun[request_id] = step.index
        replay.apply(step)
        for request in step.requests:
            if request.request_id in step.resumed and request.request_id in begun:
                resumed[request.request_id, begun[request.request_id]] = step, request.prefix_hit_tokens
            computed[request.request_id] = request.num_computed + request.num_tokens
    for request_id, step, tokens, blocks in preempted:
        values = {"tokens": tokens, "blocks": blocks}
        if (back := resumed.get((request_id, step.index))) is not None:
            values |= {
                "resumed": back[0].index,
                "after": back[0].index - step.index,
                "cached": back[1],
                "again": max(0, tokens - back[1]),
            }
        yield Finding("preempted", number, step.index, request_id, values, _held(step, request_id))


def _aborts(trace: Trace) -> Iterable[Finding]:
    """Yield a finding for each request that was aborted, with its numbers of sampled and delivered tokens, if known.

    The output processor has the engine core abort a request in whose text it found a stop string: `stopped`, not
    `aborted`.
    """
    for number, engine in enumerate(engines(trace)):
        by_step = RequestsByStep(trace)
        sampled: Counter[str] = Counter()
        for step in engine.steps:
            for request_id in step.aborted:  # before `enter`: a later request may have the same id
                request = by_step.get(request_id)
                delivered = request.output_tokens if request else None
                values = {
                    "tokens": sampled[request_id],
                    "reason": (request and request.finish_reason) or "",
                    "delivered": None if delivered is None else min(delivered, sampled[request_id]),
                }
                kind = "stopped" if values["reason"] == "stop" else "aborted"
                yield Finding(kind, number, step.index, request_id, values)
            by_step.enter(step)
            for request_id in (*step.new, *step.aborted):
                del sampled[request_id]
            sampled.update(token.request_id for token in step.sampled)


def _waits(number: int, engine: EngineFacts) -> Iterable[Finding]:
    """Return a finding for each request that waited before its first tokens were computed, with its longest reason."""
    waiting: dict[str, list[tuple[Step, Held | None]]] = {}
    done: set[str] = set()
    found = []
    for step in engine.steps:
        for request in step.requests:
            if request.request_id not in done and (waited := waiting.pop(request.request_id, None)):
                lasted = Counter(held.reason for _, held in waited if held is not None)
                reason = max(lasted, key=lambda one: lasted[one], default="")
                at, held = next((one for one in waited if one[1] and one[1].reason == reason), waited[0])
                values = {"steps": len(waited), "mostly": lasted[reason]}
                found.append(Finding("waited", number, at.index, request.request_id, values, held))
            done.add(request.request_id)
        reasons = {held.request_id: held for held in step.held}
        for request_id in step.waiting:
            if request_id not in done:
                waiting.setdefault(request_id, []).append((step, reasons.get(request_id)))
    return sorted(found, key=lambda finding: -finding.values["steps"])


def _shrinking(number: int, engine: EngineFacts) -> Iterable[Finding]:
    """Yield a finding if the batch fell below half of its largest size for the last fifth of the steps or more."""
    sizes = [len(step.requests) for step in engine.steps]
    largest = max(sizes)
    last = max(i for i, size in enumerate(sizes) if 2 * size >= largest)
    if largest > 1 and len(sizes) - last - 1 >= max(2, len(sizes) // 5):
        step = engine.steps[last + 1]
        values = {"size": sizes[last + 1], "largest": largest, "steps": len(sizes) - last - 1}
        yield Finding("shrinking", number, step.index, "", values)


def _pieces(number: int, engine: EngineFacts) -> Iterable[Finding]:
    """Yield a finding for each prompt that was computed in more than one step, without preemption."""
    chunks: dict[str, list[int]] = {}
    begun: dict[str, Step] = {}
    for step in engine.steps:
        for request_id in (*step.preempted, *step.finished):
            chunks.pop(request_id, None)
        for request in step.requests:
            own = chunks.get(request.request_id)
            if request.phase == "prefill":
                if request.request_id in step.new:
                    chunks[request.request_id], begun[request.request_id] = [request.num_tokens], step
                elif own is not None:
                    own.append(request.num_tokens)
            elif own is not None:
                del chunks[request.request_id]
                if len(own) > 1:
                    start = begun[request.request_id]
                    values = {"chunks": len(own), "sizes": " + ".join(map(str, own))}
                    held = _held(start, request.request_id)
                    yield Finding("pieces", number, start.index, request.request_id, values, held)


def _hits(trace: Trace) -> Iterable[Finding]:
    """Return a finding for each prefix cache hit of a request that begins, with the prompt tokens that it left."""
    found = []
    for number, engine in enumerate(engines(trace)):
        by_step = RequestsByStep(trace)
        for step in engine.steps:
            by_step.enter(step)
            for scheduled in step.requests:
                if scheduled.prefix_hit_tokens and scheduled.request_id in step.new:
                    request = by_step.get(scheduled.request_id)
                    prompt = request.input_tokens if request else None
                    values = {
                        "tokens": scheduled.prefix_hit_tokens,
                        "blocks": len(scheduled.cached_blocks),
                        "size": engine.block_size,
                        "rest": None if prompt is None else prompt - scheduled.prefix_hit_tokens,
                    }
                    found.append(Finding("hit", number, step.index, scheduled.request_id, values))
    return sorted(found, key=lambda finding: (finding.engine, -finding.values["tokens"]))


def _slow_first_tokens(trace: Trace) -> Iterable[Finding]:
    """Yield a finding for each request whose first token took more than SLOW times the median."""
    times = request_times(trace)
    begun: dict[str, tuple[int, Step, str]] = {}
    for number, engine in enumerate(engines(trace)):
        by_step = RequestsByStep(trace)
        for step in engine.steps:
            by_step.enter(step)
            for scheduled in step.requests:
                if (request := by_step.get(scheduled.request_id)) is not None:
                    begun.setdefault(request.span_id, (number, step, request.id))
    waited = {span_id: first for span_id in begun if (first := times[span_id].first_token) is not None}
    if len(waited) < 3:
        return
    middle = median(waited.values())
    for span_id, first in sorted(waited.items(), key=lambda one: -one[1]):
        if first > SLOW * middle:
            number, step, request_id = begun[span_id]
            values = {"time": first, "median": middle, "queued": times[span_id].queued or 0.0}
            yield Finding("slow", number, step.index, request_id, values)


def _slow_steps(trace: Trace) -> Iterable[Finding]:
    """Yield a finding for each step that took more than SLOW_STEP times the median of its kind, with its longest part.

    The first step of each kind is left out, as it warms up.
    """
    parts = parts_by_step(trace)
    slow = []
    for number, engine in enumerate(engines(trace)):
        kinds: dict[str, list[Step]] = {}
        for step in engine.steps:
            if not step.span.open:
                kinds.setdefault(step.kind, []).append(step)
        for kind, steps in kinds.items():
            middle = median(step.span.duration_ns for step in steps)
            for step in steps[1:]:
                if step.span.duration_ns > SLOW_STEP * middle:
                    own = parts.get(step.span.span_id) or {"other": step.span.duration_ns}
                    part = max(own, key=lambda name: own[name])
                    function, most = _longest_own(trace, step.span)
                    values = {"time": step.span.duration_ns / 1e9, "median": middle / 1e9, "part_time": own[part] / 1e9,
                              "kind": kind, "part": part, "function": function, "own": most / 1e9}  # fmt: skip
                    slow.append(Finding("slow_step", number, step.index, "", values))
    return sorted(slow, key=lambda finding: -finding.values["time"])


def _longest_own(trace: Trace, step: Span) -> tuple[str, int]:
    """Return the function with the most own time in a step's calls, and that time in nanoseconds."""
    own: Counter[str] = Counter()
    todo = [step]
    while todo:
        span = todo.pop()
        calls = trace.children(span)
        own[span.name] += span.duration_ns - sum(call.duration_ns for call in calls)
        todo += calls
    return own.most_common(1)[0]


def _held(step: Step, request_id: str) -> Held | None:
    return next((held for held in step.held if held.request_id == request_id), None)
