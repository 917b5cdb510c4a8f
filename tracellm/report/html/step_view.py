"""The table of steps: a row for each step in which something changed, and one for each run of alike steps."""

from collections.abc import Sequence
from typing import Any

from tracellm.report.changes import changes
from tracellm.report.quantities import clip, duration, percent
from tracellm.report.steps import StepRow, step_rows
from tracellm.report.texts import text
from tracellm.report.titles import step_kind
from tracellm.report.visible import shorten, visible
from tracellm.trace.model import Trace
from tracellm.trace.steps import Step

__all__ = ["steps_view"]

MOST_ROWS = 400
MOST_REQUESTS = 8
MOST_TOKENS = 40
"""Of one request in one row."""
MOST_CHARACTERS = 24
"""Of one token."""


def steps_view(trace: Trace, lang: str) -> dict[str, Any]:
    """The rows of the table, and how many were too many."""
    shown, more = clip(step_rows(trace), MOST_ROWS)
    return {"steps": [_row(row, lang) for row in shown], "more_steps": more}


def _row(row: StepRow, lang: str) -> dict[str, Any]:
    first, last, alike = row.steps[0], row.steps[-1], len(row.steps)
    used = last.blocks_total - last.blocks_free
    each = duration(row.duration_ns / alike / 1e9)
    sampled, more_sampled = _sampled(row.steps, lang)
    return {
        "index": row.indexes,
        "kind": first.kind if first.kind in ("prefill", "decode", "mixed") else "empty",
        "kind_name": step_kind(first.kind, lang),
        "requests": _names([request.request_id for request in first.requests], lang),
        "tokens": f"{row.num_tokens:,}",
        "blocks": f"{used:,} / {last.blocks_total:,}",
        "blocks_width": max(1, round(20 * used / last.blocks_total)) if 0 < used <= last.blocks_total else 0,
        "time": each if alike == 1 else text(lang, "html.steps.each", time=each),
        "changes": changes(first, lang, row.before),
        "sampled": sampled,
        "more_sampled": more_sampled,
    }


def _names(ids: Sequence[str], lang: str) -> str:
    shown, more = clip(ids, MOST_REQUESTS)
    names = text(lang, "step.comma").join(map(visible, shown))
    return text(lang, "html.steps.ids_more", ids=names, n=more) if more else names


def _sampled(run: Sequence[Step], lang: str) -> tuple[list[dict[str, Any]], int]:
    """A line of tokens for each request, and how many requests were too many."""
    tokens: dict[str, list[dict[str, str]]] = {request.request_id: [] for request in run[0].requests}
    for step in run:
        for one in step.sampled:
            shown_text = "•" if one.text is None else _token(one.text)
            probability = percent(one.probability) if one.probability is not None else ""
            tokens.setdefault(one.request_id, []).append({"text": shown_text, "probability": probability})
    shown, more = clip([(request, said) for request, said in tokens.items() if said], MOST_REQUESTS)
    lines = []
    for request, said in shown:
        some, left = clip(said, MOST_TOKENS)
        lines.append({"request": visible(request), "tokens": some, "more": left})
    return lines, more


def _token(token: str) -> str:
    """A token's text with its blanks to be seen."""
    return visible(shorten(token, MOST_CHARACTERS)).replace(" ", "␣") or "∅"
