"""The engine core: the loop's one step (schedule, execute, process), and the start-up that makes it possible.

A client (core_client.py) owns it and calls `step_fn` until no request is left.

vLLM: vllm/v1/engine/core.py::EngineCore. Left out: pipeline parallelism, LoRA, profiling, sleeping. The same in a
process of its own is `EngineCoreProc` (core_proc.py).
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.kv_cache import kv_cache_utils
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.async_scheduler import AsyncScheduler
from tracellm.engine.core.sched.scheduler import Scheduler
from tracellm.engine.core.structured_output.manager import StructuredOutputManager
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest

if TYPE_CHECKING:
    from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
    from tracellm.engine.core.sched.output import SchedulerOutput
    from tracellm.engine.executor.abstract import Executor
    from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

__all__ = ["EngineCore", "StepResult", "result_of"]


StepResult: TypeAlias = "ModelRunnerOutput | Future[ModelRunnerOutput]"


def result_of(output: StepResult) -> ModelRunnerOutput:
    """What came of a step; if the device still computes it, wait.

    Raises:
        EngineError: see `GPUModelRunner.sample_tokens`.
    """
    return output.result() if isinstance(output, Future) else output


class EngineCore:
    """Owns the scheduler and the executor.

    Raises:
        ModelLoadError: the model cannot be loaded.
        EngineError: the memory cannot hold the KV cache that was asked for.
    """

    def __init__(self, vllm_config: VllmConfig, executor_class: type[Executor], log_stats: bool) -> None:
        self.vllm_config = vllm_config
        self.log_stats = log_stats
        self.model_executor = executor_class(vllm_config)  # loads the model
        self.kv_cache_config = self._initialize_kv_caches(vllm_config)
        self.model_executor.collective_rpc("initialize_cache", args=(self.kv_cache_config.num_blocks, 0))
        self.structured_output_manager = StructuredOutputManager(vllm_config)
        scheduler_class = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else Scheduler
        self.scheduler = scheduler_class(vllm_config, self.kv_cache_config, self.structured_output_manager, log_stats)
        self.batch_queue_size = self.model_executor.max_concurrent_batches
        self.batch_queue: deque[tuple[StepResult, SchedulerOutput]] | None = (
            deque(maxlen=self.batch_queue_size) if self.batch_queue_size > 1 else None
        )
        """Under asynchronous scheduling, the steps under way, the oldest last."""
        cache_config = vllm_config.cache_config
        self.request_block_hasher = (
            kv_cache_utils.get_request_block_hasher(cache_config.block_size)
            if cache_config.enable_prefix_caching
            else None
        )

    def _initialize_kv_caches(self, vllm_config: VllmConfig) -> KVCacheConfig:
        """Measure the memory, divide it into blocks, and let the worker allocate them."""
        kv_cache_spec = self.model_executor.get_kv_cache_specs()[0]
        available_memory = self.model_executor.determine_available_memory()[0]
        kv_cache_config = kv_cache_utils.get_kv_cache_config(vllm_config, kv_cache_spec, available_memory)
        self.model_executor.initialize_from_config([kv_cache_config])
        return kv_cache_config

    def preprocess_add_request(self, request: EngineCoreRequest) -> Request:
        """Make the scheduler's `Request`, with the hashes of its full blocks; its grammar, if it needs one, is begun.

        Raises:
            InvalidRequestError: the whole KV cache is too small for it.
        """
        max_tokens = request.sampling_params.max_tokens
        assert max_tokens is not None, "the Processor fills it in"
        kv_cache_utils.check_request_fits(
            request.request_id, len(request.prompt_token_ids), max_tokens, self.vllm_config, self.kv_cache_config
        )
        req = Request.from_engine_core_request(request, self.request_block_hasher)
        if req.use_structured_output:
            self.structured_output_manager.grammar_init(req)
        return req

    def add_request(self, request: Request) -> None:
        """Put a request into the waiting queue."""
        self.scheduler.add_request(request)

    def abort_requests(self, request_ids: list[str]) -> None:
        """Drop requests, wherever they are; their blocks are free at once."""
        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def reset_prefix_cache(self) -> bool:
        """Forget which blocks hold which tokens; `False`, and nothing done, while requests hold blocks."""
        return self.scheduler.reset_prefix_cache()

    def get_supported_tasks(self) -> tuple[str, ...]:
        """What the model can be asked for."""
        return ("generate",)

    def get_request_counts(self) -> tuple[int, int]:
        """How many requests run, and how many wait."""
        return self.scheduler.get_request_counts()

    def get_num_free_blocks(self) -> int:
        """How many KV blocks no request holds; all but the null block when there are no requests. vLLM has it not."""
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def has_work(self) -> bool:
        """Is there anything a step would do?"""
        return self.scheduler.has_requests() or bool(self.batch_queue)

    def step_fn(self) -> tuple[dict[int, EngineCoreOutputs] | None, bool]:
        """One step: decide what to compute, compute it, and draw the conclusions.

        Returns:
            The outputs by client index, or `None` when there are none; and whether the model was executed.
        """
        if self.batch_queue is not None:
            try:
                return self.step_with_batch_queue(self.batch_queue)
            except BaseException:
                self.batch_queue.clear()  # the steps under way are of requests that are given up now
                raise
        if not self.scheduler.has_requests():
            return None, False
        scheduler_output = self._schedule()
        # Even a step without tokens goes on to the model runner, which learns there that requests have ended.
        model_output = result_of(self._execute_model(scheduler_output))
        outputs = self._process_model_outputs(scheduler_output, model_output)
        return outputs or None, scheduler_output.total_num_scheduled_tokens > 0

    def step_with_batch_queue(
        self, batch_queue: deque[tuple[StepResult, SchedulerOutput]]
    ) -> tuple[dict[int, EngineCoreOutputs] | None, bool]:
        """One step under asynchronous scheduling: launch the next, then draw the conclusions of the one before.

        The first one returns without conclusions. In vLLM it does so only if the device has not finished yet; here a
        run makes the same steps each time.

        Returns:
            As `step_fn`, of the step before, if there was one; the model was executed in that one or in the new one.
        """
        executed = False
        if self.scheduler.has_requests():
            scheduler_output = self._schedule()
            batch_queue.appendleft((self._execute_model(scheduler_output), scheduler_output))
            executed = scheduler_output.total_num_scheduled_tokens > 0
            if executed and len(batch_queue) < self.batch_queue_size:
                return None, True
        elif not batch_queue:
            return None, False
        result, scheduler_output = batch_queue.pop()
        outputs = self._process_model_outputs(scheduler_output, result_of(result))
        return outputs or None, executed or scheduler_output.total_num_scheduled_tokens > 0

    def post_step(self, model_executed: bool) -> None:
        """What a client calls after each step: when it had nothing to compute, because all requests wait for their
        grammars, let one be finished. vLLM steps on; there this passes on the draft tokens of speculative decoding.
        """
        if not model_executed:
            self.structured_output_manager.wait_for_a_grammar()

    def _schedule(self) -> SchedulerOutput:
        """Phase 1: which requests run, with how many tokens, in which KV blocks."""
        return self.scheduler.schedule()

    def _execute_model(self, scheduler_output: SchedulerOutput) -> StepResult:
        """Phase 2: forward pass, then sampling of what the grammars allow; with a batch queue, without waiting."""
        model_output = self.model_executor.execute_model(scheduler_output)
        if model_output is not None:
            return model_output
        grammar_output = self.scheduler.get_grammar_bitmask(scheduler_output)
        if self.batch_queue is None:
            return self.model_executor.sample_tokens(grammar_output)
        return self.model_executor.sample_tokens(grammar_output, non_block=True)

    def _process_model_outputs(
        self, scheduler_output: SchedulerOutput, model_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Phase 3: append the new tokens, find who has finished."""
        return self.scheduler.update_from_output(scheduler_output, model_output)
