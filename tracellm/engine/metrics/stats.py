"""Statistics of the scheduler, of each step and of each request.

`Scheduler.make_stats` makes a `SchedulerStats` per step, sent to the front end in `EngineCoreOutputs`. The output
processor keeps a `RequestStateStats` per request, available as `RequestOutput.metrics`, and fills an `IterationStats`
per step. `StatLoggerManager.record` receives the statistics of each step.

A request's arrival is on the front end's wall clock. Events and step ends are on the engine core's monotonic clock. A
duration never mixes the two.

vLLM: vllm/v1/metrics/stats.py. Left out: multimodal caches, LoRA, the count of corrupted requests.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracellm.engine.ipc.messages import EngineCoreOutput, FinishReason

__all__ = [
    "CachingMetrics",
    "FinishedRequestStats",
    "IterationStats",
    "PrefixCacheStats",
    "RequestStateStats",
    "SchedulerStats",
]


@dataclass
class PrefixCacheStats:
    """Prefix cache lookups since the previous step with statistics.

    vLLM: vllm/v1/metrics/stats.py::PrefixCacheStats, with the fields of its base class, BaseCacheStats.
    """

    reset: bool = False
    """True if the cache was emptied."""
    requests: int = 0
    """Requests that looked up their prompt."""
    queries: int = 0
    """Tokens of these requests."""
    hits: int = 0
    """Tokens of these requests found in the cache."""
    preempted_requests: int = 0
    """Requests that repeated the lookup after a preemption; `requests` excludes them."""
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        """Add a request's lookup of `num_tokens` tokens, of which `num_hits` were cached."""
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
    """State of the scheduler after a step.

    vLLM: vllm/v1/metrics/stats.py::SchedulerStats. Fields for features that tracellm lacks stay empty.
    """

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    step_counter: int = 0
    """Steps of the wave; set only in messages to the coordinator of several engine cores."""
    current_wave: int = 0
    """The wave; set as `step_counter` is."""
    kv_cache_usage: float = 0.0
    """Share of the KV cache blocks in use, 0 to 1."""
    prefix_cache_stats: PrefixCacheStats = field(default_factory=PrefixCacheStats)
    connector_prefix_cache_stats: None = None
    spec_decoding_stats: None = None
    kv_connector_stats: None = None
    waiting_lora_adapters: dict[str, int] = field(default_factory=dict)
    running_lora_adapters: dict[str, int] = field(default_factory=dict)


class CachingMetrics:
    """Prefix cache hit rate over the most recent requests, for the log.

    vLLM: vllm/v1/metrics/stats.py::CachingMetrics.
    """

    def __init__(self, max_recent_requests: int = 1000) -> None:
        """Keep the steps of at most `max_recent_requests` requests, and always the last step."""
        self.max_recent_requests = max_recent_requests
        self.aggregated_requests = 0
        self.aggregated_query_total = 0
        self.aggregated_query_hit = 0
        self.query_queue: deque[tuple[int, int, int]] = deque()
        """Requests, tokens looked up and tokens found of each step."""

    def observe(self, stats: PrefixCacheStats) -> None:
        """Add a step; discard earlier steps if the cache was emptied."""
        if stats.reset:
            self.reset()
        if stats.requests == 0:
            return
        self._add(1, (stats.requests, stats.queries, stats.hits))
        self.query_queue.append((stats.requests, stats.queries, stats.hits))
        while len(self.query_queue) > 1 and self.aggregated_requests > self.max_recent_requests:
            self._add(-1, self.query_queue.popleft())

    def _add(self, sign: int, step: tuple[int, int, int]) -> None:
        requests, queries, hits = step
        self.aggregated_requests += sign * requests
        self.aggregated_query_total += sign * queries
        self.aggregated_query_hit += sign * hits

    def reset(self) -> None:
        """Discard all steps."""
        self.aggregated_requests = self.aggregated_query_total = self.aggregated_query_hit = 0
        self.query_queue.clear()

    @property
    def empty(self) -> bool:
        """True if there were no lookups."""
        return self.aggregated_requests == 0

    @property
    def hit_rate(self) -> float:
        """Share of the tokens found, 0 to 1; 0 without lookups."""
        return self.aggregated_query_hit / self.aggregated_query_total if self.aggregated_query_total else 0.0


@dataclass
class RequestStateStats:
    """Timestamps and token count of a request.

    Fields ending in `_ts` are seconds on the engine core's monotonic clock; 0 means not yet reached.

    vLLM: vllm/v1/metrics/stats.py::RequestStateStats. Added: the durations, which vLLM computes only for a finished
    request.
    """

    num_generation_tokens: int = 0
    arrival_time: float = 0.0
    """Unix time in seconds."""
    queued_ts: float = 0.0
    """Time at which it entered the scheduler's waiting queue."""
    scheduled_ts: float = 0.0
    """Time at which it was first scheduled."""
    first_token_ts: float = 0.0
    """End of the step that generated its first token."""
    last_token_ts: float = 0.0
    """End of the step that generated its latest token."""
    first_token_latency: float = 0.0
    """Time to first token: seconds from its arrival to the first token in the front end."""
    is_corrupted: bool = False
    """True if its logits contained NaN; always False, since such a step raises an error."""

    @property
    def queued_time(self) -> float:
        """Seconds in the waiting queue before it was first scheduled."""
        return self.scheduled_ts - self.queued_ts

    @property
    def prefill_time(self) -> float:
        """Seconds from its first scheduling to its first token, including preemptions."""
        return self.first_token_ts - self.scheduled_ts

    @property
    def decode_time(self) -> float:
        """Seconds from its first token to its latest, including preemptions."""
        return self.last_token_ts - self.first_token_ts

    @property
    def inference_time(self) -> float:
        """Seconds of prefill and decode."""
        return self.last_token_ts - self.scheduled_ts

    @property
    def mean_time_per_output_token(self) -> float:
        """Seconds of decode per token after the first; 0 for fewer than two tokens."""
        num_decoded = self.num_generation_tokens - 1
        return self.decode_time / num_decoded if num_decoded > 0 else 0.0


