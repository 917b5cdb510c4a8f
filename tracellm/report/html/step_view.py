"""The page's table of steps: a row for each step with a change, and one for each run of alike steps."""

from collections.abc import Mapping, Sequence
from typing import Any

from tracellm.report.steps_table import StepRow, blocks_of, drawn_from, engine_of, step_rows
from tracellm.report.texts import text
from tracellm.report.wording.changes import changes
from tracellm.report.wording.quantities import clip, duration, percent
from tracellm.report.wording.safe_text import beginning, shorten, visible
from tracellm.report.wording.titles import step_kind, time
from tracellm.trace.model import Trace
from tracellm.trace.steps import Sampled, Step

__all__ = ["steps_view"]

MOST_ROWS = 400
MOST_REQUESTS = 8
MOST_TOKENS = 40
"""Tokens of one request in one row."""
MOST_TOKENS_IN_ALL = 5000
"""Tokens of all rows: each has its candidates, and a browser must be able to open the page."""
MOST_BLOCKS = 120
"""Characters of one list of blocks."""
MOST_CHARACTERS = 24
"""Characters of one token."""
LONGEST_ID = 14
"""Characters of a request's id in the narrow column; the changes beside it have the whole ids."""


def steps_view(trace: Trace, lang: str) -> dict[str, Any]:
    """Return the rows of the table, and the number of rows left out."""
    shown, more = clip(step_rows(trace), MOST_ROWS)
    rows = []
    room = MOST_TOKENS_IN_ALL
    for row in shown:
        rows.append(_row(row, lang, room))
        room -= sum(len(line["tokens"]) for line in rows[-1]["sampled"])
    return {"steps": rows, "more_steps": more}


def _row(row: StepRow, lang: str, room: int) -> dict[str, Any]:
    first, last, alike = row.steps[0], row.steps[-1], len(row.steps)
    used = last.blocks_total - last.blocks_free
    known = first.kind != "unknown"
    each = duration(row.duration_ns / alike / 1e9)
    how = {request.request_id: drawn_from(request.processors, request.tokens_left, lang) for request in row.requests()}
    sampled, more_sampled = _sampled(row.steps, how, lang, room)
    return {
        "engine": engine_of(row, lang),
        "index": row.indexes,
        "kind": first.kind if first.kind in ("prefill", "decode", "mixed") else "empty",
        "kind_name": step_kind(first.kind, lang),
        "requests": _names([request.request_id for request in first.requests], lang),
        "tokens": f"{row.num_tokens:,}" if known else "?",
        "tokens_each": _each(row, lang) if known else "",
        "blocks": f"{used:,} / {last.blocks_total:,}" if known else "?",
        "blocks_width": max(1, round(20 * used / last.blocks_total)) if 0 < used <= last.blocks_total else 0,
        "time": duration(row.duration_ns / 1e9),
        "time_each": "" if alike == 1 else text(lang, "html.steps.each", amount=each),
        "recording": text(lang, "html.steps.recording", time=time(row.recording_ns)) if row.recording_ns else "",
        "new_blocks": _new_blocks(row, lang),
        "changes": changes(first, lang, row.before),
        "sampled": sampled,
        "more_sampled": more_sampled,
    }


def _new_blocks(row: StepRow, lang: str) -> list[dict[str, str]]:
    """Return the KV cache blocks that each request got, by their ids; requests without any are left out."""
    found = [
        {"request": visible(request.request_id), "blocks": text(lang, "diagram.comma").join(parts)}
        for request in row.requests()
        if (parts := [shorten(each, MOST_BLOCKS) for each in blocks_of(request, lang)])
    ]
    shown, more = clip(found, MOST_REQUESTS)
    return [*shown, {"request": "", "blocks": text(lang, "html.more", n=more)}] if more else shown


def _each(row: StepRow, lang: str) -> str:
    """Return the number of tokens per step of several steps; empty for one step, or if the numbers differ."""
    different = {step.num_tokens for step in row.steps}
    if len(row.steps) == 1 or len(different) > 1:
        return ""
    return text(lang, "html.steps.each", amount=f"{different.pop():,}")


def _names(ids: Sequence[str], lang: str) -> str:
    shown, more = clip(ids, MOST_REQUESTS)
    names = text(lang, "step.comma").join(beginning(id, LONGEST_ID) for id in shown)
    return text(lang, "html.steps.ids_more", ids=names, n=more) if more else names


def _sampled(run: Sequence[Step], how: Mapping[str, str], lang: str, room: int) -> tuple[list[dict[str, Any]], int]:
    """Return a line of tokens for each request, `room` tokens at most, and the number of requests left out."""
    tokens: dict[str, list[Sampled]] = {request.request_id: [] for request in run[0].requests}
    for step in run:
        for sampled in step.sampled:
            tokens.setdefault(sampled.request_id, []).append(sampled)
    shown, more = clip([(request, drawn) for request, drawn in tokens.items() if drawn], MOST_REQUESTS)
    lines = []
    for request, drawn in shown:
        some, left = clip(drawn, MOST_TOKENS)
        if len(some) > room:
            some, left = some[:room], len(drawn) - room
        room -= len(some)
        views = [_token_view(sampled, lang) for sampled in some]
        lines.append({"request": visible(request), "tokens": views, "more": left, "how": how.get(request, "")})
    return lines, more


def _token_view(sampled: Sampled, lang: str) -> dict[str, Any]:
    return {
        "text": "•" if sampled.text is None else _token(sampled.text),
        "probability": "" if sampled.probability is None else percent(sampled.probability),
        "candidates": _candidates(sampled, lang),
    }


def _candidates(sampled: Sampled, lang: str) -> list[str]:
    """Return the model's most likely tokens, and the tokens that the choice was made from, if others."""
    parts = []
    drawn = [] if sampled.drawn_listed == sampled.listed else sampled.drawn_candidates
    for key, candidates in (("model", sampled.candidates), ("drawn", drawn)):
        listed = text(lang, "step.comma").join(
            f"{_token(piece)} {percent(probability)}" for _, piece, probability in candidates if probability
        )
        if listed:
            parts.append(text(lang, f"html.candidates.{key}", tokens=listed))
    return parts


def _token(token: str) -> str:
    """Return a token's text with visible blanks."""
    return visible(shorten(token, MOST_CHARACTERS)).replace(" ", "␣") or "∅"
