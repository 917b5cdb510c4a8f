"""Comparison of the greedy outputs of two engines, before anything is timed.

In bfloat16 the logits of the two best tokens often differ by less than rounding errors, and after the first different
token all others differ. So outputs must be equal in float32. For other dtypes the table has the number of equal
outputs, the first difference, and the distance of the two logits there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

__all__ = ["Agreement", "compare_outputs"]

TokenIds = list[int]


@dataclass(frozen=True)
class Difference:
    """The first difference between the outputs of one request."""

    request: int
    position: int
    """Number of equal tokens before it."""
    first: int
    second: int
    """The two different tokens."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of two engines on some requests."""

    requests: int
    differences: tuple[Difference, ...]
    """One for each request with different outputs, the earliest first."""
    gap: float | None = None
    """Largest difference of two logits where outputs differ, in standard deviations of all logits."""

    @property
    def same(self) -> int:
        """Number of requests with equal outputs."""
        return self.requests - len(self.differences)

    @property
    def first(self) -> int | None:
        """Position of the earliest difference, or None."""
        return self.differences[0].position if self.differences else None


def compare_outputs(outputs: Sequence[TokenIds], other_outputs: Sequence[TokenIds]) -> Agreement:
    """Compare the outputs of each request; both have the same length."""
    differences = []
    for request, (ids, other_ids) in enumerate(zip(outputs, other_outputs, strict=True)):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, other_ids, strict=True)))
        if same < len(ids):
            differences.append(Difference(request, same, ids[same], other_ids[same]))
    return Agreement(len(outputs), tuple(sorted(differences, key=lambda difference: difference.position)))
