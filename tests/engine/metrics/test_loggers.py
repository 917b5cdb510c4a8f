"""Tests of the log line and the Prometheus metrics, against a recording of vLLM 0.11.1."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics import MetricWrapperBase

from tests.engine.sched.harness import make_config
from tracellm.engine.ipc.messages import FinishReason
from tracellm.engine.metrics.loggers import LoggingStatLogger, StatLoggerBase, StatLoggerManager
from tracellm.engine.metrics.prometheus import PrometheusStatLogger, build_1_2_5_buckets
from tracellm.engine.metrics.stats import FinishedRequestStats, IterationStats, PrefixCacheStats, SchedulerStats

RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "metrics.json").read_text())

UNSUPPORTED_ARGS = {
    "vllm:engine_sleep_state": "tracellm does not sleep",
    "vllm:external_prefix_cache_hits": "no KV connectors",
    "vllm:external_prefix_cache_queries": "no KV connectors",
    "vllm:mm_cache_hits": "the cache of processed images and sounds has no metrics",
    "vllm:mm_cache_queries": "the cache of processed images and sounds has no metrics",
}
"""Metrics of vLLM that tracellm omits, with the reasons."""

CACHE_SETTINGS_NOT_HERE = {
    *("swap_space", "cache_dtype", "is_attention_free", "sliding_window", "prefix_caching_hash_algo", "cpu_offload_gb"),
    *("calculate_kv_scales", "cpu_kvcache_space_bytes", "mamba_page_size_padded", "mamba_block_size"),
    *("mamba_cache_dtype", "mamba_ssm_cache_dtype", "num_cpu_blocks", "kv_sharing_fast_prefill"),
    *("kv_offloading_size", "kv_offloading_backend"),
}
"""Settings of vLLM's KV cache that tracellm lacks; they are not labels of `vllm:cache_config_info`."""

STEP = SchedulerStats(
    num_running_reqs=3,
    num_waiting_reqs=2,
    kv_cache_usage=0.25,
    prefix_cache_stats=PrefixCacheStats(requests=1, queries=40, hits=10),
)


def iteration(**more: Any) -> IterationStats:
    """Make a step's statistics: one request of 40 tokens gets its first token, and another one its last."""
    finished = FinishedRequestStats(
        finish_reason=FinishReason.LENGTH,
        e2e_latency=2.0,
        num_prompt_tokens=7,
        num_generation_tokens=5,
        max_tokens_param=5,
        queued_time=0.1,
        prefill_time=0.4,
        inference_time=1.5,
        decode_time=1.1,
        mean_time_per_output_token=0.275,
    )
    values: dict[str, Any] = {
        "num_prompt_tokens": 40,
        "num_generation_tokens": 2,
        "finished_requests": [finished],
        "max_num_generation_tokens_iter": [5],
        "n_params_iter": [1],
        "time_to_first_tokens_iter": [0.03],
        "inter_token_latencies_iter": [0.2],
    }
    return IterationStats(**values | more)


def prometheus() -> PrometheusStatLogger:
    """Make a logger for 256 tokens, as in the recording."""
    logger = PrometheusStatLogger(make_config(max_model_len=256, num_gpu_blocks=100))
    logger.log_engine_initialized()
    return logger


def metrics_of(registry: CollectorRegistry) -> dict[str, dict[str, Any]]:
    """Return name, type, labels, bounds and samples in the recording's form."""
    found = {}
    for collector in list(registry._collector_to_names):
        assert isinstance(collector, MetricWrapperBase)
        (family,) = collector.collect()
        found[family.name] = {
            "name": family.name,
            "type": family.type,
            "labels": list(collector._labelnames),
            "buckets": list(dict.fromkeys(sample.labels["le"] for sample in family.samples if "le" in sample.labels)),
            "samples": sorted({s.name for s in family.samples if not s.name.endswith("_created")}),
        }
    return found


def test_the_metrics_are_vllms():
    """Names, types, labels, buckets and samples equal vLLM's, except for a listed few."""
    ours = metrics_of(prometheus().registry)
    theirs = {metric["name"]: metric for metric in RECORDED["metrics"]}
    assert ours.keys() == theirs.keys() - UNSUPPORTED_ARGS.keys()
    assert UNSUPPORTED_ARGS.keys() <= theirs.keys()
    for name, metric in ours.items():
        wanted = {key: theirs[name][key] for key in metric}
        if name == "vllm:cache_config_info":
            assert set(wanted["labels"]) - set(metric["labels"]) == CACHE_SETTINGS_NOT_HERE
            wanted["labels"] = [label for label in wanted["labels"] if label not in CACHE_SETTINGS_NOT_HERE]
            metric["labels"].sort(key=wanted["labels"].index)
        assert metric == wanted


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """Return the value of a sample."""
    return registry.get_sample_value(f"vllm:{name}", {"model_name": "none", "engine": "0"} | labels)


