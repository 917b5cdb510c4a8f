"""The interface of executors, through which the engine core runs the model on its workers.

At start-up an executor loads the model, reports the layout of the KV cache and the available memory, and creates the
cache. In each step the engine core calls `execute_model`, then `sample_tokens`.

vLLM: vllm/v1/executor/abstract.py::Executor. Left out: profiling, sleeping, LoRA.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, KVCacheConfig
    from tracellm.engine.core.sched.output import GrammarOutput, SchedulerOutput
    from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

__all__ = ["Executor"]


class Executor(ABC):
    """Runs the model on one or more workers. A collective call returns one result per worker."""

    @staticmethod
    def get_class(vllm_config: VllmConfig) -> type[Executor]:
        """Return the executor class for this configuration."""
        if vllm_config.parallel_config.distributed_executor_backend == "ray":
            from tracellm.engine.executor.ray_executor import RayDistributedExecutor

            return RayDistributedExecutor
        if vllm_config.parallel_config.distributed_executor_backend == "mp":
            from tracellm.engine.executor.multiproc_executor import MultiprocExecutor

            return MultiprocExecutor
        from tracellm.engine.executor.uniproc_executor import ExecutorWithExternalLauncher, UniProcExecutor

        if vllm_config.parallel_config.distributed_executor_backend == "external_launcher":
            return ExecutorWithExternalLauncher
        return UniProcExecutor

    def __init__(self, vllm_config: VllmConfig) -> None:
        """Start the workers and load the model.

        Raises:
            ModelLoadError: the model cannot be loaded.
        """
        self.vllm_config = vllm_config
        self._init_executor()

    @property
    def max_concurrent_batches(self) -> int:
        """The largest number of steps in flight: one for each pipeline stage, or with asynchronous scheduling two."""
        if self.vllm_config.scheduler_config.async_scheduling:
            return 2
        return self.vllm_config.parallel_config.pipeline_parallel_size

    @abstractmethod
    def _init_executor(self) -> None:
        """Start the workers and load the model."""

    @abstractmethod
    def collective_rpc(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """Call a method of every worker, and return the results."""

    def get_kv_cache_specs(self) -> list[dict[str, AttentionSpec]]:
        """Return the cache layout of each attention layer, by name, for each worker."""
        return self.collective_rpc("get_kv_cache_spec")

    def determine_available_memory(self) -> list[int]:
        """Return the bytes available for the KV cache, for each worker."""
        return self.collective_rpc("determine_available_memory")

    def initialize_from_config(self, kv_cache_configs: list[KVCacheConfig]) -> None:
        """Create the KV cache of each worker, from one configuration per worker."""
        self.collective_rpc("initialize_from_config", args=(kv_cache_configs,))

    def shutdown(self) -> None:  # noqa: B027  (a worker in this process needs no end)
        """End the workers; nothing can be called after it."""

    def abort(self) -> None:  # noqa: B027  (the same)
        """End the workers at once, which may be in the middle of a call."""

    @contextmanager
    def aborted_on_error(self) -> Iterator[None]:
        """End the workers at once if the block raises."""
        try:
            yield
        except BaseException:
            self.abort()
            raise

    @abstractmethod
    def execute_model(
        self, scheduler_output: SchedulerOutput, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput] | None:
        """Compute one step. Return the output worker's result, or None if `sample_tokens` must follow.

        With `non_block`, the result may be a future.
        """

    @abstractmethod
    def sample_tokens(
        self, grammar_output: GrammarOutput | None, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput]:
        """Sample the computed step. Return the output worker's result, or its future with `non_block`."""
