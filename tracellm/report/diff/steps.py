"""The steps that differ: the first of them side by side, for the others which facets."""

from collections.abc import Sequence

from tracellm.report.diff.times import RUNS
from tracellm.report.texts import text
from tracellm.report.wording.blocks import Block, Column, Heading, Paragraph, Table
from tracellm.report.wording.changes import held_reason
from tracellm.report.wording.quantities import clip
from tracellm.report.wording.safe_text import shorten, visible
from tracellm.report.wording.titles import step_kind
from tracellm.trace.compare import Comparison, StepPair
from tracellm.trace.compare.steps import FACETS
from tracellm.trace.ranges import format_ranges
from tracellm.trace.steps import Sampled, ScheduledRequest, Step

__all__ = ["differences", "lacks_sampled_tokens", "steps_part"]

_MOST_REQUESTS = 8
_MOST_RANGES = 12
_LONGEST_TEXT = 24


def steps_part(comparison: Comparison, lang: str) -> list[Block]:
    """Return the part about steps, with its heading."""
    blocks: list[Block] = [Heading(text(lang, "diff.steps"))]
    a, b = comparison.num_steps
    if not (a or b):
        return [*blocks, Paragraph(text(lang, "diff.steps.none"))]
    if not (a and b):
        run, other = RUNS if not a else reversed(RUNS)
        return [*blocks, Paragraph(text(lang, "diff.steps.none_in", run=run, other=other, n=a or b))]
    differing = comparison.different_steps
    if not differing:
        key = "diff.steps.same_without_tokens" if lacks_sampled_tokens(comparison) else "diff.steps.same"
        return [*blocks, Paragraph(text(lang, key, n=a)), *_empty(comparison, lang)]
    first = differing[0]
    sentence = text(lang, "diff.steps.differ", k=len(differing), n=max(a, b), first=first.position)
    blocks += [Paragraph(sentence), _side_by_side(first, lang)]
    if len(differing) > 1:
        blocks += _overview(differing, lang)
    if a != b:
        blocks.append(Paragraph(_only(abs(a - b), RUNS[b > a], lang)))
    return blocks + _empty(comparison, lang)


def _empty(comparison: Comparison, lang: str) -> list[Block]:
    """Return the number of steps without anything scheduled, if the runs differ in it."""
    a, b = comparison.empty_steps
    return [] if a == b else [Paragraph(text(lang, "diff.steps.empty", a=a, b=b))]


def _overview(differing: Sequence[StepPair], lang: str) -> list[Block]:
    """Return the steps of each difference, for steps of both runs."""
    both = [pair for pair in differing if pair.a is not None and pair.b is not None]
    columns = (Column(text(lang, "diff.steps.facet")), Column(text(lang, "diff.steps.where")))
    found = {facet: [pair.position for pair in both if facet in pair.differs] for facet in FACETS}
    rows = [
        ([text(lang, f"diff.steps.{facet}")], [_ranges(positions)]) for facet, positions in found.items() if positions
    ]
    return [Table(columns, tuple(rows))] if rows else []


def differences(pair: StepPair, lang: str) -> str:
    """Return the facets that differ in a pair of steps, separated by commas."""
    return text(lang, "step.comma").join(text(lang, f"diff.steps.{facet}") for facet in pair.differs)


def lacks_sampled_tokens(comparison: Comparison) -> bool:
    """Return whether one of the recordings lacks the sampled tokens."""
    both = [step for pair in comparison.steps for step in (pair.a, pair.b) if step is not None]
    return any(sampled.token_id is None for step in both for sampled in step.sampled)


def _only(count: int, run: str, lang: str) -> str:
    return text(lang, "diff.end", sentence=text(lang, "diff.steps.only", n=count, run=run))


def _ranges(positions: Sequence[int]) -> str:
    shown, more = clip(format_ranges(positions).split(","), _MOST_RANGES)
    return ", ".join([*shown, "…"] if more else shown)


def _side_by_side(pair: StepPair, lang: str) -> Table:
    columns = (Column(""), Column(""), Column("A"), Column("B"))
    rows = []
    for facet in FACETS:
        mark = "≠" if facet in pair.differs else ""
        rows.append(
            ([mark], [text(lang, f"diff.steps.{facet}")], *(_facet(step, facet, lang) for step in (pair.a, pair.b)))
        )
    held = [_held(step, lang) for step in (pair.a, pair.b)]
    if any(held):
        rows.append(([""], [text(lang, "diff.steps.held")], *held))
    return Table(columns, tuple(rows))


def _facet(step: Step | None, facet: str, lang: str) -> list[str]:
    if step is None:
        return [text(lang, "diff.steps.no_step")] if facet == "kind" else []
    match facet:
        case "kind":
            return [step_kind(step.kind, lang)]
        case "requests":
            ids, more = clip([visible(request.request_id) for request in step.requests], _MOST_REQUESTS)
            return [text(lang, "step.comma").join(ids), *_more(more, lang)]
        case "tokens":
            return _each([_tokens(request, lang) for request in step.requests], lang)
        case "blocks":
            return _each(
                [_blocks(request) for request in step.requests if request.new_blocks or request.cached_blocks], lang
            )
        case _:
            return _each([_sampled(sampled) for sampled in step.sampled], lang)


def _each(lines: list[str], lang: str) -> list[str]:
    shown, more = clip(lines, _MOST_REQUESTS)
    return [*shown, *_more(more, lang)]


def _more(more: int, lang: str) -> list[str]:
    return [text(lang, "diff.steps.more", n=more)] if more else []


def _tokens(request: ScheduledRequest, lang: str) -> str:
    last = request.num_computed + request.num_tokens - 1
    position = f"{request.num_computed}" if last <= request.num_computed else f"{request.num_computed}-{last}"
    return text(lang, "diff.steps.at", id=visible(request.request_id), n=request.num_tokens, position=position)


def _blocks(request: ScheduledRequest) -> str:
    blocks = [format_ranges(request.new_blocks)] if request.new_blocks else []
    if request.cached_blocks:
        blocks.insert(0, f"({format_ranges(request.cached_blocks)})")
    return f"{visible(request.request_id)}: {' '.join(blocks)}"


def _sampled(sampled: Sampled) -> str:
    name = visible(sampled.request_id)
    if sampled.token_id is None:
        return f"{name}: ?"
    token = "" if sampled.text is None else f' "{shorten(visible(sampled.text), _LONGEST_TEXT)}"'
    return f"{name}: {sampled.token_id}{token}"


def _held(step: Step | None, lang: str) -> list[str]:
    if step is None:
        return []
    return _each(
        [
            f"{visible(held.request_id)}: {held_reason(held.reason, held.details, lang, held.request_id)}"
            for held in step.held
        ],
        lang,
    )
