"""The executor's handle on its worker; it exists before the worker, and importing it does not import PyTorch.

In a run's life: the executor makes it at start-up, and every step's calls go through it.

vLLM: vllm/v1/worker/worker_base.py::WorkerWrapperBase. Left out: environment variables, other worker classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracellm.engine.config.vllm_config import VllmConfig
    from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
    from tracellm.engine.core.sched.output import SchedulerOutput
    from tracellm.engine.worker.gpu_worker import Worker
    from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

__all__ = ["WorkerWrapperBase"]


class WorkerWrapperBase:
    """Makes the worker and forwards calls to it; attributes not defined here are the worker's."""

    worker: Worker

    def __init__(
        self,
        vllm_config: VllmConfig,
        rpc_rank: int = 0,
        distributed_init_method: str = "",
        local_rank: int | None = None,
    ) -> None:
        """Store the configuration.

        Args:
            vllm_config: the engine's.
            rpc_rank: index of the worker among the executor's, its rank.
            distributed_init_method: where several workers meet; see `init_distributed_environment`.
            local_rank: index of its GPU among those that it can use; None is the rank.
        """
        self.vllm_config = vllm_config
        self.rpc_rank = rpc_rank
        self.distributed_init_method = distributed_init_method
        self.local_rank = rpc_rank if local_rank is None else local_rank

    def init_worker(self) -> None:
        """Make the worker, which imports PyTorch."""
        from tracellm.engine.worker.gpu_worker import Worker

        self.worker = Worker(self.vllm_config, self.local_rank, self.rpc_rank, self.distributed_init_method)

    def init_device(self) -> None:
        """See `Worker.init_device`."""
        self.worker.init_device()

    def initialize_from_config(self, kv_cache_configs: list[KVCacheConfig]) -> None:
        """Call `Worker.initialize_from_config` with this worker's own configuration."""
        self.worker.initialize_from_config(kv_cache_configs[self.rpc_rank])

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        """See `Worker.execute_model`."""
        return self.worker.execute_model(scheduler_output)

    def __getattr__(self, name: str) -> Any:
        if name == "worker":
            raise AttributeError("the worker is made by `init_worker`")
        return getattr(self.worker, name)
