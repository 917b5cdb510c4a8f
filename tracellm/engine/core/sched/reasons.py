"""Why a request got nothing, or less than it wanted, in a step.

A `HeldReason` is a code, and the numbers the decision was made on. The scheduler puts one for each request that it
looked at into `SchedulerOutput.not_scheduled`, and one for all that wait behind them into `waiting_reason`: a queue of
thousands costs no more than one of two. Nothing here is computed when nobody is held.

vLLM: none; there the reason is the place in `Scheduler.schedule` at which the loop was left.
"""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["HeldCode", "HeldReason"]


class HeldCode(StrEnum):
    """What stood in the way."""

    TOKEN_BUDGET = "token_budget"
    """The step's tokens (max_num_batched_tokens) are given away."""
    CHUNK_THRESHOLD = "chunk_threshold"
    """A long prompt gets at most long_prefill_token_threshold tokens a step."""
    MAX_NUM_SEQS = "max_num_seqs"
    """As many requests run as may run at once."""
    NO_FREE_BLOCKS = "no_free_blocks"
    """Too few KV blocks are free to begin it, and nobody is preempted to begin a request."""
    PREEMPTED = "preempted"
    """It ran, and its KV blocks were taken so that another request could go on (or it was itself the last in line)."""
    GRAMMAR = "grammar"
    """Its output is constrained, and the grammar for that is still being compiled; others overtake."""
    BEHIND = "behind"
    """A request before it in the queue could not be scheduled, and nobody overtakes."""


@dataclass(frozen=True, slots=True)
class HeldReason:
    """A code and the numbers behind it. Made by the class method of the code's name."""

    code: HeldCode
    numbers: dict[str, int | str]

    def details(self) -> str:
        """The numbers as `name=value name=value`."""
        return " ".join(f"{name}={value}" for name, value in self.numbers.items())

    @classmethod
    def token_budget(cls, budget: int, left: int, wanted: int, given: int) -> "HeldReason":
        """Of the step's `budget` tokens, `left` were left when its turn came; it wanted `wanted` and got `given`.

        `wanted` of a request that was not looked at is all its tokens, some of which may be cached.
        """
        return cls(HeldCode.TOKEN_BUDGET, {"budget": budget, "left": left, "wanted": wanted, "given": given})

    @classmethod
    def chunk_threshold(cls, threshold: int, wanted: int, given: int) -> "HeldReason":
        """It wanted `wanted` tokens and got `given`, the threshold."""
        return cls(HeldCode.CHUNK_THRESHOLD, {"threshold": threshold, "wanted": wanted, "given": given})

    @classmethod
    def max_num_seqs(cls, limit: int, running: int) -> "HeldReason":
        """`running` requests run, and `limit` may."""
        return cls(HeldCode.MAX_NUM_SEQS, {"limit": limit, "running": running})

    @classmethod
    def no_free_blocks(cls, needed: int, free: int) -> "HeldReason":
        """It needs `needed` blocks for this step's tokens, and `free` are free.

        Cached blocks count among the needed when nobody uses them, since they are free ones too.
        """
        return cls(HeldCode.NO_FREE_BLOCKS, {"needed": needed, "free": free})

    @classmethod
    def preempted(cls, by: str, needed: int, free: int) -> "HeldReason":
        """Request `by` (this one itself, if none was behind it) needed `needed` blocks when `free` were free."""
        return cls(HeldCode.PREEMPTED, {"by": by, "needed": needed, "free": free})

    @classmethod
    def grammar(cls, kind: str) -> "HeldReason":
        """Its constraint is of this kind: json, regex, choice, ..."""
        return cls(HeldCode.GRAMMAR, {"kind": kind})

    @classmethod
    def behind(cls, request_id: str, cause: HeldCode) -> "HeldReason":
        """It waits behind `request_id`, which was held for `cause`."""
        return cls(HeldCode.BEHIND, {"request": request_id, "cause": cause.value})
