"""Figures for people: a median with its quartiles, and tables of plain text for the terminal."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from tracellm.report.wording.quantities import number

__all__ = ["Spread", "number", "percentile", "plain_table"]


@dataclass(frozen=True)
class Spread:
    """The median of some measurements, and their quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of one value or more."""
        low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
        return cls(median, low, high)

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)} – {number(self.high)})"


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which so many per cent of them are, by straight lines between them."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    before = int(place)
    after = min(before + 1, len(ordered) - 1)
    return ordered[before] + (ordered[after] - ordered[before]) * (place - before)


def plain_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns, the first to the left and numbers to the right."""
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