@dataclass
class FinishedRequestStats:
    """Statistics of a finished request. Times are in seconds.

    vLLM: vllm/v1/metrics/stats.py::FinishedRequestStats.
    """

    finish_reason: FinishReason
    e2e_latency: float = 0.0
    """Time from its arrival to its last output, on the wall clock."""
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    max_tokens_param: int | None = None
    """Sampling parameter `max_tokens`."""
    queued_time: float = 0.0
    prefill_time: float = 0.0
    inference_time: float = 0.0
    decode_time: float = 0.0
    mean_time_per_output_token: float = 0.0
    is_corrupted: bool = False


@dataclass
class IterationStats:
    """Results of one engine step, as received by the front end.

    vLLM: vllm/v1/metrics/stats.py::IterationStats.
    """

    iteration_timestamp: float = field(default_factory=time.time)
    """Unix time in seconds at which the front end received the step's outputs."""
    num_generation_tokens: int = 0
    num_prompt_tokens: int = 0
    """Prompt tokens of the requests that got their first token."""
    num_preempted_reqs: int = 0
    """Preemptions reported in this step; a request reports them with its next token."""
    finished_requests: list[FinishedRequestStats] = field(default_factory=list)
    max_num_generation_tokens_iter: list[int] = field(default_factory=list)
    """Generated tokens of each finished request; with `n > 1` those of its longest sequence."""
    n_params_iter: list[int] = field(default_factory=list)
    """Sampling parameter `n` of each finished request."""
    time_to_first_tokens_iter: list[float] = field(default_factory=list)
    """Time to first token, in seconds, of each request that got its first token."""
    inter_token_latencies_iter: list[float] = field(default_factory=list)
    """Seconds since the previous token, of each request that got a further token."""

    def update_from_output(
        self,
        output: EngineCoreOutput,
        engine_core_timestamp: float,
        is_prefilling: bool,
        prompt_len: int,
        req_stats: RequestStateStats,
    ) -> None:
        """Add a request's output to these statistics and to the request's own.

        Args:
            output: Output of the request in this step.
            engine_core_timestamp: End of the step on the engine core's monotonic clock, in seconds.
            is_prefilling: Whether this is the request's first output.
            prompt_len: Number of tokens in the prompt.
            req_stats: Statistics of the request.
        """
        num_new_tokens = len(output.new_token_ids)
        self.num_generation_tokens += num_new_tokens
        req_stats.num_generation_tokens += num_new_tokens
        if output.events:
            self._update_from_events(output, req_stats)
        if is_prefilling:
            self.num_prompt_tokens += prompt_len
            req_stats.first_token_latency = self.iteration_timestamp - req_stats.arrival_time
            self.time_to_first_tokens_iter.append(req_stats.first_token_latency)
            req_stats.first_token_ts = engine_core_timestamp
        else:
            self.inter_token_latencies_iter.append(engine_core_timestamp - req_stats.last_token_ts)
        req_stats.last_token_ts = engine_core_timestamp

    def _update_from_events(self, output: EngineCoreOutput, req_stats: RequestStateStats) -> None:
        from tracellm.engine.ipc.messages import EngineCoreEventType  # messages.py imports this module

        for event in output.events or ():
            if event.type == EngineCoreEventType.QUEUED:
                req_stats.queued_ts = event.timestamp
            elif event.type == EngineCoreEventType.PREEMPTED:
                self.num_preempted_reqs += 1
            elif req_stats.scheduled_ts == 0.0:  # a request is scheduled again after a preemption
                req_stats.scheduled_ts = event.timestamp

    def update_from_finished_request(
        self,
        finish_reason: FinishReason,
        num_prompt_tokens: int,
        max_tokens_param: int | None,
        req_stats: RequestStateStats,
    ) -> None:
        """Add a request that finished in this step to `finished_requests`."""
        self.finished_requests.append(
            FinishedRequestStats(
                finish_reason=finish_reason,
                e2e_latency=self.iteration_timestamp - req_stats.arrival_time,
                num_prompt_tokens=num_prompt_tokens,
                num_generation_tokens=req_stats.num_generation_tokens,
                max_tokens_param=max_tokens_param,
                queued_time=req_stats.queued_time,
                prefill_time=req_stats.prefill_time,
                inference_time=req_stats.inference_time,
                decode_time=req_stats.decode_time,
                mean_time_per_output_token=req_stats.mean_time_per_output_token,
            )
        )
