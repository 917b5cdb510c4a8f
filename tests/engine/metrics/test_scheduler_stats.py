"""Tests of the scheduler's statistics after each step, and of the hit rate over many."""

import pytest

from tests.engine.sched.harness import make_request, make_scheduler, run_step
from tracellm.engine.core.kv_cache.kv_cache_manager import KVCacheManager
from tracellm.engine.core.sched.scheduler import Scheduler
from tracellm.engine.metrics.stats import CachingMetrics, PrefixCacheStats, SchedulerStats


def watched_scheduler(**arguments) -> Scheduler:
    """Make a scheduler that keeps statistics."""
    scheduler = make_scheduler(**arguments)
    manager = scheduler.kv_cache_manager
    assert manager.prefix_cache_stats is None
    scheduler.log_stats = True
    manager.prefix_cache_stats = PrefixCacheStats()
    return scheduler


def stats_of_steps(scheduler: Scheduler) -> list[SchedulerStats]:
    """Return the statistics of each step until no request is left."""
    found = []
    while scheduler.has_requests():
        _, outputs = run_step(scheduler)
        stats = outputs[0].scheduler_stats
        assert stats is not None
        found.append(stats)
    return found


def test_running_waiting_and_usage():
    """Running and waiting requests and usage are those after the step; the last step reports none."""
    scheduler = watched_scheduler(num_gpu_blocks=11, block_size=4, max_num_seqs=1, enable_prefix_caching=False)
    for name in "ab":
        scheduler.add_request(make_request(name, 4, max_tokens=2, block_size=None))
    steps = stats_of_steps(scheduler)
    seen = [(stats.num_running_reqs, stats.num_waiting_reqs, round(stats.kv_cache_usage, 6)) for stats in steps]
    assert seen == [(1, 1, 0.1), (0, 1, 0.0), (1, 0, 0.1), (0, 0, 0.0), (0, 0, 0.0)]


def test_what_was_looked_for_in_the_prefix_cache():
    """Prefix cache queries and hits count in a request's first step, and separately after a preemption."""
    scheduler = watched_scheduler(num_gpu_blocks=8, block_size=4, max_model_len=24)
    scheduler.add_request(make_request("a", range(9), max_tokens=2, block_size=4))
    first, *_ = stats_of_steps(scheduler)
    assert first.prefix_cache_stats == PrefixCacheStats(requests=1, queries=9, hits=0)
    scheduler.add_request(make_request("b", range(9), max_tokens=15, block_size=4))
    scheduler.add_request(make_request("c", range(9), max_tokens=15, block_size=4))
    steps = [stats.prefix_cache_stats for stats in stats_of_steps(scheduler)]
    assert steps[0] == PrefixCacheStats(requests=2, queries=18, hits=16)
    assert sum(step.requests for step in steps[1:]) == 0
    assert sum(step.preempted_requests for step in steps) >= 1
    assert sum(step.preempted_hits for step in steps) <= sum(step.preempted_queries for step in steps)


def test_emptying_the_cache_is_told():
    """A reset of the prefix cache is reported once, with the next step."""
    scheduler = watched_scheduler()
    assert scheduler.reset_prefix_cache()
    scheduler.add_request(make_request("a", 4, max_tokens=2))
    assert [stats.prefix_cache_stats.reset for stats in stats_of_steps(scheduler)] == [True, False, False]


def test_none_when_nobody_keeps_statistics():
    """Without statistics neither the scheduler nor its KV cache counts."""
    scheduler = make_scheduler()
    assert isinstance(scheduler.kv_cache_manager, KVCacheManager)
    scheduler.add_request(make_request("a", 4, max_tokens=1))
    _, outputs = run_step(scheduler)
    assert outputs[0].scheduler_stats is None
    assert scheduler.make_stats() is None
    assert run_step(scheduler)[1] == {}


def test_the_hit_rate_is_that_of_the_latest_requests():
    """The hit rate covers the latest requests, always keeps the latest step, and restarts when the cache is reset."""
    metrics = CachingMetrics(max_recent_requests=10)
    assert (metrics.empty, metrics.hit_rate) == (True, 0.0)
    metrics.observe(PrefixCacheStats(requests=5, queries=100, hits=0))
    metrics.observe(PrefixCacheStats())
    metrics.observe(PrefixCacheStats(requests=5, queries=100, hits=50))
    assert metrics.hit_rate == 0.25
    metrics.observe(PrefixCacheStats(requests=5, queries=100, hits=100))
    assert metrics.hit_rate == 0.75
    metrics.observe(PrefixCacheStats(requests=50, queries=10, hits=1))
    assert metrics.hit_rate == pytest.approx(0.1)
    metrics.observe(PrefixCacheStats(reset=True, requests=1, queries=4, hits=4))
    assert metrics.hit_rate == 1.0
