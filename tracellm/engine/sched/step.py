"""The step that the scheduler is putting together, before it becomes a `SchedulerOutput`.

vLLM: none; there these are local variables of `Scheduler.schedule`.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tracellm.engine.kv_cache.kv_cache_manager import KVCacheBlocks
from tracellm.engine.request import Request
from tracellm.engine.sched.reasons import HeldCode, HeldReason

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
    blocked_req: Request | None = None
    """The waiting request that found too few free blocks."""

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

    def explain_waiting(self, waiting: Iterable[Request], max_num_running_reqs: int, num_running: int) -> None:
        """Say why those of `waiting` still wait that have not been told yet; `num_running` requests run."""
        untold = [request for request in waiting if request.request_id not in self.not_scheduled]
        if not untold:
            return
        if self.preempted_reqs:
            reason = HeldReason.behind(self.preempted_reqs[-1].request_id, HeldCode.PREEMPTED)
        elif self.token_budget == 0:
            first = untold.pop(0)
            self.not_scheduled[first.request_id] = self.no_budget(first.num_tokens - first.num_computed_tokens)
            reason = HeldReason.behind(first.request_id, HeldCode.TOKEN_BUDGET)
        elif self.blocked_req is not None:
            reason = HeldReason.behind(self.blocked_req.request_id, HeldCode.NO_FREE_BLOCKS)
        else:
            reason = HeldReason.max_num_seqs(max_num_running_reqs, num_running)
        for request in untold:
            self.not_scheduled[request.request_id] = reason
