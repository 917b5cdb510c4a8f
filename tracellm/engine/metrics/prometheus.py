"""The engine's Prometheus metrics, under vLLM's names: what a dashboard made for vLLM reads from /metrics.

`PrometheusStatLogger` has a registry of its own, which the server hands to prometheus_client:

    prometheus_client.generate_latest(async_llm.prometheus_registry)

vLLM: vllm/v1/metrics/loggers.py::PrometheusStatLogger. Left out: metrics of what tracellm does not have (sleeping,
caches of other machines, multimodal caches, LoRA, speculative decoding), and those that 0.11.1 hides as outdated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.ipc.messages import FinishReason
from tracellm.engine.metrics.loggers import StatLoggerBase
from tracellm.engine.metrics.scheduler_stats import SchedulerStats
from tracellm.engine.metrics.stats import IterationStats

__all__ = ["PrometheusStatLogger", "build_1_2_5_buckets"]

_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_EACH_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)

_GAUGES = {
    "num_requests_running": "Number of requests that run: they take part in the steps.",
    "num_requests_waiting": "Number of requests that wait to run.",
    "kv_cache_usage_perc": "The share of the KV cache's blocks in use; 1 is all.",
}
_COUNTERS = {
    "prefix_cache_queries": "Tokens that were looked for in the prefix cache.",
    "prefix_cache_hits": "Tokens that were found in the prefix cache.",
    "num_preemptions": "Preemptions: a running request lost its blocks to another one.",
    "prompt_tokens": "Prompt tokens of the requests that got their first token.",
    "generation_tokens": "Generated tokens.",
}
_FINISHED = {  # of each finished request: the field of FinishedRequestStats, and what it is
    "request_prompt_tokens": ("num_prompt_tokens", "Prompt tokens of a request."),
    "request_generation_tokens": ("num_generation_tokens", "Tokens generated for a request."),
    "request_params_max_tokens": ("max_tokens_param", "The parameter `max_tokens` of a request."),
    "request_time_per_output_token_seconds": ("mean_time_per_output_token", "Seconds for each token after the first."),
    "e2e_request_latency_seconds": ("e2e_latency", "Seconds from a request's arrival to its last output."),
    "request_queue_time_seconds": ("queued_time", "Seconds that a request waited before it first ran."),
    "request_inference_time_seconds": ("inference_time", "Seconds from when a request first ran to its last token."),
    "request_prefill_time_seconds": ("prefill_time", "Seconds from when a request first ran to its first token."),
    "request_decode_time_seconds": ("decode_time", "Seconds from a request's first token to its last."),
}
_ITERATION = {  # of each step: the list in IterationStats
    "request_max_num_generation_tokens": (
        "max_num_generation_tokens_iter",
        "Tokens of the longest of a request's `n` sequences.",
    ),
    "request_params_n": ("n_params_iter", "The parameter `n` of a request."),
    "time_to_first_token_seconds": (
        "time_to_first_tokens_iter",
        "Seconds from a request's arrival to its first token.",
    ),
    "inter_token_latency_seconds": ("inter_token_latencies_iter", "Seconds between two tokens of a request."),
    "time_per_output_token_seconds": (
        "inter_token_latencies_iter",
        "The same as vllm:inter_token_latency_seconds, under its older name.",
    ),
}


def _buckets(name: str, max_model_len: int) -> Sequence[float]:
    """The bounds of a histogram, as in vLLM."""
    if name == "iteration_tokens_total":
        return (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    if name == "request_params_n":
        return (1, 2, 5, 10, 20)
    if name == "time_to_first_token_seconds":
        return _FIRST_TOKEN
    if "token_latency" in name or "output_token" in name:
        return _EACH_TOKEN
    return _REQUEST if name.endswith("_seconds") else build_1_2_5_buckets(max_model_len)


def build_1_2_5_buckets(max_value: int) -> list[int]:
    """Bounds of a histogram of counts.

    >>> build_1_2_5_buckets(100)
    [1, 2, 5, 10, 20, 50, 100]
    """
    powers = (10**exponent for exponent in range(len(str(max_value))))
    return [bound for power in powers for bound in (power, 2 * power, 5 * power) if bound <= max_value]


class PrometheusStatLogger(StatLoggerBase):
    """Gauges, counters and histograms, all with the labels `model_name` and `engine`, in a registry of their own."""

    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None:
        self.vllm_config = vllm_config
        self.engine_index = engine_index
        self.registry = CollectorRegistry(auto_describe=True)
        model_config = vllm_config.model_config
        self._labels = {"model_name": model_config.served_model_name, "engine": str(engine_index)}
        self._gauges = {name: self._gauge(name, said) for name, said in _GAUGES.items()}
        self._counters = {name: self._counter(name, said).labels(**self._labels) for name, said in _COUNTERS.items()}
        success = self._counter("request_success", "Requests that ended in the engine, by reason.", "finished_reason")
        self._success = {reason: success.labels(**self._labels, finished_reason=str(reason)) for reason in FinishReason}
        descriptions = {"iteration_tokens_total": "Tokens of a step: prompts that were completed, and generated ones."}
        descriptions |= {name: said for name, (_, said) in (_FINISHED | _ITERATION).items()}
        self._histograms = {
            name: self._histogram(name, said, _buckets(name, model_config.max_model_len))
            for name, said in descriptions.items()
        }

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(f"vllm:{name}", documentation, list(self._labels), registry=self.registry).labels(**self._labels)

    def _counter(self, name: str, documentation: str, *further_labels: str) -> Counter:
        return Counter(f"vllm:{name}", documentation, [*self._labels, *further_labels], registry=self.registry)

    def _histogram(self, name: str, documentation: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(
            f"vllm:{name}", documentation, list(self._labels), buckets=buckets, registry=self.registry
        ).labels(**self._labels)

    def log_engine_initialized(self) -> None:
        """Tell the cache's settings, as the labels of a gauge that is always 1."""
        settings = {name: str(value) for name, value in asdict(self.vllm_config.cache_config).items()}
        settings["engine"] = str(self.engine_index)
        Gauge("vllm:cache_config_info", "The settings of the KV cache.", list(settings), registry=self.registry).labels(
            **settings
        ).set(1)

    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, engine_idx: int = 0
    ) -> None:
        """Take in a step."""
        if scheduler_stats is not None:
            self._gauges["num_requests_running"].set(scheduler_stats.num_running_reqs)
            self._gauges["num_requests_waiting"].set(scheduler_stats.num_waiting_reqs)
            self._gauges["kv_cache_usage_perc"].set(scheduler_stats.kv_cache_usage)
            self._counters["prefix_cache_queries"].inc(scheduler_stats.prefix_cache_stats.queries)
            self._counters["prefix_cache_hits"].inc(scheduler_stats.prefix_cache_stats.hits)
        if iteration_stats is None:
            return
        num_prompt_tokens, num_generation_tokens = (
            iteration_stats.num_prompt_tokens,
            iteration_stats.num_generation_tokens,
        )
        self._counters["num_preemptions"].inc(iteration_stats.num_preempted_reqs)
        self._counters["prompt_tokens"].inc(num_prompt_tokens)
        self._counters["generation_tokens"].inc(num_generation_tokens)
        self._histograms["iteration_tokens_total"].observe(num_prompt_tokens + num_generation_tokens)
        for name, (values, _) in _ITERATION.items():
            for value in getattr(iteration_stats, values):
                self._histograms[name].observe(value)
        for request in iteration_stats.finished_requests:
            self._success[request.finish_reason].inc()
            for name, (value, _) in _FINISHED.items():
                self._histograms[name].observe(getattr(request, value))
