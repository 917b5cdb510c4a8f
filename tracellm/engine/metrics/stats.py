"""When things happened to a request, and the times between: in the queue, in prefill, in decode.

Two clocks take part. The front half knows the wall clock, on which a request arrives. The engine core stamps its events
and the end of each step on its monotonic clock. Times are differences on one of the two, never across.

The output processor keeps a `RequestStateStats` for each request, which the caller finds as `RequestOutput.metrics`,
and fills an `IterationStats` in every step.

vLLM: vllm/v1/metrics/stats.py. Left out: the scheduler's and the caches' statistics, LoRA.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tracellm.engine.ipc.messages import EngineCoreEventType, EngineCoreOutput, FinishReason

__all__ = ["FinishedRequestStats", "IterationStats", "RequestStateStats"]


@dataclass
class RequestStateStats:
    """When things happened to one request. All `_ts` are on the engine core's monotonic clock, in seconds; 0: not yet.

    vLLM: vllm/v1/metrics/stats.py::RequestStateStats. Added: the times between, which vLLM works out for a finished
    request only.
    """

    num_generation_tokens: int = 0
    arrival_time: float = 0.0
    """On the wall clock: seconds since 1970."""
    queued_ts: float = 0.0
    """When it entered the scheduler's waiting queue."""
    scheduled_ts: float = 0.0
    """When the step that first computed some of it was scheduled."""
    first_token_ts: float = 0.0
    """When the step that brought its first token ended."""
    last_token_ts: float = 0.0
    """When the step that brought its latest token ended."""
    first_token_latency: float = 0.0
    """Seconds from its arrival until its first token was in the front half: the time to first token."""
    is_corrupted: bool = False
    """Were there numbers that are none (NaN) among its logits? Never: here such a step raises."""

    @property
    def queued_time(self) -> float:
        """Seconds in the queue, until it was first scheduled."""
        return self.scheduled_ts - self.queued_ts

    @property
    def prefill_time(self) -> float:
        """Seconds from when it was first scheduled to its first token, preemptions among them."""
        return self.first_token_ts - self.scheduled_ts

    @property
    def decode_time(self) -> float:
        """Seconds from its first token to its latest, preemptions among them."""
        return self.last_token_ts - self.first_token_ts

    @property
    def inference_time(self) -> float:
        """Seconds of prefill and decode."""
        return self.last_token_ts - self.scheduled_ts

    @property
    def mean_time_per_output_token(self) -> float:
        """Seconds of decode for each token after the first; 0 when there is no more than one."""
        decoded = self.num_generation_tokens - 1
        return self.decode_time / decoded if decoded > 0 else 0.0


@dataclass
class FinishedRequestStats:
    """What there is to say of a request that has ended. Times in seconds.

    vLLM: vllm/v1/metrics/stats.py::FinishedRequestStats.
    """

    finish_reason: FinishReason
    e2e_latency: float = 0.0
    """From its arrival to its last output, on the wall clock."""
    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    max_tokens_param: int | None = None
    """Its `max_tokens`."""
    queued_time: float = 0.0
    prefill_time: float = 0.0
    inference_time: float = 0.0
    decode_time: float = 0.0
    mean_time_per_output_token: float = 0.0
    is_corrupted: bool = False


@dataclass
class IterationStats:
    """What one step of the engine core brought, seen from the front half.

    vLLM: vllm/v1/metrics/stats.py::IterationStats. Left out: LoRA, the count of corrupted requests.
    """

    iteration_timestamp: float = field(default_factory=time.time)
    """When the front half received the step's outputs: seconds since 1970."""
    num_generation_tokens: int = 0
    num_prompt_tokens: int = 0
    """Of the requests that got their first token."""
    num_preempted_reqs: int = 0
    """Preemptions that were reported in this step; a request reports them with its next token."""
    finished_requests: list[FinishedRequestStats] = field(default_factory=list)
    max_num_generation_tokens_iter: list[int] = field(default_factory=list)
    """Of each request that ended, the tokens generated; with `n > 1` the most that one of its sequences has."""
    n_params_iter: list[int] = field(default_factory=list)
    """Of each request that ended, its `n`."""
    time_to_first_tokens_iter: list[float] = field(default_factory=list)
    """Seconds, of each request that got its first token."""
    inter_token_latencies_iter: list[float] = field(default_factory=list)
    """Seconds since its previous token, of each request that got a further one."""

    def update_from_output(
        self,
        output: EngineCoreOutput,
        engine_core_timestamp: float,
        is_prefilling: bool,
        prompt_len: int,
        req_stats: RequestStateStats,
    ) -> None:
        """Take in a request's output, here and in its own statistics.

        Args:
            output: what the step brought for it.
            engine_core_timestamp: when the step ended, on the engine core's monotonic clock, in seconds.
            is_prefilling: this is its first output.
            prompt_len: tokens in its prompt.
            req_stats: its own statistics.
        """
        num_new_tokens = len(output.new_token_ids)
        self.num_generation_tokens += num_new_tokens
        req_stats.num_generation_tokens += num_new_tokens
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
        for event in output.events or ():
            if event.type == EngineCoreEventType.QUEUED:
                req_stats.queued_ts = event.timestamp
            elif event.type == EngineCoreEventType.PREEMPTED:
                self.num_preempted_reqs += 1
            elif req_stats.scheduled_ts == 0.0:  # later ones come after a preemption
                req_stats.scheduled_ts = event.timestamp

    def update_from_finished_request(
        self,
        finish_reason: FinishReason,
        num_prompt_tokens: int,
        max_tokens_param: int | None,
        req_stats: RequestStateStats,
    ) -> None:
        """Add a request that ended in this step to `finished_requests`."""
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
