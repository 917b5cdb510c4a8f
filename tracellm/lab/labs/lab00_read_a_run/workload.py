"""The workload of lab 0: prompts and settings that a seed chooses.

The settings are so tight that every run has what the questions are about: a prompt in chunks, requests that wait, one
that is preempted, and one that finds tokens of an earlier prompt in the prefix cache.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = ["Workload", "make_workload"]

_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Count from one to ten, and then from ten to one.",
    "What is the purpose of a trace?",
    "A block has a place for the keys and values of some tokens.",
    "The scheduler decides which request gets how many tokens.",
    "Tell me a short story about a cat and a mouse.",
    "Every step begins with the running requests.",
    "The dog sleeps in the sun, and the fox runs away from it.",
)


@dataclass(frozen=True)
class Workload:
    """Arguments of `LLM`, and each request's prompt and number of output tokens."""

    settings: dict[str, Any]
    prompts: list[str]
    max_tokens: list[int]


def make_workload(seed: str) -> Workload:
    """Return the workload of a seed."""
    random = Random(f"read a run:{seed}")
    num_requests = random.randint(5, 6)
    beginning = " ".join(random.sample(_SENTENCES, 2))
    sharing = random.sample(range(num_requests), 2)
    prompts = [
        f"{beginning} {random.choice(_SENTENCES)}"
        if number in sharing
        else " ".join(random.sample(_SENTENCES, random.randint(2, 3)))
        for number in range(num_requests)
    ]
    max_num_seqs = random.randint(3, 4)
    settings = {
        "block_size": 16,
        "max_model_len": 96,
        "max_num_batched_tokens": random.choice((24, 28, 32, 36, 40)),
        "max_num_seqs": max_num_seqs,
        "num_gpu_blocks_override": random.randint(8, 9) + 2 * (max_num_seqs - 3),
    }
    return Workload(settings, prompts, [random.randint(24, 40) for _ in prompts])
