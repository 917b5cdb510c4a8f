"""Quantities for readers: durations, bytes, probabilities, and shortened lists."""

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["byte_size", "clip", "duration", "number", "percent"]

T = TypeVar("T")


def duration(seconds: float) -> str:
    """Return a time with three digits: `0.42 ms`, `41.3 ms`, `2.15 s`, `3 min 20 s`."""
    if seconds < 0.9995:
        return f"{number(seconds * 1e3)} ms"
    if seconds < 59.95:
        return f"{number(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def number(value: float) -> str:
    """Return three digits, or all of a larger number: `0.42`, `41.3`, `1,024`."""
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"


def byte_size(count: int) -> str:
    """Return bytes in decimal units: `512 B`, `11.9 MB`."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def percent(share: float) -> str:
    """Return a probability or a share: `97.3%`, `<0.1%`."""
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def clip(parts: Sequence[T], most: int) -> tuple[list[T], int]:
    """Return the first `most` of `parts` and the number left out; one more than `most` is not worth leaving out."""
    return (list(parts), 0) if len(parts) <= most + 1 else (list(parts[:most]), len(parts) - most)
