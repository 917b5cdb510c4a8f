"""The executor that has one worker and runs it in its own process: a call to the worker is a plain method call.

The older documents call it GPUExecutor. vLLM: vllm/v1/executor/uniproc_executor.py::UniProcExecutor. Left out: futures,
distributed initialization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracellm.engine.executor.abstract import Executor
from tracellm.engine.worker.worker_base import WorkerWrapperBase

if TYPE_CHECKING:
    from tracellm.engine.model_runner_output import ModelRunnerOutput
    from tracellm.engine.sched.output import GrammarOutput, SchedulerOutput

__all__ = ["UniProcExecutor"]


class UniProcExecutor(Executor):
    """One worker, in this process."""

    driver_worker: WorkerWrapperBase

    def _init_executor(self) -> None:
        self.driver_worker = WorkerWrapperBase(self.vllm_config)
        self.driver_worker.init_worker()
        self.driver_worker.init_device()
        self.driver_worker.load_model()

    def collective_rpc(
        self, method: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> list[Any]:
        """Call a method of the worker; a list with its one result."""
        return [getattr(self.driver_worker, method)(*args, **(kwargs or {}))]

    def execute_model(self, scheduler_output: SchedulerOutput) -> ModelRunnerOutput | None:
        """Compute one step, as far as the logits."""
        output: ModelRunnerOutput | None = self.collective_rpc("execute_model", args=(scheduler_output,))[0]
        return output

    def sample_tokens(self, grammar_output: GrammarOutput | None) -> ModelRunnerOutput:
        """Sample from these logits."""
        output: ModelRunnerOutput = self.collective_rpc("sample_tokens", args=(grammar_output,))[0]
        return output
