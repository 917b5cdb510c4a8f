"""Times of both runs, side by side."""

from tracellm.report.diff.blocks import Block, Column, Heading, Table
from tracellm.report.texts import text
from tracellm.report.wording.titles import time
from tracellm.trace.compare import Comparison

__all__ = ["times_part"]


def times_part(comparison: Comparison, lang: str) -> list[Block]:
    """The part with its heading; nothing at all where neither run has any time."""
    counts = comparison.num_steps
    told = {
        "startup": [times.startup_ns for times in comparison.times],
        "requests": [times.requests_ns for times in comparison.times],
        "step": [times.steps.median_ns for times in comparison.times],
        "between": [times.between.median_ns for times in comparison.times],
        "recording": [times.recording_ns for times in comparison.times],
    }
    none = text(lang, "diff.runs.none")
    rows = {name: [[time(ns) if ns else none] for ns in both] for name, both in told.items() if any(both)}
    if any(counts):
        rows["steps"] = [[f"{count:,}"] for count in counts]
    if not rows:
        return []
    order = [name for name in ("startup", "requests", "steps", "step", "between", "recording") if name in rows]
    table = tuple(([text(lang, f"diff.times.{name}")], *rows[name]) for name in order)
    return [
        Heading(text(lang, "diff.times")),
        Table((Column(""), Column("A", number=True), Column("B", number=True)), table),
    ]
