"""Reasons that a request was not scheduled in a step, or got fewer tokens than it could have computed.

A reason is a code and the numbers behind the decision. `Scheduler.schedule` puts them into `SchedulerOutput`: one for
each request it considered, and a single one for all requests behind these. So a queue of thousands costs no more than a
queue of two.

vLLM: none; there the reason is only the line of `Scheduler.schedule` that leaves the loop.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

__all__ = ["CutShort", "NotScheduledReason", "ReasonCode"]


class ReasonCode(StrEnum):
    """The limit that a request ran into."""

    TOKEN_BUDGET = "token_budget"
    """The step's token budget (max_num_batched_tokens) is used up."""
    CHUNK_THRESHOLD = "chunk_threshold"
    """A long prompt gets at most long_prefill_token_threshold tokens per step."""
    MAX_NUM_SEQS = "max_num_seqs"
    """The largest allowed number of requests is running."""
    NO_FREE_BLOCKS = "no_free_blocks"
    """Too few KV cache blocks are free to start the request. No running request is preempted to start another."""
    PREEMPTED = "preempted"
    """The running request lost its KV cache blocks to another one, or released them because it could get no more."""
    GRAMMAR = "grammar"
    """The request's grammar is still being compiled. Other requests may overtake it."""
    ENCODER_BUDGET = "encoder_budget"
    """The step cannot encode another image or sound (max_num_encoder_input_tokens)."""
    ENCODER_CACHE = "encoder_cache"
    """The outputs of the encoder that requests still need leave no room for another image or sound."""
    CHUNKED_MM_INPUT = "chunked_mm_input"
    """An image or sound must be computed in one step (disable_chunked_mm_input)."""
    BEHIND = "behind"
    """An earlier request of the queue could not be scheduled, and overtaking is not allowed."""


@dataclass(frozen=True, slots=True)
class _Reason:
    """A code and its numbers, by name."""

    code: ReasonCode
    numbers: dict[str, int | str]

    def __str__(self) -> str:
        return " ".join([self.code, *(f"{name}={value}" for name, value in self.numbers.items())])

    @classmethod
    def encoder_budget(cls, item: int, needed: int, budget: int, left: int) -> Self:
        """Item `item` of the prompt has `needed` tokens, and the step can encode `left` more of its `budget`."""
        return cls(ReasonCode.ENCODER_BUDGET, {"item": item, "needed": needed, "budget": budget, "left": left})

    @classmethod
    def encoder_cache(cls, item: int, needed: int, size: int, free: int) -> Self:
        """Item `item` of the prompt has `needed` tokens, and `free` of the `size` of the encoder cache are free."""
        return cls(ReasonCode.ENCODER_CACHE, {"item": item, "needed": needed, "size": size, "free": free})

    @classmethod
    def chunked_mm_input(cls, item: int, needed: int, left: int) -> Self:
        """Item `item` of the prompt has `needed` tokens, and the step has `left` for it."""
        return cls(ReasonCode.CHUNKED_MM_INPUT, {"item": item, "needed": needed, "left": left})


class NotScheduledReason(_Reason):
    """Reason why a request got no tokens in a step."""

    __slots__ = ()

    @classmethod
    def token_budget(cls, budget: int, left: int, wanted: int) -> "NotScheduledReason":
        """The step had `left` of its `budget` tokens left, and the request needed `wanted`.

        For a waiting request whose prefix was not looked up, `wanted` includes tokens that may be cached.
        """
        return cls(ReasonCode.TOKEN_BUDGET, {"budget": budget, "left": left, "wanted": wanted, "given": 0})

    @classmethod
    def max_num_seqs(cls, limit: int, running: int) -> "NotScheduledReason":
        """`running` requests are running, and `limit` are allowed."""
        return cls(ReasonCode.MAX_NUM_SEQS, {"limit": limit, "running": running})

    @classmethod
    def no_free_blocks(cls, needed: int, free: int) -> "NotScheduledReason":
        """The step's tokens need `needed` blocks, and `free` are free.

        Cached blocks without a user are free blocks too, so using them counts in `needed`.
        """
        return cls(ReasonCode.NO_FREE_BLOCKS, {"needed": needed, "free": free})

    @classmethod
    def preempted(cls, by: str, needed: int, free: int) -> "NotScheduledReason":
        """Request `by` needed `needed` blocks when `free` were free. `by` may be the preempted request itself."""
        return cls(ReasonCode.PREEMPTED, {"by": by, "needed": needed, "free": free})

    @classmethod
    def grammar(cls, kind: str) -> "NotScheduledReason":
        """A constraint of this kind (json, regex, choice, ...) is being compiled."""
        return cls(ReasonCode.GRAMMAR, {"kind": kind})

    @classmethod
    def behind(cls, request_id: str, cause: ReasonCode) -> "NotScheduledReason":
        """Request `request_id` comes first, and was not scheduled because of `cause`."""
        return cls(ReasonCode.BEHIND, {"request": request_id, "cause": cause.value})


class CutShort(_Reason):
    """Reason why a scheduled request got fewer tokens than it could have computed."""

    __slots__ = ()

    @classmethod
    def token_budget(cls, budget: int, wanted: int, scheduled: int) -> "CutShort":
        """The request got the last `scheduled` of the step's `budget` tokens."""
        return cls(ReasonCode.TOKEN_BUDGET, {"budget": budget, "left": scheduled, "wanted": wanted, "given": scheduled})

    @classmethod
    def chunk_threshold(cls, threshold: int, wanted: int) -> "CutShort":
        """The request got `threshold` tokens, the most for one step."""
        return cls(ReasonCode.CHUNK_THRESHOLD, {"threshold": threshold, "wanted": wanted, "given": threshold})
