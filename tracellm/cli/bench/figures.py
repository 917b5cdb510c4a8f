"""Figures as they are told: a median with its quartiles, and tables of plain text for the terminal."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

__all__ = ["Spread", "number", "percentile", "plain_table"]


@dataclass(frozen=True)
class Spread:
    """The median of some measurements, and their quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of one value or more."""
        low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [*values] * 3
        return cls(median, low, high)

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)} – {number(self.high)})"


def number(value: float) -> str:
    """Three digits at least."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


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
    widths = [max(_width(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            _padded(cell, width, left=column == 0)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _padded(cell: str, width: int, *, left: bool) -> str:
    space = " " * (width - _width(cell))
    return cell + space if left else space + cell


def _width(text: str) -> int:
    """Columns in a terminal: Chinese characters take two."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
