"""Loggers of step statistics: log lines and Prometheus metrics.

The output handler of `AsyncLLM` calls `StatLoggerManager.record` after each step. `AsyncLLM.do_log_stats` writes a log
line; vLLM's server calls it every ten seconds, tracellm's server only has /metrics.

vLLM: vllm/v1/metrics/loggers.py. `PrometheusStatLogger` is in prometheus.py, imported on first use. Left out:
aggregation over several engine cores, plugins, speculative decoding, KV connectors.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.metrics.stats import CachingMetrics, IterationStats, SchedulerStats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["LoggingStatLogger", "StatLoggerBase", "StatLoggerFactory", "StatLoggerManager"]

logger = logging.getLogger(__name__)


class StatLoggerBase(ABC):
    """Interface of a statistics logger, called by `StatLoggerManager`.

    vLLM: vllm/v1/metrics/loggers.py::StatLoggerBase.
    """

    @abstractmethod
    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None: ...

    @abstractmethod
    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, engine_idx: int = 0
    ) -> None:
        """Record a step.

        Args:
            scheduler_stats: State of the scheduler after the step.
            iteration_stats: Results of the step; None if no request got a token.
            engine_idx: Index of the engine core.
        """

    @abstractmethod
    def log_engine_initialized(self) -> None:
        """Log the settings of an initialized engine core, such as the number of KV cache blocks."""

    def log(self) -> None:
        """Log the statistics since the previous call."""
        return


StatLoggerFactory = Callable[[VllmConfig, int], StatLoggerBase]
"""Factory of a logger from a configuration and an engine index, such as a subclass of `StatLoggerBase`."""


class LoggingStatLogger(StatLoggerBase):
    """Logger of text lines: throughput since the previous line, current requests and cache usage.

    An idle engine logs at level DEBUG.

    vLLM: vllm/v1/metrics/loggers.py::LoggingStatLogger.
    """

    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None:
        self.engine_index = engine_index
        self.vllm_config = vllm_config
        self.last_scheduler_stats = SchedulerStats()
        self.prefix_caching_metrics = CachingMetrics()
        self.last_prompt_throughput = 0.0
        """Tokens per second in the previous line."""
        self.last_generation_throughput = 0.0
        self.engine_is_idle = False
        self._reset(time.monotonic())

    def _reset(self, now: float) -> None:
        """Reset the counters for the next line."""
        self.last_log_time = now
        self.num_prompt_tokens = 0
        self.num_generation_tokens = 0
        self.num_preemptions = 0

    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, engine_idx: int = 0
    ) -> None:
        """Add a step to the counters."""
        if iteration_stats is not None:
            self.num_prompt_tokens += iteration_stats.num_prompt_tokens
            self.num_generation_tokens += iteration_stats.num_generation_tokens
            self.num_preemptions += iteration_stats.num_preempted_reqs
        if scheduler_stats is not None:
            self.prefix_caching_metrics.observe(scheduler_stats.prefix_cache_stats)
            self.last_scheduler_stats = scheduler_stats

    def log(self) -> None:
        """Log a line and reset the counters. vLLM never logs preemptions, since it resets first."""
        now = time.monotonic()
        seconds = now - self.last_log_time
        prompt_throughput = self.num_prompt_tokens / seconds if seconds > 0 else 0.0
        generation_throughput = self.num_generation_tokens / seconds if seconds > 0 else 0.0
        previous = self.last_prompt_throughput, self.last_generation_throughput
        self.engine_is_idle = not any((prompt_throughput, generation_throughput, *previous))
        self.last_prompt_throughput, self.last_generation_throughput = prompt_throughput, generation_throughput
        num_preemptions = self.num_preemptions
        self._reset(now)

        stats = self.last_scheduler_stats
        parts = [
            f"Avg prompt throughput: {prompt_throughput:.1f} tokens/s",
            f"Avg generation throughput: {generation_throughput:.1f} tokens/s",
            f"Running: {stats.num_running_reqs} reqs",
            f"Waiting: {stats.num_waiting_reqs} reqs",
            *([f"Preemptions: {num_preemptions}"] if num_preemptions else []),
            f"GPU KV cache usage: {stats.kv_cache_usage:.1%}",
            f"Prefix cache hit rate: {self.prefix_caching_metrics.hit_rate:.1%}",
        ]
        level = logging.DEBUG if self.engine_is_idle else logging.INFO
        logger.log(level, "Engine %03d: %s", self.engine_index, ", ".join(parts))

    def log_engine_initialized(self) -> None:
        """Log the number of KV cache blocks."""
        num_blocks = self.vllm_config.cache_config.num_gpu_blocks
        if num_blocks is not None:
            logger.debug("Engine %03d: the KV cache has %d blocks.", self.engine_index, num_blocks)


class StatLoggerManager:
    """All loggers of an engine, called by `AsyncLLM`.

    vLLM: vllm/v1/metrics/loggers.py::StatLoggerManager.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        custom_stat_loggers: Sequence[StatLoggerFactory] | None = None,
        enable_default_loggers: bool = True,
    ) -> None:
        """Make the custom loggers and, if enabled, text loggers for each engine core, and the Prometheus logger."""
        from tracellm.engine.metrics.prometheus import PrometheusStatLogger

        factories: list[StatLoggerFactory] = list(custom_stat_loggers or ())
        if enable_default_loggers:
            factories.append(LoggingStatLogger)
        self.per_engine_loggers = [
            [factory(vllm_config, index) for factory in factories]
            for index in range(vllm_config.parallel_config.data_parallel_size)
        ]
        self.prometheus_logger = PrometheusStatLogger(vllm_config)
        self.prometheus_registry: CollectorRegistry = self.prometheus_logger.registry
        """Metrics of this engine alone. vLLM uses the global registry and unregisters an earlier engine's metrics."""

    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, engine_idx: int = 0
    ) -> None:
        """Record a step with the loggers of its engine core."""
        for stat_logger in (*self.per_engine_loggers[engine_idx], self.prometheus_logger):
            stat_logger.record(scheduler_stats, iteration_stats, engine_idx)

    def _all_loggers(self) -> list[StatLoggerBase]:
        return [*chain.from_iterable(self.per_engine_loggers), self.prometheus_logger]

    def log(self) -> None:
        """Log the statistics since the previous call with all loggers."""
        for stat_logger in self._all_loggers():
            stat_logger.log()

    def log_engine_initialized(self) -> None:
        """Log the engine's settings with all loggers."""
        for stat_logger in self._all_loggers():
            stat_logger.log_engine_initialized()
