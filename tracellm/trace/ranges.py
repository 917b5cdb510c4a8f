"""Lists of block ids in short form, as a step's span has them: `[3, 4, 5, 9]` is `3-5,9`; and intervals of time."""

from collections.abc import Iterable

__all__ = ["covered", "format_ranges", "parse_ranges"]

_LONGEST = 10_000_000  # more than the blocks of any KV cache: a damaged file must not fill the memory


def format_ranges(numbers: Iterable[int]) -> str:
    """Return `3-5,9` for 3, 4, 5, 9. The order is kept: 9, 3, 4 is `9,3-4`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_ranges(text: str) -> tuple[int, ...]:
    """Return the numbers that `format_ranges` wrote, or none if the text is something else."""
    if not text:
        return ()
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            run = range(int(first), int(last or first) + 1)
            if len(numbers) + len(run) > _LONGEST:
                return ()
            numbers.extend(run)
    except (ValueError, OverflowError):
        return ()
    return tuple(numbers)


def covered(intervals: Iterable[tuple[int, int]]) -> int:
    """Return the time in at least one of the intervals, each a start and an end."""
    total = reached = 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total
