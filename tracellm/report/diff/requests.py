"""Outputs of the requests: one sentence if all are the same, else a table of those that differ."""

from collections.abc import Sequence
from itertools import zip_longest

from tracellm.report.texts import text
from tracellm.report.wording.blocks import Block, Column, Heading, Paragraph, Table
from tracellm.report.wording.quantities import clip
from tracellm.report.wording.safe_text import shorten, visible
from tracellm.trace.compare import ComparedRequest, Comparison, RequestPair

__all__ = ["requests_part"]

_MOST_ROWS = 20
_LONGEST_TEXT = 120
_MOST_NAMES = 3


def requests_part(comparison: Comparison, lang: str) -> list[Block]:
    """Return the part about requests, with its heading."""
    blocks: list[Block] = [Heading(text(lang, "diff.requests"))]
    pairs = comparison.requests
    if not pairs:
        return [*blocks, Paragraph(text(lang, "diff.requests.none"))]
    if renamed := [pair for pair in pairs if pair.a and pair.b and pair.a.id != pair.b.id]:
        ours, theirs = (
            _some([visible(request.id) for request in requests], lang) for requests in _of_each_run(renamed)
        )
        blocks.append(Paragraph(text(lang, "diff.requests.ids", a=ours, b=theirs)))
    differing = [pair for pair in pairs if pair.same_output is False or pair.same_prompt is False]
    if not differing:
        key = "same_token_count" if any(pair.same_output is None for pair in pairs) else "same"
        return [*blocks, Paragraph(text(lang, f"diff.requests.{key}", n=len(pairs)))]
    shown, more = clip(differing, _MOST_ROWS)
    heads = ("number", "what")
    columns = (*(Column(text(lang, f"diff.requests.{head}")) for head in heads), Column("A"), Column("B"))
    blocks.append(Table(columns, tuple(_row(pair, lang) for pair in shown)))
    if more:
        blocks.append(Paragraph(text(lang, "diff.end", sentence=text(lang, "diff.steps.more", n=more))))
    if rest := len(pairs) - len(differing):
        blocks.append(Paragraph(text(lang, "diff.requests.same_rest", n=rest)))
    return blocks


def _of_each_run(pairs: Sequence[RequestPair]) -> tuple[list[ComparedRequest], list[ComparedRequest]]:
    return [pair.a for pair in pairs if pair.a], [pair.b for pair in pairs if pair.b]


def _some(names: list[str], lang: str) -> str:
    shown, more = clip(names, _MOST_NAMES)
    return text(lang, "step.comma").join([*shown, "…"] if more else shown)


def _row(pair: RequestPair, lang: str) -> tuple[list[str], ...]:
    name = visible((pair.a or pair.b).id)  # type: ignore[union-attr]  # a pair has one of them at least
    return [name], _differences(pair, lang), _output(pair.a, lang), _output(pair.b, lang)


def _differences(pair: RequestPair, lang: str) -> list[str]:
    a, b = pair.a, pair.b
    if a is None or b is None:
        return [text(lang, "diff.calls.only", run="A" if b is None else "B")]
    facets = [text(lang, "diff.requests.prompt")] if pair.same_prompt is False else []
    if (at := _first_difference(a.token_ids, b.token_ids)) is not None:
        facets.append(text(lang, "diff.requests.from", n=at + 1))
    elif a.num_tokens != b.num_tokens or (a.text != b.text and None not in (a.text, b.text)):
        facets.append(text(lang, "diff.requests.output"))
    if a.finish_reason != b.finish_reason:
        facets.append(text(lang, "diff.requests.end"))
    return facets


def _first_difference(a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> int | None:
    if a is None or b is None:
        return None
    return next((at for at, (ours, theirs) in enumerate(zip_longest(a, b)) if ours != theirs), None)


def _output(request: ComparedRequest | None, lang: str) -> list[str]:
    if request is None:
        return [text(lang, "diff.runs.none")]
    ended = text(lang, "diff.requests.unended") if request.finish_reason is None else visible(request.finish_reason)
    tokens = text(lang, "common.tokens", n=request.num_tokens)
    lines = [text(lang, "diff.requests.ended", tokens=tokens, why=ended)]
    if request.text is not None:
        lines.append(f'"{shorten(visible(request.text), _LONGEST_TEXT)}"')
    return lines
