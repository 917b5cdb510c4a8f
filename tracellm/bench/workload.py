"""The requests of a benchmark: random token ids and lengths, reproducible by their seed.

vLLM: vllm/benchmarks/datasets.py::RandomDataset
"""

import random
import re
from dataclasses import dataclass
from typing import Any

__all__ = ["BenchError", "Lengths", "Workload", "parse_lengths", "random_workload"]


class BenchError(Exception):
    """Bad input to a benchmark. `key` is the key of a text under `cli.error.bench.`, `values` are its values."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key, values)
        self.key = key
        self.values = values


@dataclass(frozen=True)
class Lengths:
    """A range of lengths in tokens, both ends included."""

    least: int
    most: int

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"


@dataclass(frozen=True)
class Workload:
    """Requests: token ids of the prompts, and the number of tokens to generate for each."""

    prompts: list[list[int]]
    lengths: list[int]

    @property
    def num_input_tokens(self) -> int:
        """Number of tokens in all prompts."""
        return sum(map(len, self.prompts))

    @property
    def num_output_tokens(self) -> int:
        """Number of tokens to generate for all requests."""
        return sum(self.lengths)

    @property
    def longest(self) -> int:
        """Number of tokens, prompt and output, of the longest request."""
        return max(len(prompt) + length for prompt, length in zip(self.prompts, self.lengths, strict=True))

    def first_tokens(self) -> "Workload":
        """Return the same prompts with one output token each, so that nothing is decoded."""
        return Workload(self.prompts, [1] * len(self.prompts))


def parse_lengths(option: str, value: str) -> Lengths:
    """Parse a length, `128`, or a range, `32-256`.

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
    """Return requests of uniformly distributed lengths, with token ids below `vocab_size`."""
    rng = random.Random(seed)
    prompts = [
        [rng.randrange(vocab_size) for _ in range(rng.randint(inputs.least, inputs.most))] for _ in range(num_requests)
    ]
    return Workload(prompts, [rng.randint(outputs.least, outputs.most) for _ in range(num_requests)])
