"""Do two engines generate the same? Greedy outputs are compared before anything is timed.

In bfloat16 the two best tokens are often nearer to each other than the rounding errors of an engine, and from the first
other choice on all is different. So in float32 outputs must be the same; in other dtypes it is told how many are, where
the first difference is, and how near to each other the two tokens were there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

__all__ = ["Agreement", "compare_outputs"]

TokenIds = list[int]


@dataclass(frozen=True)
class Difference:
    """Where the outputs of one request part."""

    request: int
    position: int
    """Tokens of output that are the same."""
    one: int
    other: int


@dataclass(frozen=True)
class Agreement:
    """How far two engines agree about some requests."""

    requests: int
    differences: tuple[Difference, ...]
    """One for each request whose outputs are not the same, the earliest first."""
    gap: float | None = None
    """The most by which the logits of two tokens differ where outputs part, in units of the spread of all logits."""

    @property
    def same(self) -> int:
        """Requests whose outputs are the same to the last token."""
        return self.requests - len(self.differences)

    @property
    def first(self) -> int | None:
        """The position of the earliest difference; None: there is none."""
        return self.differences[0].position if self.differences else None


def compare_outputs(outputs: Sequence[TokenIds], others: Sequence[TokenIds]) -> Agreement:
    """Request by request; each pair has the same length."""
    found = []
    for request, (one, other) in enumerate(zip(outputs, others, strict=True)):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=True)))
        if same < len(one):
            found.append(Difference(request, same, one[same], other[same]))
    return Agreement(len(outputs), tuple(sorted(found, key=lambda difference: difference.position)))
