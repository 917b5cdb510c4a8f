"""Findings: the moments of a run that need an explanation, each with its step.

Preemptions, requests that waited, prompts computed in pieces, prefix cache hits, shrinking batches and slow first
tokens. A report shows them first, since they answer the questions that people open it with.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from tracellm.report.facts.engines import EngineFacts, engines
from tracellm.report.facts.requests import RequestsByStep, request_times
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.steps import Held, Step

__all__ = ["Finding", "findings"]

SLOW = 2.0
"""A first token is slow if it took this many times the median."""


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
    """Return all findings, engine by engine, kind by kind, each kind in the order of the steps."""
    found: list[Finding] = []
    for number, engine in enumerate(engines(trace)):
        for kind in (_preemptions, _waits, _pieces, _hits, _shrinking):
            found += kind(number, engine)
    return (*found, *_slow_first_tokens(trace))


def _preemptions(number: int, engine: EngineFacts) -> Iterable[Finding]:
    """Yield a finding for each preemption, with the tokens that had to be computed again."""
    computed: dict[str, int] = {}
    hits: dict[tuple[str, int], int] = {}
    begun: dict[str, int] = {}
    preempted: list[tuple[str, Step, int]] = []
    for step in engine.steps:
        for request_id in step.preempted:
            preempted.append((request_id, step, computed.get(request_id, 0)))
            begun[request_id] = step.index
        for request in step.requests:
            if request.request_id in step.resumed and request.request_id in begun:
                hits[request.request_id, begun[request.request_id]] = request.prefix_hit_tokens
            computed[request.request_id] = request.num_computed + request.num_tokens
    for request_id, step, tokens in preempted:
        values = {"tokens": tokens, "cached": hits.get((request_id, step.index), 0)}
        yield Finding("preempted", number, step.index, request_id, values, _held(step, request_id))


def _waits(number: int, engine: EngineFacts) -> Iterable[Finding]:
    """Yield a finding for each request that waited before its first tokens were computed, with its longest reason."""
    waiting: dict[str, list[tuple[Step, Held | None]]] = {}
    done: set[str] = set()
    for step in engine.steps:
        for request in step.requests:
            if request.request_id not in done and (waited := waiting.pop(request.request_id, None)):
                lasted = Counter(held.reason for _, held in waited if held is not None)
                reason = max(lasted, key=lambda one: lasted[one], default="")
                at, held = next((one for one in waited if one[1] and one[1].reason == reason), waited[0])
                values = {"steps": len(waited), "mostly": lasted[reason]}
                yield Finding("waited", number, at.index, request.request_id, values, held)
            done.add(request.request_id)
        reasons = {held.request_id: held for held in step.held}
        for request_id in step.waiting:
            if request_id not in done:
                waiting.setdefault(request_id, []).append((step, reasons.get(request_id)))


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


def _hits(number: int, engine: EngineFacts) -> Iterable[Finding]:
    """Yield a finding for each prefix cache hit of a request that begins."""
    for step in engine.steps:
        for request in step.requests:
            if request.prefix_hit_tokens and request.request_id in step.new:
                values = {"tokens": request.prefix_hit_tokens, "blocks": len(request.cached_blocks)}
                yield Finding("hit", number, step.index, request.request_id, values | {"size": engine.block_size})


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
    for span_id, first in waited.items():
        if first > SLOW * middle:
            number, step, request_id = begun[span_id]
            values = {"time": first, "median": middle, "queued": times[span_id].queued or 0.0}
            yield Finding("slow", number, step.index, request_id, values)


def _held(step: Step, request_id: str) -> Held | None:
    return next((held for held in step.held if held.request_id == request_id), None)
