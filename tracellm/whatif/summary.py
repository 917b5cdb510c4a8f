"""A variant beside its recording, in words and numbers: what `tracellm whatif` prints."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tracellm.report.steps_table import step_text
from tracellm.report.texts import Language, text
from tracellm.report.wording.blocks import Column, Table, plain, wrapped
from tracellm.report.wording.safe_text import visible
from tracellm.whatif.variant import EngineVariant, decisions, first_difference
from tracellm.whatif.workload import Schedule

__all__ = ["Totals", "summary", "totals"]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the steps of one engine.

    A batch is the requests of a step. `first_tokens` has, for each request that got a token, the steps from its arrival
    to its first token, that step included.
    """

    steps: int
    tokens: int
    batches: tuple[int, ...]
    preemptions: int
    recomputed: int
    prefix_hits: int
    first_tokens: tuple[int, ...]


def totals(schedule: Schedule) -> Totals:
    """Return the totals of an engine's steps."""
    steps = schedule.steps
    reached: dict[str, int] = {}
    recomputed = 0
    for step in steps:
        for request_id in (*step.finished, *step.aborted):
            reached.pop(request_id, None)
        for one in step.requests:
            before = reached.get(one.request_id, 0)
            end = one.num_computed + one.num_tokens
            recomputed += max(0, min(before, end) - one.num_computed)
            reached[one.request_id] = max(before, end)
    sampled: dict[str, list[int]] = {}
    for position, step in enumerate(steps):
        for drawn in step.sampled:
            sampled.setdefault(drawn.request_id, []).append(position)
    first_tokens = []
    for request, arrival in schedule.arrivals:
        first = next((position for position in sampled.get(request.id, ()) if position >= arrival), None)
        if first is not None:
            first_tokens.append(first - arrival + 1)
    return Totals(
        steps=len(steps),
        tokens=sum(step.num_tokens for step in steps),
        batches=tuple(len(step.requests) for step in steps if step.requests),
        preemptions=sum(len(step.preempted) for step in steps),
        recomputed=recomputed,
        prefix_hits=sum(one.prefix_hit_tokens for step in steps for one in step.requests),
        first_tokens=tuple(first_tokens),
    )


def summary(name: str, variants: Sequence[EngineVariant], lang: Language, width: int) -> str:
    """Return the comparison as plain text, lines of at most `width` columns."""
    parts = [f"== {text(lang, 'whatif.title', name=name)} =="]
    for number, variant in enumerate(variants, 1):
        if len(variants) > 1:
            process = visible(variant.process.name if variant.process else "")
            parts.append(text(lang, "page.engine.name", n=number, process=process))
        parts += [plain([_table(variant, lang)], width), *_difference(variant, lang, width)]
    notes = ["arrivals"]
    if any(not request.has_all_tokens for variant in variants for request in variant.workload.requests):
        notes.append("placeholders")
    parts += ["\n".join(wrapped(text(lang, f"whatif.{note}"), width)) for note in notes]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(variant: EngineVariant, lang: Language) -> Table:
    a, b = totals(variant.workload.recorded), totals(variant.replayed)
    heads = (text(lang, f"whatif.{head}") for head in ("recorded", "replayed"))
    numbers = {
        "steps": (a.steps, b.steps),
        "tokens": (a.tokens, b.tokens),
        "batch_mean": (_mean(a.batches), _mean(b.batches)),
        "batch_max": (max(a.batches, default=0), max(b.batches, default=0)),
        "preemptions": (a.preemptions, b.preemptions),
        "recomputed": (a.recomputed, b.recomputed),
        "prefix_hits": (a.prefix_hits, b.prefix_hits),
        "first_mean": (_mean(a.first_tokens), _mean(b.first_tokens)),
        "first_max": (max(a.first_tokens, default=0), max(b.first_tokens, default=0)),
    }
    return Table(
        (Column(""), *(Column(head, number=True) for head in heads)),
        tuple(
            ([text(lang, f"whatif.{key}")], [_written(one)], [_written(other)]) for key, (one, other) in numbers.items()
        ),
    )


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0


def _written(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def _difference(variant: EngineVariant, lang: Language, width: int) -> Iterator[str]:
    """Yield the first step that differs in both schedules, and how faithful the replay is if it is not exact."""
    recorded, replayed = variant.workload.recorded.steps, variant.replayed.steps
    position = first_difference(recorded, replayed, decisions)
    if position is None:
        yield text(lang, "whatif.same")
    else:
        yield text(lang, "whatif.first", n=recorded[0].index + position)
        for key, steps in (("recorded", recorded), ("replayed", replayed)):
            lines = [text(lang, f"whatif.{key}") + text(lang, "whatif.colon")]
            if position < len(steps):
                before = steps[position - 1] if position else None
                lines += [f"  {line}" for line in step_text(steps[position], before, lang, width - 2)]
            else:
                lines.append(f"  {text(lang, 'whatif.no_step')}")
            yield "\n".join(lines)
    if variant.unfaithful is not None:
        yield "\n".join(wrapped(text(lang, "whatif.unfaithful", n=variant.unfaithful), width))
