"""The executor with one worker in its own process: a call to the worker is a plain method call.

vLLM: vllm/v1/executor/uniproc_executor.py::UniProcExecutor; GPUExecutor in older versions. Left out: distributed
initialization.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from tracellm.engine.executor.abstract import Executor
from tracellm.engine.worker.model_runner_output import AsyncModelRunnerOutput, ModelRunnerOutput
from tracellm.engine.worker.worker_base import WorkerWrapperBase

if TYPE_CHECKING:
    from tracellm.engine.core.sched.output import GrammarOutput, SchedulerOutput

__all__ = ["FutureOutput", "UniProcExecutor"]


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
        self.driver_worker = WorkerWrapperBase(self.vllm_config)
        self.driver_worker.init_worker()
        self.driver_worker.init_device()
        self.driver_worker.load_model()

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
