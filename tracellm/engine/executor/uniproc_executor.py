"""The executors with one worker in their own process: a call to the worker is a plain method call.

vLLM: vllm/v1/executor/uniproc_executor.py; GPUExecutor in older versions.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.errors import EngineError
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.worker.model_runner_output import AsyncModelRunnerOutput, ModelRunnerOutput
from tracellm.engine.worker.worker_base import WorkerWrapperBase

if TYPE_CHECKING:
    from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
    from tracellm.engine.core.sched.output import GrammarOutput, SchedulerOutput

__all__ = ["ExecutorWithExternalLauncher", "FutureOutput", "UniProcExecutor"]


class FutureOutput(Future[ModelRunnerOutput]):
    """The result of a step that may still run; `result` waits for it.

    vLLM: vllm/v1/executor/multiproc_executor.py::FutureWrapper. With one worker, vLLM waits in a thread instead. Here
    the caller waits, and every run makes the same calls.
    """

    def __init__(self, output: AsyncModelRunnerOutput) -> None:
        super().__init__()
        self._output = output

    def result(self, timeout: float | None = None) -> ModelRunnerOutput:
        """Wait for the result, ignoring the timeout.

        Raises:
            EngineError: see `AsyncGPUModelRunnerOutput.get_output`.
        """
        if not self.done():
            self.set_result(self._output.get_output())
        return super().result(timeout)


class UniProcExecutor(Executor):
    """Executor with one worker in this process."""

    driver_worker: WorkerWrapperBase

    def _init_executor(self) -> None:
        self._init_worker(WorkerWrapperBase(self.vllm_config))

    def _init_worker(self, worker: WorkerWrapperBase) -> None:
        self.driver_worker = worker
        worker.init_worker()
        worker.init_device()
        worker.load_model()

    def collective_rpc(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """Call a method of the worker, and return its result in a list."""
        return [getattr(self.driver_worker, method)(*args, **(kwargs or {}))]

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> ModelRunnerOutput | None:
        """Compute one step up to the logits; a GPU computes them later."""
        output: ModelRunnerOutput | None = self.collective_rpc("execute_model", args=(scheduler_output,))[0]
        return output

    def sample_tokens(
        self, grammar_output: GrammarOutput | None, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput]:
        """Sample from these logits; with `non_block`, the result may be a future."""
        output: ModelRunnerOutput | AsyncModelRunnerOutput
        output = self.collective_rpc("sample_tokens", args=(grammar_output,))[0]
        if isinstance(output, AsyncModelRunnerOutput):
            return FutureOutput(output) if non_block else output.get_output()
        return output


class ExecutorWithExternalLauncher(UniProcExecutor):
    """Executor with one of the workers, in each of the processes that a launcher such as torchrun starts.

    Each process has an engine, and gives it the same requests. All engines schedule the same steps, and their workers
    compute them together. Each engine has all tokens.
    """

    def _init_executor(self) -> None:
        """Join the other processes, which the launcher's environment variables describe, and load the model.

        Raises:
            EngineError: there is no launcher, it started another number of processes, or the engine core has a process
                of its own.
        """
        world_size = self.vllm_config.parallel_config.world_size
        needs = "LLM: distributed_executor_backend='external_launcher' needs"
        try:
            rank, local_rank, launched = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        except (KeyError, ValueError):
            raise EngineError(
                f"{needs} a launcher that sets RANK, LOCAL_RANK and WORLD_SIZE: torchrun --nproc-per-node {world_size} "
                "script.py"
            ) from None
        if launched != world_size:
            raise EngineError(f"{needs} {world_size} processes, and the launcher started {launched}.")
        if multiprocessing.parent_process() is not None:
            raise EngineError(f"{needs} the engine core in the script's process: VLLM_ENABLE_V1_MULTIPROCESSING=0")
        self._init_worker(WorkerWrapperBase(self.vllm_config, rank, "env://", local_rank))

    def determine_available_memory(self) -> list[int]:
        """Return the smallest memory of all workers, so that all engines have the same number of blocks."""
        import torch
        import torch.distributed as dist

        memory = torch.tensor(super().determine_available_memory(), device=self.driver_worker.device)
        if dist.is_initialized():
            dist.all_reduce(memory, op=dist.ReduceOp.MIN)
        return [int(memory)]

    def initialize_from_config(self, kv_cache_configs: list[KVCacheConfig]) -> None:
        """Create the KV cache of this process's worker."""
        super().initialize_from_config(kv_cache_configs * self.vllm_config.parallel_config.world_size)

    def shutdown(self) -> None:
        """Leave the other processes."""
        from tracellm.engine.distributed.parallel_state import destroy_distributed_environment

        destroy_distributed_environment()
