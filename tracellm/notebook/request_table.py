"""Requests for a notebook cell, as the report's table: lengths, cache hits, times, preemptions and finish reasons."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tracellm.report.texts import Language, text
from tracellm.report.wording.changes import finish_reason
from tracellm.report.wording.quantities import duration
from tracellm.report.wording.safe_text import shorten, visible

if TYPE_CHECKING:
    from tracellm.notebook.requests import RunRequest

__all__ = ["requests_html", "requests_text"]

_COLUMNS = ("id", "prompt", "hit", "output", "queued", "prefill", "first", "decode", "preemptions", "reason")
_TEXTUAL = ("id", "reason")
MOST_ROWS = 200
_LONGEST_ID = 40


def requests_text(requests: "Sequence[RunRequest]", lang: Language) -> str:
    """Return a line for each request, below the names of the columns."""
    rows = [_heads(lang), *_rows(requests, lang)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            _padded(value, width, name) for name, value, width in zip(_COLUMNS, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *_more(requests, lang)])


def requests_html(requests: "Sequence[RunRequest]", lang: Language) -> str:
    """Return the requests as an HTML table with styles of its own."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{"left" if name in _TEXTUAL else "right"};padding:2px 12px 2px 0">'
            f"{escape(value)}</{tag}>"
            for name, value in zip(_COLUMNS, row, strict=True)
        )

    rows = "".join(f'<tr style="background:none">{cells("td", row)}</tr>' for row in _rows(requests, lang))
    more = "".join(f"<p>{escape(line)}</p>" for line in _more(requests, lang))
    return (
        '<div style="overflow-x:auto"><table style="border:none;color:inherit;font:inherit">'
        f'<tr style="background:none">{cells("th", _heads(lang))}</tr>{rows}</table>{more}</div>'
    )


def _heads(lang: Language) -> list[str]:
    return [text(lang, f"page.requests.{name}") for name in _COLUMNS]


def _rows(requests: "Sequence[RunRequest]", lang: Language) -> list[list[str]]:
    return [_row(request, lang) for request in list(requests)[:MOST_ROWS]]


def _row(request: "RunRequest", lang: Language) -> list[str]:
    times = (request.queued_ms, request.prefill_ms, request.first_token_ms, request.decode_ms)
    reason = request.finish_reason
    return [
        shorten(visible(request.id), _LONGEST_ID),
        f"{request.num_prompt_tokens or 0:,}",
        f"{request.num_cached_tokens:,}",
        f"{request.num_output_tokens or 0:,}",
        *("" if time is None else duration(time / 1e3) for time in times),
        f"{request.num_preemptions:,}",
        text(lang, "page.requests.open") if reason is None else finish_reason(reason, lang),
    ]


def _more(requests: "Sequence[RunRequest]", lang: Language) -> list[str]:
    left = len(requests) - MOST_ROWS
    return [text(lang, "page.more", n=left)] if left > 0 else []


def _padded(value: str, width: int, name: str) -> str:
    blanks = " " * (width - cell_len(value))
    return value + blanks if name in _TEXTUAL else blanks + value
