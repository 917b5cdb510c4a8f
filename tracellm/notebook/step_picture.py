"""One step for a notebook cell: token budget, queues with reasons, and the KV cache as a map of blocks.

The HTML is static: tables and SVG, which load nothing and need no script. Colours of requests are those of the report
page, in the order of submission (Okabe and Ito's, for colour-blind readers); labels have the same facts.
"""

from collections.abc import Iterator, Sequence
from html import escape

from tracellm.notebook.steps import RunStep
from tracellm.report.texts import Language, text
from tracellm.report.wording.quantities import clip
from tracellm.report.wording.request_names import without_shared_beginning
from tracellm.report.wording.safe_text import visible

__all__ = ["step_html"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#3a86c8", "#7a4fbf", "#5f6672")
_MOST_REQUESTS = 32
_MOST_BLOCKS = 512
_CELL = 30
_LONGEST_LABEL = 4
_PER_LINE = 24


def step_html(step: RunStep, order: Sequence[str], lang: Language) -> str:
    """Return a step as HTML; `order` has all requests of the run, which gives them their colours."""
    colours = {request_id: COLOURS[place % len(COLOURS)] for place, request_id in enumerate(order)}
    title = f"{text(lang, 'page.step', n=step.number)} · {text(lang, f'step.kind.{step.kind}')}"
    labels = dict(zip(order, without_shared_beginning([visible(request_id) for request_id in order]), strict=True))
    return (
        '<div style="border:1px solid rgba(128,128,128,.4);border-radius:8px;padding:12px 16px;overflow-x:auto">'
        f'<p style="margin:0 0 8px"><strong>{escape(title)}</strong></p>'
        f"{_budget(step, colours, lang)}{_queues(step, colours, lang)}{_blocks(step, colours, labels, lang)}</div>"
    )


def _budget(step: RunStep, colours: dict[str, str], lang: Language) -> str:
    """Return a bar of the token budget, decodes first, as the scheduler fills it."""
    values = {"used": step.tokens, "budget": step.budget, "prefill": step.prefill, "decode": step.decode}
    sentence = text(lang, "page.budget.sum", **values)
    whole = max(step.budget, step.tokens, 1)
    bars, x = [], 0.0
    for request_id in sorted(step.scheduled, key=lambda one: step.phases[one] != "decode"):
        width = 720 * step.scheduled[request_id] / whole
        title = f"{visible(request_id)}: {step.scheduled[request_id]:,}"
        bars.append(
            f'<rect x="{x:.2f}" width="{width:.2f}" height="16" fill="{colours.get(request_id, "#888")}">'
            f"<title>{escape(title)}</title></rect>"
        )
        x += width
    return (
        f'<p style="margin:0 0 4px"><strong>{escape(text(lang, "page.budget"))}</strong> {escape(sentence)}</p>'
        '<svg width="722" height="18" viewBox="0 0 722 18" style="max-width:none;height:18px" role="img" '
        f'aria-label="{escape(sentence)}"><g transform="translate(1 1)">{"".join(bars)}'
        '<rect width="720" height="16" fill="none" stroke="currentColor" stroke-opacity=".5"/></g></svg>'
    )


def _queues(step: RunStep, colours: dict[str, str], lang: Language) -> str:
    """Return the running and the waiting requests as a table, each with what it does or why it waits."""
    rows = []
    heads = ((text(lang, "page.running", n=len(step.running)), step.running),
             (text(lang, "page.waiting", n=step.num_waiting), step.waiting))  # fmt: skip
    for head, queue in heads:
        shown, more = clip(queue, _MOST_REQUESTS)
        more += step.num_waiting - len(step.waiting) if queue is step.waiting else 0
        rows.append(f'<tr style="background:none"><th colspan="2" style="text-align:left">{escape(head)}</th></tr>')
        for request_id in shown:
            rows.append(
                '<tr style="background:none"><td style="text-align:left;padding:1px 16px 1px 0">'
                f'<span style="color:{colours.get(request_id, "#888")}">■</span> {escape(visible(request_id))}</td>'
                f'<td style="text-align:left;padding:1px 0">{escape(" · ".join(_notes(step, request_id, lang)))}'
                "</td></tr>"
            )
        if more:
            rows.append(f'<tr><td colspan="2">{escape(text(lang, "page.more", n=more))}</td></tr>')
    return f'<table style="border:none;margin:8px 0 0;color:inherit;font:inherit">{"".join(rows)}</table>'


def _notes(step: RunStep, request_id: str, lang: Language) -> Iterator[str]:
    if (positions := step.positions.get(request_id)) is not None:
        yield text(lang, f"page.{step.phases[request_id]}")
        key = "page.token.at" if len(positions) == 1 else "page.tokens.at"
        yield text(lang, key, n=len(positions), **{"from": positions[0], "to": positions[-1]})
    if request_id in step.preempted:
        yield text(lang, "page.preempted")
    if (why := step.reasons.get(request_id)) is not None:
        yield why


def _blocks(step: RunStep, colours: dict[str, str], labels: dict[str, str], lang: Language) -> str:
    """Return the KV cache as a map: a cell for each block up to the last one in use or cached."""
    owners: dict[int, list[str]] = {}
    for request_id, table in step.kv_blocks.items():
        for block in table:
            owners.setdefault(block, []).append(request_id)
    cached = set(step.cached_blocks)
    counts = {"used": step.total_blocks - step.free_blocks, "total": step.total_blocks, "free": step.free_blocks}
    sentence = text(lang, "page.blocks.sum", **counts, cached=len(cached - owners.keys()))
    last = min(max([*owners, *cached, 0]), _MOST_BLOCKS)
    cells = []
    for block in range(last + 1):
        own = owners.get(block, [])
        x, y = block % _PER_LINE * _CELL, block // _PER_LINE * _CELL
        fill = "none" if not own else colours.get(own[0], "#888") if len(own) == 1 else "#333"
        label = (
            "∅"
            if block == 0
            else labels.get(own[0], own[0])[-_LONGEST_LABEL:]
            if len(own) == 1
            else f"×{len(own)}"
            if own
            else ""
        )
        dashed = ' stroke-dasharray="3 2"' if block in cached and not own else ""
        title = f"{block}: {', '.join(map(visible, own))}".rstrip(": ")
        cells.append(
            f'<g transform="translate({x + 1} {y + 1})"><title>{escape(title)}</title><rect width="{_CELL - 3}" '
            f'height="{_CELL - 3}" rx="3" fill="{fill}" stroke="currentColor" stroke-opacity=".4"{dashed}/>'
            f'<text x="3" y="9" font-size="8" fill="{"#fff" if own else "currentColor"}" opacity=".8">{block}</text>'
            f'<text x="13" y="22" font-size="10" text-anchor="middle" fill="{"#fff" if own else "currentColor"}">'
            f"{escape(label)}</text></g>"
        )
    width, height = _PER_LINE * _CELL, (last // _PER_LINE + 1) * _CELL
    return (
        f'<p style="margin:8px 0 4px"><strong>{escape(text(lang, "page.blocks"))}</strong> {escape(sentence)}</p>'
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'style="max-width:none;height:{height}px" role="img" aria-label="{escape(sentence)}" '
        f'font-family="monospace">{"".join(cells)}</svg>'
    )
