"""Times of both runs, side by side, with the band in which those of single steps lie."""

from tracellm.report.diff.blocks import Block, Column, Heading, Paragraph, Table
from tracellm.report.texts import text
from tracellm.report.wording.titles import time
from tracellm.trace.compare import Comparison, Spread

__all__ = ["times_part"]

_FEWEST = 4
"""Steps of which the middle half means something."""


def times_part(comparison: Comparison, lang: str) -> list[Block]:
    """The part with its heading; nothing where neither run has any time."""
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
