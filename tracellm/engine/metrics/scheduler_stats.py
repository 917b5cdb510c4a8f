"""What the scheduler says of itself after a step: who runs and waits, how full the KV cache is, what was found cached.

`Scheduler.make_stats` makes a `SchedulerStats` under `disable_log_stats=False`; it travels to the front half on
`EngineCoreOutputs.scheduler_stats`, where the loggers (loggers.py) take it in.

vLLM: vllm/v1/metrics/stats.py, in one file with the requests' statistics. Left out: multimodal caches, LoRA.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

__all__ = ["CachingMetrics", "PrefixCacheStats", "SchedulerStats"]


@dataclass
class PrefixCacheStats:
    """What was looked for in the prefix cache and found there, since the last step that reported.

    vLLM: vllm/v1/metrics/stats.py::PrefixCacheStats, with the fields of its base class, BaseCacheStats.
    """

    reset: bool = False
    """Was the cache emptied?"""
    requests: int = 0
    """Requests that looked for their prompt."""
    queries: int = 0
    """Tokens that these have."""
    hits: int = 0
    """Tokens of these that were cached."""
    preempted_requests: int = 0
    """Requests that looked for their tokens again after a preemption; they are not among `requests`."""
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        """A request of `num_tokens` tokens looked, and `num_hits` of these were cached."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


@dataclass
class SchedulerStats:
    """The scheduler after a step.

    vLLM: vllm/v1/metrics/stats.py::SchedulerStats. What tracellm does not have is there under vLLM's names, and empty.
    """

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    step_counter: int = 0
    """For data parallelism: always 0."""
    current_wave: int = 0
    """For data parallelism: always 0."""
    kv_cache_usage: float = 0.0
    """The share of the KV blocks in use, 0 to 1."""
    prefix_cache_stats: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    connector_prefix_cache_stats: None = None
    spec_decoding_stats: None = None
    kv_connector_stats: None = None
    waiting_lora_adapters: dict[str, int] = field(default_factory=dict)
    running_lora_adapters: dict[str, int] = field(default_factory=dict)


class CachingMetrics:
    """The hit rate over the latest requests.

    vLLM: vllm/v1/metrics/stats.py::CachingMetrics.
    """

    def __init__(self, max_recent_requests: int = 1000) -> None:
        """Remember that many requests, and always those of the latest step."""
        self.max_recent_requests = max_recent_requests
        self.aggregated_requests = 0
        self.aggregated_query_total = 0
        self.aggregated_query_hit = 0
        self.query_queue: deque[tuple[int, int, int]] = deque()
        """Of each remembered step: requests, tokens looked for, tokens found."""

    def observe(self, stats: PrefixCacheStats) -> None:
        """Take in a step; when the cache was emptied in it, what was before is forgotten."""
        if stats.reset:
            self.reset()
        if stats.requests == 0:
            return
        self._count(1, (stats.requests, stats.queries, stats.hits))
        self.query_queue.append((stats.requests, stats.queries, stats.hits))
        while len(self.query_queue) > 1 and self.aggregated_requests > self.max_recent_requests:
            self._count(-1, self.query_queue.popleft())

    def _count(self, sign: int, step: tuple[int, int, int]) -> None:
        requests, queries, hits = step
        self.aggregated_requests += sign * requests
        self.aggregated_query_total += sign * queries
        self.aggregated_query_hit += sign * hits

    def reset(self) -> None:
        """Forget everything."""
        self.aggregated_requests = self.aggregated_query_total = self.aggregated_query_hit = 0
        self.query_queue.clear()

    @property
    def empty(self) -> bool:
        """Has no request looked yet?"""
        return self.aggregated_requests == 0

    @property
    def hit_rate(self) -> float:
        """Of the tokens that were looked for, the share that was found: 0 to 1; 0 when none was looked for."""
        return self.aggregated_query_hit / self.aggregated_query_total if self.aggregated_query_total else 0.0
