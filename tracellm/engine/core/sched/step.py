"""The step that the scheduler is putting together, before it becomes a `SchedulerOutput`.

vLLM: none; there these are local variables of `Scheduler.schedule`.
"""

import time
from dataclasses import dataclass, field

from tracellm.engine.core.kv_cache.kv_cache_manager import KVCacheBlocks
from tracellm.engine.core.request import Request
from tracellm.engine.core.sched.reasons import HeldCode, HeldReason
from tracellm.engine.core.sched.request_queue import RequestQueue

__all__ = ["Step"]


@dataclass(slots=True)
class Step:
    """What has been decided so far for the step being scheduled."""

    max_num_scheduled_tokens: int
    """Tokens to give away."""
    token_budget: int = field(init=False)
    """Tokens still to give away."""
    timestamp: float = field(default_factory=time.monotonic)
    """When the scheduling began."""
    new_reqs: list[Request] = field(default_factory=list)
    resumed_reqs: list[Request] = field(default_factory=list)
    running_reqs: list[Request] = field(default_factory=list)
    preempted_reqs: list[Request] = field(default_factory=list)
    num_scheduled_tokens: dict[str, int] = field(default_factory=dict)
    new_blocks: dict[str, KVCacheBlocks] = field(default_factory=dict)
    """All blocks of a new or resumed request; those added to a running one."""
    not_scheduled: dict[str, HeldReason] = field(default_factory=dict)
    waiting_reason: HeldReason | None = None
    """The one reason of all who wait and have none in `not_scheduled`."""

    def __post_init__(self) -> None:
        self.token_budget = self.max_num_scheduled_tokens

    def limit(self, request: Request, wanted: int, chunk: int) -> int:
        """How many of the wanted tokens it can get: no more than a chunk, and than the budget has left."""
        given = chunk
        if given > self.token_budget:
            given = self.token_budget
            self.not_scheduled[request.request_id] = HeldReason.token_budget(
                self.max_num_scheduled_tokens, self.token_budget, wanted, given
            )
        elif given < wanted:
            self.not_scheduled[request.request_id] = HeldReason.chunk_threshold(given, wanted, given)
        return given

    def no_budget(self, wanted: int) -> HeldReason:
        """When its turn came, all tokens were given away."""
        return HeldReason.token_budget(self.max_num_scheduled_tokens, left=0, wanted=wanted, given=0)

    def explain_waiting(self, waiting: RequestQueue, max_num_running_reqs: int, num_running: int) -> None:
        """Give a reason to the first of `waiting`, at which the scheduling stopped, and one to all behind it.

        `num_running` requests run now. The request that found too few free blocks has its reason already.
        """
        first = waiting.peek_request()
        if self.token_budget == 0:
            cause = HeldCode.TOKEN_BUDGET
            self.not_scheduled[first.request_id] = self.no_budget(first.num_tokens - first.num_computed_tokens)
        elif num_running < max_num_running_reqs:
            cause = HeldCode.NO_FREE_BLOCKS
        else:
            self.waiting_reason = HeldReason.max_num_seqs(max_num_running_reqs, num_running)
            return
        if len(waiting) > 1:
            self.waiting_reason = HeldReason.behind(first.request_id, cause)
