"""The step that the scheduler is putting together, before it becomes a `SchedulerOutput`.

vLLM: none; there these are local variables of `Scheduler.schedule`.
"""

import time
from dataclasses import dataclass, field

from tracellm.engine.kv_cache.kv_cache_manager import KVCacheBlocks
from tracellm.engine.request import Request
from tracellm.engine.sched.reasons import HeldReason

__all__ = ["Step"]


@dataclass(slots=True)
class Step:
    """What has been decided so far for the step being scheduled."""

    token_budget: int
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
