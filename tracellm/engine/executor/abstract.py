"""The executor's interface: what the engine core asks of those who run the model.

At start-up: load the model, ask for the KV cache's shape and the memory, hand out the cache. In a request's life: in
every step `execute_model`, then `sample_tokens`.

vLLM: vllm/v1/executor/abstract.py::Executor. Left out: profiling, sleeping, LoRA, executors of several
processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future

    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.core.kv_cache.kv_cache_interface import AttentionSpec, KVCacheConfig
    from tracellm.engine.core.sched.output import GrammarOutput, SchedulerOutput
    from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

__all__ = ["Executor"]


class Executor(ABC):
    """Runs the model on one worker or more; a call reaches every worker and gives a list with one result each."""

    @staticmethod
    def get_class(vllm_config: VllmConfig) -> type[Executor]:
        """The executor class for this configuration: `UniProcExecutor`, the only one so far."""
        from tracellm.engine.executor.uniproc_executor import UniProcExecutor

        return UniProcExecutor

    def __init__(self, vllm_config: VllmConfig) -> None:
        """Start the workers and load the model.

        Raises:
            ModelLoadError: the model cannot be loaded; the message says why.
        """
        self.vllm_config = vllm_config
        self._init_executor()

    @property
    def max_concurrent_batches(self) -> int:
        """How many steps may be under way at once."""
        return 1

    @abstractmethod
    def _init_executor(self) -> None:
        """Start the workers and load the model."""

    @abstractmethod
    def collective_rpc(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """Call a method of every worker; their results."""

    def get_kv_cache_specs(self) -> list[dict[str, AttentionSpec]]:
        """For each worker, the shape of each attention layer's KV cache, by the layer's name."""
        return self.collective_rpc("get_kv_cache_spec")

    def determine_available_memory(self) -> list[int]:
        """For each worker, the bytes that its KV cache may take."""
        return self.collective_rpc("determine_available_memory")

    def initialize_from_config(self, kv_cache_configs: list[KVCacheConfig]) -> None:
        """Let each worker make its KV cache; one configuration a worker."""
        self.collective_rpc("initialize_from_config", args=(kv_cache_configs,))

    @abstractmethod
    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        """Compute one step; None, the result of the first worker, says that `sample_tokens` must follow."""

    @abstractmethod
    def sample_tokens(
        self, grammar_output: GrammarOutput | None, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput]:
        """Sample from what `execute_model` computed; the result of the first worker, or with `non_block` its future."""
