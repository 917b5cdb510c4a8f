"""Statistics and plain-text tables for the output of benchmarks."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from tracellm.report.wording.quantities import number

__all__ = ["Spread", "number", "percentile", "plain_table"]


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of one value or more."""
        low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
        return cls(median, low, high)

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)} – {number(self.high)})"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile, interpolated linearly."""
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table, the first column aligned to the left and the others to the right."""
    lines = [heads, *rows]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            _padded(cell, width, left=column == 0)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _padded(cell: str, width: int, *, left: bool) -> str:
    space = " " * (width - cell_len(cell))
    return cell + space if left else space + cell
