"""The answer of a run for a notebook cell: outcome, figures, client and rule, times, and what needs an explanation.

The sentences are those of the report page's first part. The HTML loads nothing, and takes its colours from the page
around it; only the frame below the answer has a script.
"""

from html import escape
from typing import Any

from tracellm.report.facts.startup import client_choice, model_load, startup_spans
from tracellm.report.html.answer_view import answer_view
from tracellm.report.html.cell import cell_frame
from tracellm.report.html.run_view import client_view, run_view
from tracellm.report.texts import Language, text
from tracellm.trace.run_folder import RunFolder

__all__ = ["summary_html", "summary_text"]

_TABLE = "border:none;margin:8px 0 0;color:inherit;font:inherit"
_MOST_FINDINGS = 3
"""Findings of a kind that are shown; the report lists all."""


def summary_text(run: RunFolder, lang: Language) -> str:
    """Return the answer as lines of text, without a newline at the end."""
    view, answer = _views(run, lang)
    lines = [f"{view['title']}: {text(lang, 'html.status.' + view['status'])}"]
    lines += [
        f"  {figure['name']}: {figure['value']} {figure.get('more') or ''}".rstrip() for figure in view["figures"]
    ]
    if view["error"]:
        lines.append(f"  {view['error']['what']}")
    lines += [f"  {name}: {sentence}" for name, sentence in answer["lines"]]
    for group in answer["findings"]:
        lines.append(group["title"])
        lines += [f"  {_finding(one, lang)}" for one in group["findings"][:_MOST_FINDINGS]]
    return "\n".join(lines)


def summary_html(run: RunFolder, lang: Language) -> str:
    """Return the answer as HTML with styles of its own, and below it a frame with requests and steps."""
    view, answer = _views(run, lang)
    figures = "".join(
        f"<div><small>{escape(figure['name'])}</small><br>"
        f"<strong>{escape(figure['value'])}</strong> <small>{escape(figure.get('more') or '')}</small></div>"
        for figure in view["figures"]
    )
    rows = [*answer["lines"], *((part["name"], f"{part['time']} {part['share']}") for part in answer["times"])]
    facts = "".join(
        '<tr style="background:none;vertical-align:top">'
        f'<th style="text-align:left;padding:2px 24px 2px 0;font-weight:normal">'
        f'<small>{escape(name)}</small></th><td style="text-align:left;padding:2px 0">{escape(sentence)}</td></tr>'
        for name, sentence in rows
    )
    findings = "".join(
        f"<p style='margin:8px 0 0'><strong>{escape(group['title'])}</strong></p><ul style='margin:0'>"
        + "".join(f"<li>{escape(_finding(one, lang))}</li>" for one in group["findings"][:_MOST_FINDINGS])
        + "</ul>"
        for group in answer["findings"]
    )
    error = f"<p><strong>{escape(view['error']['what'])}</strong></p>" if view["error"] else ""
    return (
        '<div style="border:1px solid rgba(128,128,128,.4);border-radius:8px;padding:12px 16px;overflow-x:auto">'
        f"<p style='margin:0 0 8px'><strong>{escape(view['title'])}</strong> · "
        f"{escape(text(lang, 'html.status.' + view['status']))}</p>{error}"
        f'<div style="display:flex;flex-wrap:wrap;gap:8px 24px">{figures}</div>'
        f'<table style="{_TABLE}">{facts}</table>{findings}'
        f"<p style='margin:8px 0 0'><small><code>{escape(str(run.path / 'report.html'))}</code></small></p></div>"
        f"{cell_frame(run.trace, lang)}"
    )


def _finding(finding: dict[str, str], lang: Language) -> str:
    return text(lang, "cell.finding", step=finding["step"], sentence=finding["sentence"])


def _views(run: RunFolder, lang: Language) -> tuple[dict[str, Any], dict[str, Any]]:
    startup = startup_spans(run.trace)
    choice = client_choice(startup)
    client = client_view(choice, lang)
    answer = answer_view(
        run.trace,
        choice,
        model_load(startup),
        client["inputs"] if client else [],
        lang,
        seconds=run.manifest.get("duration_s"),
    )
    return run_view(run, lang), answer["answer"]
