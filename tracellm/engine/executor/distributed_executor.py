"""Executors with several workers: calls to all of them, of which one returns the results of steps.

`MultiprocExecutor` and `RayDistributedExecutor` differ in where the workers run and how calls get there. In both, a
worker that dies, or that raises, ends all of them, and its own error goes to the caller.

vLLM: vllm/v1/executor/multiproc_executor.py and ray_executor.py, which share no class, and
vllm/v1/serial_utils.py::run_method.
"""

from __future__ import annotations

import logging
import pickle
import time
from abc import abstractmethod
from collections import deque
from concurrent.futures import Future
from math import inf
from typing import TYPE_CHECKING, Any

from tracellm.engine.config import envs
from tracellm.engine.config.errors import EngineDeadError, EngineError, format_error
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.worker.model_runner_output import AsyncModelRunnerOutput, ModelRunnerOutput
from tracellm.engine.worker.worker_base import WorkerWrapperBase

if TYPE_CHECKING:
    from tracellm.engine.core.sched.output import GrammarOutput, SchedulerOutput

__all__ = ["DistributedExecutor", "FutureWrapper", "Response", "error_response", "run_method", "serialize"]

logger = logging.getLogger(__name__)

Response = tuple[bool, Any]
"""Whether a worker's method raised, and the error or the result."""


def serialize(obj: Any) -> bytes:
    """Return the bytes of a message."""
    return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)


class FutureWrapper(Future[Any]):
    """The response to a call; `result` waits for it, and for those to earlier calls."""

    def __init__(self, executor: DistributedExecutor, method: str, output_rank: int | None, timeout: float) -> None:
        super().__init__()
        self.executor = executor
        self.method = method
        self.output_rank = output_rank
        self.deadline = time.monotonic() + timeout

    def result(self, timeout: float | None = None) -> Any:
        """Return the output rank's result, or all of them in the order of ranks; the timeout is ignored.

        Raises:
            EngineError: a worker's own error.
            EngineDeadError: a worker died, or did not respond in time.
        """
        if not self.done():
            self.executor.wait_for(self)
        return super().result()


class DistributedExecutor(Executor):
    """Executor with several workers.

    Attributes:
        world_size: number of workers.
        output_rank: worker that returns the results of steps: the first one of the last pipeline stage.
        is_failed: whether the workers have ended.
        execute_model_timeout: seconds that the workers have for a step.
    """

    def _init_executor(self) -> None:
        parallel_config = self.vllm_config.parallel_config
        self.world_size = parallel_config.world_size
        self.output_rank = parallel_config.world_size - parallel_config.tensor_parallel_size
        self.is_failed = False
        self.execute_model_timeout = envs.execute_model_timeout()
        self.futures: deque[FutureWrapper] = deque()
        """Calls whose responses were not received, the oldest first."""

    def collective_rpc(
        self,
        method: str,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        non_block: bool = False,
        unique_reply_rank: int | None = None,
        timeout: float = inf,
    ) -> Any:
        """Call a method of every worker.

        Returns:
            The results in the order of ranks; only that of `unique_reply_rank`, if it is given. With `non_block`, a
            future of them.

        Raises:
            EngineError: a worker's own error.
            EngineDeadError: a worker died, or did not respond in `timeout` seconds.
        """
        self._check_running()
        self._broadcast(serialize((method, args, kwargs or {}, unique_reply_rank)))
        self.futures.append(future := FutureWrapper(self, method, unique_reply_rank, timeout))
        return future if non_block else future.result()

    @abstractmethod
    def _broadcast(self, message: bytes) -> None:
        """Send a call to all workers."""

    def wait_for(self, future: FutureWrapper) -> None:
        """Receive the responses to all calls up to `future`."""
        while not future.done():
            self._check_running()
            results = self._receive_results(oldest := self.futures[0])
            self.futures.popleft()
            oldest.set_result(list(results.values()) if oldest.output_rank is None else results[oldest.output_rank])

    @abstractmethod
    def _receive_results(self, future: FutureWrapper) -> dict[int, Any]:
        """Wait for the responses to the oldest call; return the results by rank, in its order."""

    def execute_model(
        self, scheduler_output: SchedulerOutput, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput] | None:
        """Compute one step up to the logits; with `non_block`, return a future."""
        output: ModelRunnerOutput | Future[ModelRunnerOutput] | None = self.collective_rpc(
            "execute_model",
            args=(scheduler_output,),
            non_block=non_block,
            unique_reply_rank=self.output_rank,
            timeout=self.execute_model_timeout,
        )
        return output

    def sample_tokens(
        self, grammar_output: GrammarOutput | None, non_block: bool = False
    ) -> ModelRunnerOutput | Future[ModelRunnerOutput]:
        """Sample from these logits in the last pipeline stage; with `non_block`, return a future."""
        output: ModelRunnerOutput | Future[ModelRunnerOutput] = self.collective_rpc(
            "sample_tokens",
            args=(grammar_output,),
            non_block=non_block,
            unique_reply_rank=self.output_rank,
            timeout=self.execute_model_timeout,
        )
        return output

    def _check_running(self) -> None:
        if self.is_failed:
            raise EngineDeadError("The workers have ended. Make a new engine.")

    def _timeout_error(self, method: str, workers: str, state: str) -> EngineDeadError:
        """Return the error for workers that do not respond."""
        return EngineDeadError(
            f"No response to `{method}` within {self.execute_model_timeout:g} s: {workers} {state}. "
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS sets the limit."
        )


def run_method(worker: WorkerWrapperBase, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Response:
    """Call a worker's method; what it raises is returned."""
    try:
        output = getattr(worker, method)(*args, **kwargs)
        if isinstance(output, AsyncModelRunnerOutput):
            output = output.get_output()
    except Exception as error:
        return error_response(error)
    return False, output


def error_response(error: Exception) -> Response:
    """Return a user's error as it is, and any other one as a RuntimeError with its text."""
    if isinstance(error, EngineError):
        return True, error
    logger.error("The worker failed.", exc_info=error)
    return True, RuntimeError(format_error(error))
