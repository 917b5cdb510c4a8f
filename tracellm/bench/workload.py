"""The requests of a benchmark: random token ids of random lengths, the same for the same seed on every machine."""

import random
import re
from dataclasses import dataclass

from tracellm.bench.errors import BenchError

__all__ = ["Lengths", "Workload", "parse_lengths", "random_workload"]


@dataclass(frozen=True)
class Lengths:
    """A range of lengths in tokens, both ends included."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"


@dataclass(frozen=True)
class Workload:
    """Requests: token ids, and how many tokens to generate for each."""

    prompts: list[list[int]]
    lengths: list[int]

    @property
    def num_input_tokens(self) -> int:
        """Tokens of all prompts."""
        return sum(map(len, self.prompts))

    @property
    def num_output_tokens(self) -> int:
        """Tokens to generate, of all requests."""
        return sum(self.lengths)

    @property
    def longest(self) -> int:
        """The most tokens of prompt and output together."""
        return max(len(prompt) + length for prompt, length in zip(self.prompts, self.lengths, strict=True))

    def first_tokens(self) -> "Workload":
        """The same prompts, one token of output each: what remains when there is nothing to decode."""
        return Workload(self.prompts, [1] * len(self.prompts))


def parse_lengths(option: str, value: str) -> Lengths:
    """`128`, or `32-256` for a range.

    Raises:
        BenchError: it is neither.
    """
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", value)
    if found is None:
        raise BenchError("lengths", option=option, value=value)
    lengths = Lengths(int(found[1]), int(found[2] or found[1]))
    if not 1 <= lengths.least <= lengths.most:
        raise BenchError("lengths", option=option, value=value)
    return lengths


def random_workload(vocab_size: int, num_requests: int, inputs: Lengths, outputs: Lengths, seed: int = 0) -> Workload:
    """Requests of evenly distributed lengths, with token ids below `vocab_size`."""
    chance = random.Random(seed)
    prompts = [
        [chance.randrange(vocab_size) for _ in range(chance.randint(inputs.least, inputs.most))]
        for _ in range(num_requests)
    ]
    return Workload(prompts, [chance.randint(outputs.least, outputs.most) for _ in range(num_requests)])
