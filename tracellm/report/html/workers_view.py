"""The page's part about several workers: the blocks of `tracellm show RUN workers`, and a timeline of each rank."""

from typing import Any

from tracellm.report.facts.workers.groups import KINDS, WorkerGroup, worker_groups
from tracellm.report.texts import text
from tracellm.report.wording.blocks import Block, Table
from tracellm.report.wording.safe_text import visible
from tracellm.report.wording.titles import time
from tracellm.report.workers import parts_blocks, time_blocks
from tracellm.trace.model import Trace

__all__ = ["workers_view"]

_MOST_STEPS = 8
"""Steps with tokens of the timeline."""
_LABEL, _WIDTH, _LANE, _BAR = 130, 1000, 30, 20
"""Units of the timeline: width of the names, width of the whole, height of a rank's lane, and of its bar."""
_SHORTEST = 0.3
"""Width of the shortest interval that is drawn."""


def workers_view(trace: Trace, lang: str) -> list[dict[str, Any]]:
    """Return the workers of each engine with several."""
    groups = worker_groups(trace)
    return [
        {
            "title": "" if len(groups) == 1 else text(lang, "workers.engine", n=n),
            "parts": [_view(block) for block in parts_blocks(trace, group, lang)],
            "timeline": _timeline(group, lang) if group.steps else None,
            "times": [_view(block) for block in time_blocks(group, lang)],
        }
        for n, group in enumerate(groups, 1)
    ]


def _view(block: Block) -> dict[str, Any]:
    """Return a block for the template."""
    if isinstance(block, Table):
        return {"kind": "table", "title": block.title, "columns": block.columns, "rows": block.rows}
    return {"kind": "paragraph", "text": block.text}


def _timeline(group: WorkerGroup, lang: str) -> dict[str, Any]:
    """Return the intervals of the first steps as bars, and the number of each step at its beginning."""
    indexes = sorted({one.step.index for one in group.steps})[:_MOST_STEPS]
    work = [one for one in group.steps if one.step.index in indexes]
    first, last = work[0].step.span.start_ns, max(one.intervals[-1].end_ns for one in work)
    scale = (_WIDTH - _LABEL) / max(1, last - first)
    lanes = {part.rank: lane * _LANE for lane, part in enumerate(group.parts)}
    bars, numbers = [], []
    for one in work:
        begin = one.intervals[0].start_ns
        numbers.append({"x": round(_LABEL + (begin - first) * scale, 1), "y": lanes[one.rank], "text": one.step.index})
        for part in one.intervals:
            width = (part.end_ns - part.start_ns) * scale
            if width < _SHORTEST:
                continue
            values = {"n": one.step.index, "rank": one.rank, "what": text(lang, f"workers.{part.kind}")}
            title = text(lang, "workers.timeline.interval", **values, time=time(part.end_ns - part.start_ns))
            x = round(_LABEL + (part.start_ns - first) * scale, 1)
            bar = {"kind": part.kind, "x": x, "y": lanes[one.rank], "width": round(width, 1), "title": title}
            bars.append(bar)
    kinds = [kind for kind in KINDS if any(b["kind"] == kind for b in bars)]
    return {
        "title": text(lang, "workers.timeline", n=len(indexes)),
        "width": _WIDTH,
        "label": _LABEL,
        "height": len(lanes) * _LANE,
        "bar": _BAR,
        "bars": bars,
        "numbers": numbers,
        "ranks": [{"name": visible(part.process.name), "y": lanes[part.rank]} for part in group.parts],
        "legend": [(kind, text(lang, f"workers.{kind}")) for kind in (*kinds, "idle")],
        "span": time(last - first),
    }
