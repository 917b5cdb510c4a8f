"""Prometheus metrics of the engine under vLLM's names, so dashboards for vLLM work with the server's /metrics.

`PrometheusStatLogger` records each step in its own registry, which the server exports:

    prometheus_client.generate_latest(async_llm.prometheus_registry)

vLLM: vllm/v1/metrics/loggers.py::PrometheusStatLogger. Left out: metrics of sleep mode, remote caches, multimodal
caches, LoRA and speculative decoding, and the deprecated metrics that vLLM 0.11.1 hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.ipc.messages import FinishReason
from tracellm.engine.metrics.loggers import StatLoggerBase
from tracellm.engine.metrics.stats import IterationStats, SchedulerStats

__all__ = ["PrometheusStatLogger", "build_1_2_5_buckets"]

_FIRST_TOKEN_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
_REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)

_GAUGES = {
    "num_requests_running": "Running requests.",
    "num_requests_waiting": "Waiting requests.",
    "kv_cache_usage_perc": "Share of the KV cache blocks in use, 0 to 1.",
}
_COUNTERS = {
    "prefix_cache_queries": "Tokens looked up in the prefix cache.",
    "prefix_cache_hits": "Tokens found in the prefix cache.",
    "num_preemptions": "Preemptions of running requests.",
    "prompt_tokens": "Prompt tokens of the requests that got their first token.",
    "generation_tokens": "Generated tokens.",
}
_FINISHED = {  # name: (field of FinishedRequestStats, documentation)
    "request_prompt_tokens": ("num_prompt_tokens", "Prompt tokens of a request."),
    "request_generation_tokens": ("num_generation_tokens", "Tokens generated for a request."),
    "request_params_max_tokens": ("max_tokens_param", "The parameter `max_tokens` of a request."),
    "request_time_per_output_token_seconds": ("mean_time_per_output_token", "Seconds per token after the first."),
    "e2e_request_latency_seconds": ("e2e_latency", "Seconds from a request's arrival to its last output."),
    "request_queue_time_seconds": ("queued_time", "Seconds from a request's queuing to its first scheduling."),
    "request_inference_time_seconds": (
        "inference_time",
        "Seconds from first scheduling to its last token.",
    ),
    "request_prefill_time_seconds": ("prefill_time", "Seconds from first scheduling to its first token."),
    "request_decode_time_seconds": ("decode_time", "Seconds from a request's first token to its last."),
}
_ITERATION = {  # name: (list in IterationStats, documentation)
    "request_max_num_generation_tokens": (
        "max_num_generation_tokens_iter",
        "Generated tokens of a request's longest sequence.",
    ),
    "request_params_n": ("n_params_iter", "The parameter `n` of a request."),
    "time_to_first_token_seconds": (
        "time_to_first_tokens_iter",
        "Seconds from a request's arrival to its first token.",
    ),
    "inter_token_latency_seconds": ("inter_token_latencies_iter", "Seconds between consecutive tokens of a request."),
    "time_per_output_token_seconds": (
        "inter_token_latencies_iter",
        "Older name of vllm:inter_token_latency_seconds.",
    ),
}


def _buckets(name: str, max_model_len: int) -> Sequence[float]:
    """Return the bucket bounds of a histogram, as in vLLM."""
    if name == "iteration_tokens_total":
        return (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    if name == "request_params_n":
        return (1, 2, 5, 10, 20)
    if name == "time_to_first_token_seconds":
        return _FIRST_TOKEN_BUCKETS
    if "token_latency" in name or "output_token" in name:
        return _TOKEN_BUCKETS
    return _REQUEST_BUCKETS if name.endswith("_seconds") else build_1_2_5_buckets(max_model_len)


def build_1_2_5_buckets(max_value: int) -> list[int]:
    """Return the bucket bounds for counts up to `max_value`.

    >>> build_1_2_5_buckets(100)
    [1, 2, 5, 10, 20, 50, 100]
    """
    powers = (10**exponent for exponent in range(len(str(max_value))))
    return [bound for power in powers for bound in (power, 2 * power, 5 * power) if bound <= max_value]


class _EngineMetrics(NamedTuple):
    """Metrics of one engine core."""

    gauges: dict[str, Gauge]
    counters: dict[str, Counter]
    success: dict[FinishReason, Counter]
    histograms: dict[str, Histogram]


class PrometheusStatLogger(StatLoggerBase):
    """Logger of Prometheus metrics with the labels `model_name` and `engine`, in a registry of its own.

    One logger records all engine cores, as a metric is registered once.
    """

    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None:
        self.vllm_config = vllm_config
        self.registry = CollectorRegistry(auto_describe=True)
        model_config = vllm_config.model_config
        self._num_engines = vllm_config.parallel_config.data_parallel_size
        gauges = {name: Gauge(**self._definition(name, text)) for name, text in _GAUGES.items()}
        counters = {name: Counter(**self._definition(name, text)) for name, text in _COUNTERS.items()}
        success = Counter(**self._definition("request_success", "Finished requests by reason.", "finished_reason"))
        descriptions = {"iteration_tokens_total": "Tokens of a step: completed prompts and generated tokens."}
        descriptions |= {name: documentation for name, (_, documentation) in (_FINISHED | _ITERATION).items()}
        histograms = {
            name: Histogram(**self._definition(name, text), buckets=_buckets(name, model_config.max_model_len))
            for name, text in descriptions.items()
        }
        self._engines = [
            _EngineMetrics(
                {name: metric.labels(*labels) for name, metric in gauges.items()},
                {name: metric.labels(*labels) for name, metric in counters.items()},
                {reason: success.labels(*labels, str(reason)) for reason in FinishReason},
                {name: metric.labels(*labels) for name, metric in histograms.items()},
            )
            for labels in ((model_config.served_model_name, str(index)) for index in range(self._num_engines))
        ]

    def _definition(self, name: str, documentation: str, *further_labels: str) -> dict[str, Any]:
        """Return the arguments of a metric."""
        labels = ("model_name", "engine", *further_labels)
        return {
            "name": f"vllm:{name}",
            "documentation": documentation,
            "labelnames": labels,
            "registry": self.registry,
        }

    def log_engine_initialized(self) -> None:
        """Export the cache settings as labels of a gauge with the value 1."""
        settings = {name: str(value) for name, value in asdict(self.vllm_config.cache_config).items()}
        labels = [*settings, "engine"]
        gauge = Gauge("vllm:cache_config_info", "Settings of the KV cache.", labels, registry=self.registry)
        for index in range(self._num_engines):
            gauge.labels(**settings, engine=str(index)).set(1)

    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, engine_idx: int = 0
    ) -> None:
        """Record a step."""
        metrics = self._engines[engine_idx]
        if scheduler_stats is not None:
            metrics.gauges["num_requests_running"].set(scheduler_stats.num_running_reqs)
            metrics.gauges["num_requests_waiting"].set(scheduler_stats.num_waiting_reqs)
            metrics.gauges["kv_cache_usage_perc"].set(scheduler_stats.kv_cache_usage)
            metrics.counters["prefix_cache_queries"].inc(scheduler_stats.prefix_cache_stats.queries)
            metrics.counters["prefix_cache_hits"].inc(scheduler_stats.prefix_cache_stats.hits)
        if iteration_stats is None:
            return
        num_prompt_tokens = iteration_stats.num_prompt_tokens
        num_generation_tokens = iteration_stats.num_generation_tokens
        metrics.counters["num_preemptions"].inc(iteration_stats.num_preempted_reqs)
        metrics.counters["prompt_tokens"].inc(num_prompt_tokens)
        metrics.counters["generation_tokens"].inc(num_generation_tokens)
        metrics.histograms["iteration_tokens_total"].observe(num_prompt_tokens + num_generation_tokens)
        for name, (values, _) in _ITERATION.items():
            for value in getattr(iteration_stats, values):
                metrics.histograms[name].observe(value)
        for request in iteration_stats.finished_requests:
            metrics.success[request.finish_reason].inc()
            for name, (value, _) in _FINISHED.items():
                if (observed := getattr(request, value)) is not None:  # pooling has no `max_tokens`
                    metrics.histograms[name].observe(observed)
