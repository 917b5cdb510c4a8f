"""Checks that the twist adds to those of lab 7."""

from random import Random
from typing import Any

from tracellm.lab.checks import Check
from tracellm.lab.labs.lab07_continuous_batching.checks import AnyWorkloadKeepsTheInvariants

__all__ = ["CHECKS"]


class RunningRequestsHaveReservedTokens(AnyWorkloadKeepsTheInvariants):
    """Beside running requests, waiting ones leave the reserved tokens of a step's budget."""

    zh = "有请求运行时，等待的请求不占用每步预算中预留的 token。"
    cases = 20

    def make(self, random: Random) -> Any:
        """See `Check`. Small budgets, so that prompts take several steps."""
        case = super().make(random)
        return case | {"max_num_batched_tokens": random.choice([9, 12, 16]), "max_num_seqs": 8, "num_gpu_blocks": 49}


CHECKS: tuple[Check, ...] = (RunningRequestsHaveReservedTokens(),)
