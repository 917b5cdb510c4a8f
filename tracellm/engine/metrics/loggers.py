"""Who takes in the statistics of every step: a line in the log now and then, and Prometheus metrics.

The output handler of `AsyncLLM` calls `StatLoggerManager.record` after each step that it receives, and whoever runs the
engine calls `AsyncLLM.do_log_stats` as often as a line is wanted (vLLM's server every ten seconds; ours never: it has
/metrics).

vLLM: vllm/v1/metrics/loggers.py; `PrometheusStatLogger` is in prometheus.py here, which is imported only when it is
made. Left out: several engine cores and what aggregates them, plugins, speculative decoding, KV connectors.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.metrics.scheduler_stats import CachingMetrics, SchedulerStats
from tracellm.engine.metrics.stats import IterationStats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["LoggingStatLogger", "StatLoggerBase", "StatLoggerFactory", "StatLoggerManager"]

logger = logging.getLogger(__name__)


class StatLoggerBase(ABC):
    """What a logger of statistics must be able to do.

    vLLM: vllm/v1/metrics/loggers.py::StatLoggerBase.
    """

    @abstractmethod
    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None: ...

    @abstractmethod
    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, engine_idx: int = 0
    ) -> None:
        """Take in a step.

        Args:
            scheduler_stats: the scheduler after it.
            iteration_stats: what it brought; `None` when no request got a token.
            engine_idx: of which engine core; there is one, 0.
        """

    @abstractmethod
    def log_engine_initialized(self) -> None:
        """The engine core is there, and with it the number of KV blocks."""

    def log(self) -> None:
        """Say what happened since the last time."""
        return


StatLoggerFactory = Callable[[VllmConfig, int], StatLoggerBase]
"""Makes a logger for a configuration and the index of an engine core; a subclass of `StatLoggerBase` is one."""


class LoggingStatLogger(StatLoggerBase):
    """A line in the log: throughput since the last one, requests and caches as they are now.

    While nothing happens it is logged at level DEBUG, so that an idle server is silent.

    vLLM: vllm/v1/metrics/loggers.py::LoggingStatLogger.
    """

    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None:
        self.engine_index = engine_index
        self.vllm_config = vllm_config
        self.last_scheduler_stats = SchedulerStats()
        self.prefix_caching_metrics = CachingMetrics()
        self.last_prompt_throughput = 0.0
        """Tokens per second, in the latest line."""
        self.last_generation_throughput = 0.0
        self.engine_is_idle = False
        self._reset(time.monotonic())

    def _reset(self, now: float) -> None:
        """Begin to count for the next line."""
        self.last_log_time = now
        self.num_prompt_tokens = 0
        self.num_generation_tokens = 0
        self.num_preemptions = 0

    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, engine_idx: int = 0
    ) -> None:
        """Count."""
        if iteration_stats is not None:
            self.num_prompt_tokens += iteration_stats.num_prompt_tokens
            self.num_generation_tokens += iteration_stats.num_generation_tokens
            self.num_preemptions += iteration_stats.num_preempted_reqs
        if scheduler_stats is not None:
            self.prefix_caching_metrics.observe(scheduler_stats.prefix_cache_stats)
            self.last_scheduler_stats = scheduler_stats

    def log(self) -> None:
        """Log the line, and begin to count anew. vLLM never shows preemptions: it counts anew before it looks."""
        now = time.monotonic()
        seconds = now - self.last_log_time
        prompt_throughput = self.num_prompt_tokens / seconds if seconds > 0 else 0.0
        generation_throughput = self.num_generation_tokens / seconds if seconds > 0 else 0.0
        before = self.last_prompt_throughput, self.last_generation_throughput
        self.engine_is_idle = not any((prompt_throughput, generation_throughput, *before))
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
        """Log how many KV blocks there are."""
        num_blocks = self.vllm_config.cache_config.num_gpu_blocks
        if num_blocks is not None:
            logger.debug("Engine %03d: the KV cache has %d blocks.", self.engine_index, num_blocks)


class StatLoggerManager:
    """All loggers of an engine as one.

    vLLM: vllm/v1/metrics/loggers.py::StatLoggerManager.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        custom_stat_loggers: Sequence[StatLoggerFactory] | None = None,
        enable_default_loggers: bool = True,
    ) -> None:
        """Make the loggers: those asked for, the line in the log unless that is unwanted, and Prometheus metrics."""
        from tracellm.engine.metrics.prometheus import PrometheusStatLogger

        self.stat_loggers = [make(vllm_config, 0) for make in custom_stat_loggers or ()]
        if enable_default_loggers:
            self.stat_loggers.append(LoggingStatLogger(vllm_config))
        prometheus = PrometheusStatLogger(vllm_config)
        self.stat_loggers.append(prometheus)
        self.prometheus_registry: CollectorRegistry = prometheus.registry
        """Holds the metrics of this engine and no others, so that several engines in a process do not clash; vLLM puts
        them into the process's registry, and takes those of an earlier engine out.
        """

    def record(
        self, scheduler_stats: SchedulerStats | None, iteration_stats: IterationStats | None, engine_idx: int = 0
    ) -> None:
        """Take in a step."""
        for stat_logger in self.stat_loggers:
            stat_logger.record(scheduler_stats, iteration_stats, engine_idx)

    def log(self) -> None:
        """Let those that write lines do so."""
        for stat_logger in self.stat_loggers:
            stat_logger.log()

    def log_engine_initialized(self) -> None:
        """The engine core is there."""
        for stat_logger in self.stat_loggers:
            stat_logger.log_engine_initialized()