def test_what_a_step_adds():
    """Gauges show the current values, and counters and histograms add up."""
    logger = prometheus()
    for _ in range(2):
        logger.record(STEP, iteration())
    logger.record(SchedulerStats(num_running_reqs=1), None)
    registry = logger.registry
    expected = {
        "num_requests_running": 1,
        "num_requests_waiting": 0,
        "kv_cache_usage_perc": 0,
        "prefix_cache_queries_total": 80,
        "prefix_cache_hits_total": 20,
        "num_preemptions_total": 0,
        "prompt_tokens_total": 80,
        "generation_tokens_total": 4,
        "iteration_tokens_total_sum": 84,
        "iteration_tokens_total_count": 2,
        "time_to_first_token_seconds_sum": 0.06,
        "inter_token_latency_seconds_sum": 0.4,
        "time_per_output_token_seconds_sum": 0.4,
        "request_time_per_output_token_seconds_sum": 0.55,
        "e2e_request_latency_seconds_sum": 4.0,
        "request_queue_time_seconds_sum": 0.2,
        "request_prefill_time_seconds_sum": 0.8,
        "request_inference_time_seconds_sum": 3.0,
        "request_decode_time_seconds_sum": 2.2,
        "request_prompt_tokens_sum": 14,
        "request_generation_tokens_sum": 10,
        "request_max_num_generation_tokens_sum": 10,
        "request_params_n_sum": 2,
        "request_params_max_tokens_sum": 10,
    }
    assert {name: value(registry, name) for name in expected} == pytest.approx(expected)
    assert value(registry, "request_success_total", finished_reason="length") == 2
    assert value(registry, "request_success_total", finished_reason="stop") == 0
    logger.record(None, iteration(num_preempted_reqs=3))
    assert value(registry, "num_preemptions_total") == 3


def test_two_engines_in_a_process_do_not_clash():
    """Two engines in a process have separate metrics."""
    first, second = prometheus(), prometheus()
    first.record(STEP, iteration())
    assert value(first.registry, "prompt_tokens_total") == 40
    assert value(second.registry, "prompt_tokens_total") == 0
    assert b'vllm:num_requests_running{engine="0",model_name="none"} 3.0' in generate_latest(first.registry)


@pytest.mark.parametrize(("largest", "bounds"), [(1, [1]), (9, [1, 2, 5]), (100, [1, 2, 5, 10, 20, 50, 100])])
def test_bounds_of_counts(largest, bounds):
    """Bounds of counts are 1, 2, 5, 10 and so on, up to the largest possible count."""
    assert build_1_2_5_buckets(largest) == bounds


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return level and text of the lines logged since the last call."""
    found = [(record.levelname, record.getMessage()) for record in caplog.records]
    caplog.clear()
    return found


def test_the_line_in_the_log(caplog, monkeypatch):
    """The log line shows tokens per second since the last line, at DEBUG after two idle intervals."""
    caplog.set_level(logging.DEBUG)
    now = 100.0
    monkeypatch.setattr("tracellm.engine.metrics.loggers.time.monotonic", lambda: now)
    logger = LoggingStatLogger(make_config())
    logger.record(STEP, iteration())
    now += 10
    logger.log()
    assert lines(caplog) == [
        (
            "INFO",
            "Engine 000: Avg prompt throughput: 4.0 tokens/s, Avg generation throughput: 0.2 tokens/s, "
            "Running: 3 reqs, Waiting: 2 reqs, GPU KV cache usage: 25.0%, Prefix cache hit rate: 25.0%",
        )
    ]
    logger.record(None, iteration(num_preempted_reqs=2))
    now += 10
    logger.log()
    assert ", Preemptions: 2, GPU KV" in lines(caplog)[0][1]
    levels = []
    for _ in range(3):
        now += 10
        logger.log()
        ((level, line),) = lines(caplog)
        assert "generation throughput: 0.0 tokens/s" in line
        levels.append(level)
    assert levels == ["INFO", "DEBUG", "DEBUG"]


def test_a_logger_of_ones_own():
    """A custom logger is made with the configuration, gets every step, and logs when the others do."""
    calls: list[Any] = []

    class Own(StatLoggerBase):
        def __init__(self, vllm_config, engine_index=0):
            calls.append((vllm_config, engine_index))

        def record(self, scheduler_stats, iteration_stats, engine_idx=0):
            calls.append((scheduler_stats, engine_idx))

        def log_engine_initialized(self):
            calls.append("initialized")

        def log(self):
            calls.append("log")

    config = make_config()
    manager = StatLoggerManager(config, [Own], enable_default_loggers=False)
    manager.log_engine_initialized()
    manager.record(STEP, None)
    manager.log()
    assert calls == [(config, 0), "initialized", (STEP, 0), "log"]
    assert [[type(logger) for logger in loggers] for loggers in manager.per_engine_loggers] == [[Own]]
    assert value(manager.prometheus_registry, "num_requests_running") == 3
