"""Requests for a notebook cell, as the report's table: lengths, cache hits, times, preemptions and finish reasons."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from tracellm.notebook.rows import MOST_ROWS, html_table, text_table
from tracellm.report.texts import Language, text
from tracellm.report.wording.changes import finish_reason
from tracellm.report.wording.quantities import duration
from tracellm.report.wording.safe_text import shorten, visible

if TYPE_CHECKING:
    from tracellm.notebook.requests import RunRequest

__all__ = ["request_html", "request_text", "requests_html", "requests_text"]

_COLUMNS = ("id", "prompt", "hit", "output", "queued", "prefill", "first", "decode", "preemptions", "reason")
_LEFT = [name in ("id", "reason") for name in _COLUMNS]
_LONGEST_ID = 40
_LONGEST_TEXT = 400


def requests_text(requests: "Sequence[RunRequest]", lang: Language) -> str:
    """Return a line for each request, below the names of the columns."""
    return "\n".join([*text_table(_table(requests, lang), _LEFT), *_more(requests, lang)])


def requests_html(requests: "Sequence[RunRequest]", lang: Language) -> str:
    """Return the requests as an HTML table with styles of its own."""
    more = "".join(f"<p>{escape(line)}</p>" for line in _more(requests, lang))
    return html_table(_table(requests, lang), _LEFT) + more


def request_text(request: "RunRequest", lang: Language) -> str:
    """Return one request as text: its row, its prompt and output, its stages and its tokens."""
    texts = (f"{name}: {content}" for name, content in _texts(request, lang))
    return "\n\n".join([requests_text([request], lang), *texts, str(request.timeline), str(request.tokens)])


def request_html(request: "RunRequest", lang: Language) -> str:
    """Return one request as HTML without a script, its tokens folded."""
    texts = "".join(
        f'<p style="margin:4px 0"><small>{escape(name)}</small><br>'
        f'<span style="white-space:pre-wrap">{escape(content)}</span></p>'
        for name, content in _texts(request, lang)
    )
    timeline, tokens = (part._repr_mimebundle_()["text/html"] for part in (request.timeline, request.tokens))
    title = f'<summary style="cursor:pointer">{escape(text(lang, "page.requests.output"))}</summary>'
    return f"{requests_html([request], lang)}{texts}{timeline}<details>{title}{tokens}</details>"


def _texts(request: "RunRequest", lang: Language) -> list[tuple[str, str]]:
    """Return prompt and output with their names, if they were recorded."""
    found = ((text(lang, "html.prompt"), request.prompt), (text(lang, "html.output"), request.output))
    return [
        (name, visible(shorten(content, _LONGEST_TEXT), keep="\n")) for name, content in found if content is not None
    ]


def _table(requests: "Sequence[RunRequest]", lang: Language) -> list[list[str]]:
    heads = [text(lang, f"page.requests.{name}") for name in _COLUMNS]
    return [heads, *(_row(request, lang) for request in list(requests)[:MOST_ROWS])]


def _row(request: "RunRequest", lang: Language) -> list[str]:
    times = (request.queued_ms, request.prefill_ms, request.first_token_ms, request.decode_ms)
    reason = request.finish_reason
    return [
        visible(request.id if len(request.id) <= _LONGEST_ID else request.name),
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
