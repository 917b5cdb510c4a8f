"""The scheduler's requests: those that wait, those that run, and those that have just ended.

In a request's life: `EngineCore.add_request` queues it here; it leaves when it ends, whoever ends it: its client, an
error, or `Scheduler.update_from_output`, which sees its last token.

vLLM: in vllm/v1/core/sched/scheduler.py::Scheduler itself.
"""

from collections.abc import Iterable

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
from tracellm.engine.core.kv_cache.kv_cache_manager import KVCacheManager
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.request_queue import SchedulingPolicy, create_request_queue
from tracellm.engine.ipc.messages import EngineCoreEventType
from tracellm.engine.metrics.stats import SchedulerStats

__all__ = ["SchedulerRequests"]


class SchedulerRequests:
    """Who is there, and which KV blocks they hold; the `Scheduler` decides what becomes of them."""

    def __init__(self, vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, log_stats: bool) -> None:
        self.log_stats = log_stats  # keep statistics, and let requests note when they are queued, scheduled, preempted
        self.policy = SchedulingPolicy(vllm_config.scheduler_config.policy)
        self.requests: dict[str, Request] = {}
        """All requests that have not ended, by id."""
        self.waiting = create_request_queue(self.policy)
        self.running: list[Request] = []
        self.constrained_req_ids: set[str] = set()
        """Those of them whose output is constrained."""
        self.finished_req_ids: set[str] = set()
        """Requests that ended since the last step, of which the workers are to be told."""
        self.failed_reqs: list[Request] = []
        """Requests that ended by an error since the last step, of which their clients are to be told."""
        self.kv_cache_manager = KVCacheManager(
            kv_cache_config, vllm_config.cache_config.enable_prefix_caching, log_stats
        )

    def add_request(self, request: Request) -> None:
        """Queue a request."""
        self.requests[request.request_id] = request
        if request.use_structured_output:
            self.constrained_req_ids.add(request.request_id)
        self.waiting.add_request(request)
        if self.log_stats:
            request.record_event(EngineCoreEventType.QUEUED)

    def finish_requests(self, request_ids: str | Iterable[str], finished_status: RequestStatus) -> None:
        """End requests from outside: the client went away, or found a stop string.

        Ids of requests that have ended, or never were, are passed over.
        """
        assert RequestStatus.is_finished(finished_status)
        # In the order given, where vLLM goes through a set: the order in which blocks are freed should not be luck.
        ids = dict.fromkeys([request_ids] if isinstance(request_ids, str) else request_ids)
        requests = [self.requests[request_id] for request_id in ids if request_id in self.requests]
        running = {request for request in requests if request.status is RequestStatus.RUNNING}
        if running:
            self.running = [request for request in self.running if request not in running]
        if len(running) < len(requests):
            self.waiting.remove_requests(request for request in requests if request not in running)
        for request in requests:
            request.status = finished_status
            self._free_request(request)

    def _fail_request(self, request: Request, why: str) -> None:
        """End a request that cannot go on. vLLM 0.11.1 has no such end; later versions have."""
        request.status = RequestStatus.FINISHED_ERROR
        request.stop_reason = why
        self.failed_reqs.append(request)
        self._free_request(request)

    def _free_request(self, request: Request) -> None:
        """Forget a request that has ended, and tell the workers to."""
        assert request.is_finished()
        self.kv_cache_manager.free(request)
        self.finished_req_ids.add(request.request_id)
        del self.requests[request.request_id]
        self.constrained_req_ids.discard(request.request_id)

    def get_request_counts(self) -> tuple[int, int]:
        """How many requests run, and how many wait."""
        return len(self.running), len(self.waiting)

    def get_num_unfinished_requests(self) -> int:
        """How many requests run or wait."""
        return len(self.running) + len(self.waiting)

    def has_unfinished_requests(self) -> bool:
        """Does any request run or wait?"""
        return self.get_num_unfinished_requests() > 0

    def has_finished_requests(self) -> bool:
        """Did any request end of which the workers do not know yet?"""
        return len(self.finished_req_ids) > 0

    def has_requests(self) -> bool:
        """Is there anything a step would do?"""
        return self.has_unfinished_requests() or self.has_finished_requests()

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content. Refuses (False) while a block is in use."""
        return self.kv_cache_manager.reset_prefix_cache()

    def make_stats(self) -> SchedulerStats | None:
        """How things stand, and what was looked for in the prefix cache since the last call; `None` if unwanted."""
        if (prefix_cache_stats := self.kv_cache_manager.make_prefix_cache_stats()) is None:
            return None
        return SchedulerStats(
            num_running_reqs=len(self.running),
            num_waiting_reqs=len(self.waiting),
            kv_cache_usage=self.kv_cache_manager.usage,
            prefix_cache_stats=prefix_cache_stats,
        )
