"""Times of both runs, and what their messages between processes cost."""

from collections.abc import Callable

from tracellm.report.texts import text
from tracellm.report.wording.blocks import Block, Column, Heading, Paragraph, Table
from tracellm.report.wording.quantities import byte_size, percent
from tracellm.report.wording.safe_text import visible
from tracellm.report.wording.titles import time
from tracellm.trace.compare import Boundary, Comparison, MessageTally, RunTimes, Spread

__all__ = ["RUNS", "boundary_part", "boundary_table", "cost_of_a_step", "times_part"]


RUNS = ("A", "B")
"""Names of the two runs."""


def boundary_part(comparison: Comparison, lang: str) -> list[Block]:
    """Return the part about processes and messages, with its heading."""
    blocks: list[Block] = [Heading(text(lang, "diff.boundary"))]
    if not any(boundary.all.count for boundary in comparison.boundaries):
        return [*blocks, Paragraph(text(lang, "diff.boundary.none"))]
    for run, boundary, times, steps in zip(
        RUNS, comparison.boundaries, comparison.times, comparison.num_steps, strict=True
    ):
        if not boundary.all.count:
            blocks.append(Paragraph(text(lang, "diff.boundary.none_in", run=run)))
            continue
        blocks.append(boundary_table(boundary, lang, text(lang, "diff.boundary.in", run=run)))
        if boundary.all.unreceived:
            blocks.append(Paragraph(text(lang, "diff.boundary.unreceived", n=boundary.all.unreceived)))
        if cost := cost_of_a_step(boundary, times, steps):
            blocks.append(Paragraph(text(lang, "diff.boundary.share", time=cost[0], share=cost[1])))
    return [*blocks, Paragraph(text(lang, "diff.boundary.medians"))]


def boundary_table(boundary: Boundary, lang: str, title: str = "") -> Table:
    """Return the messages of one run by type, and all together."""
    heads = ("type", "count", "bytes", "encode", "way", "most", "decode")
    columns = tuple(Column(text(lang, f"diff.boundary.{head}"), number=head != "type") for head in heads)
    rows = [_row(visible(tally.type), tally) for tally in boundary.types]
    if len(rows) > 1:
        rows.append(_row(text(lang, "diff.boundary.all"), boundary.all))
    return Table(columns, tuple(rows), title)


def _row(name: str, tally: MessageTally) -> tuple[list[str], ...]:
    times = (tally.encode.median_ns, tally.way.median_ns, tally.way.most_ns, tally.decode.median_ns)
    return [name], [f"{tally.count:,}"], [byte_size(tally.bytes)], *([time(ns)] for ns in times)


def cost_of_a_step(boundary: Boundary, times: RunTimes, steps: int) -> tuple[str, str] | None:
    """Return the time of messages per step, and its share of a step; None without steps.

    Each message counts with the median time of its type: in a short run, the one message that waited for the engine to
    start would otherwise hide all others.
    """
    if not steps or not times.steps.median_ns:
        return None
    cost = sum(tally.whole.median_ns * tally.count for tally in boundary.types) / steps
    return time(round(cost)), percent(cost / times.steps.median_ns)


_FEWEST = 4
"""Fewest steps for a meaningful middle half."""


def times_part(comparison: Comparison, lang: str) -> list[Block]:
    """Return the part about times, with its heading; empty if neither run has any."""
    both, counts = comparison.times, comparison.num_steps
    none = text(lang, "diff.runs.none")
    banded = max(counts) >= _FEWEST

    def band(spread: Spread, count: int) -> str:
        if count < _FEWEST or not spread.median_ns:
            return time(spread.median_ns) if spread.median_ns else none
        low, high = map(time, spread.middle_ns)
        return text(lang, "diff.times.band", time=time(spread.median_ns), low=low, high=high)

    rows = {
        "startup": [time(times.startup_ns) if times.startup_ns else none for times in both],
        "requests": [time(times.requests_ns) if times.requests_ns else none for times in both],
        "steps": [f"{count:,}" if any(counts) else none for count in counts],
        "step": [band(times.steps, count) for times, count in zip(both, counts, strict=True)],
        "between": [band(times.between, count - 1) for times, count in zip(both, counts, strict=True)],
        **(_worker_rows(comparison, band) if _has_workers(comparison) else {}),
        "recording": [time(times.recording_ns) if times.recording_ns else none for times in both],
    }
    table = tuple(
        ([text(lang, f"diff.times.{name}")], *([cell] for cell in cells))
        for name, cells in rows.items()
        if any(cell != none for cell in cells)
    )
    if not table:
        return []
    return [
        Heading(text(lang, "diff.times")),
        Table((Column(""), Column("A", number=True), Column("B", number=True)), table),
        Paragraph(text(lang, "diff.times.noise" if banded else "diff.times.noise.once")),
    ]


def _has_workers(comparison: Comparison) -> bool:
    """Return whether a run has calls to workers in processes of their own."""
    return any(tally.type == "CALL" for boundary in comparison.boundaries for tally in boundary.types)


def _worker_rows(comparison: Comparison, band: Callable[[Spread, int], str]) -> dict[str, list[str]]:
    """Return the time of a step in which workers work, and the time of calls to them in which none works."""
    both = list(zip(comparison.times, comparison.num_steps, strict=True))
    return {
        "work": [band(times.work, count) for times, count in both],
        "calls": [band(times.calls, count) for times, count in both],
    }
