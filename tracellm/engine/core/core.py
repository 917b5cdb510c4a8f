"""The engine core: its start-up, and the step (schedule, execute, process) that the engine repeats.

A client (ipc/core_client.py) owns it and calls `step_fn` until no request is left. `EngineCoreProc` (core_proc.py) is
the engine core in a process of its own.

vLLM: vllm/v1/engine/core.py::EngineCore. Left out: LoRA, profiling, sleeping.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias

from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.core.encoder_cache_manager import check_items_fit
from tracellm.engine.core.kv_cache import kv_cache_utils
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.async_scheduler import AsyncScheduler
from tracellm.engine.core.sched.pipeline_scheduler import PipelineScheduler
from tracellm.engine.core.sched.scheduler import Scheduler
from tracellm.engine.core.structured_output.manager import StructuredOutputManager
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest
from tracellm.engine.pool.tasks import get_supported_tasks

if TYPE_CHECKING:
    from tracellm.engine.core.kv_cache.kv_cache_interface import KVCacheConfig
    from tracellm.engine.core.sched.output import SchedulerOutput
    from tracellm.engine.executor.abstract import Executor
    from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

__all__ = ["EngineCore", "StepResult", "result_of"]


StepResult: TypeAlias = "ModelRunnerOutput | Future[ModelRunnerOutput]"


def result_of(output: StepResult) -> ModelRunnerOutput:
    """Return a step's output, waiting for the device if needed.

    Raises:
        EngineError: see `GPUModelRunner.sample_tokens`.
    """
    return output.result() if isinstance(output, Future) else output


class EngineCore:
    """The scheduler and the executor, and the loop between them.

    Raises:
        ModelLoadError: the model cannot be loaded.
        EngineError: the memory is too small for the requested KV cache.
    """

    def __init__(self, vllm_config: VllmConfig, executor_class: type[Executor], log_stats: bool) -> None:
        self.vllm_config, self.log_stats = vllm_config, log_stats
        self.is_pooling_model = vllm_config.model_config.is_pooling_model
        self.model_executor = executor_class(vllm_config)  # loads the model
        with self.model_executor.aborted_on_error():
            self.kv_cache_config = self._initialize_kv_caches(vllm_config)
            self.model_executor.collective_rpc("initialize_cache", args=(self.kv_cache_config.num_blocks, 0))
        self.structured_output_manager = StructuredOutputManager(vllm_config)
        scheduler_class = AsyncScheduler if vllm_config.scheduler_config.async_scheduling else Scheduler
        if vllm_config.parallel_config.pipeline_parallel_size > 1:
            scheduler_class = PipelineScheduler
        self.scheduler = scheduler_class(vllm_config, self.kv_cache_config, self.structured_output_manager, log_stats)
        self.batch_queue_size = self.model_executor.max_concurrent_batches
        self.batch_queue: deque[tuple[StepResult, SchedulerOutput]] | None = (
            deque(maxlen=self.batch_queue_size) if self.batch_queue_size > 1 else None
        )
        """Launched steps, the oldest last; None if each step is awaited at once."""
        cache_config = vllm_config.cache_config
        self.request_block_hasher = (
            kv_cache_utils.get_request_block_hasher(cache_config.block_size)
            if cache_config.enable_prefix_caching
            else None
        )

    def _initialize_kv_caches(self, vllm_config: VllmConfig) -> KVCacheConfig:
        """Measure the memory, divide it into blocks, and have the workers allocate them."""
        kv_cache_specs = self.model_executor.get_kv_cache_specs()
        available_memory = self.model_executor.determine_available_memory()
        kv_cache_configs = kv_cache_utils.get_kv_cache_configs(vllm_config, kv_cache_specs, available_memory)
        self.model_executor.initialize_from_config(kv_cache_configs)
        return kv_cache_configs[0]

    def preprocess_add_request(self, request: EngineCoreRequest) -> Request:
        """Create the scheduler's `Request` with its block hashes, and start to compile its grammar, if it has one.

        Raises:
            InvalidRequestError: the whole KV cache, or the encoder, is too small for it.
        """
        sizes = len(request.prompt_token_ids), request.max_tokens
        kv_cache_utils.check_request_fits(request.request_id, *sizes, self.vllm_config, self.kv_cache_config)
        check_items_fit(request.request_id, request.mm_features or [], self.scheduler.max_num_tokens_per_mm_item)
        req = Request.from_engine_core_request(request, self.request_block_hasher)
        if req.use_structured_output:
            self.structured_output_manager.grammar_init(req)
        return req

    def add_request(self, request: Request) -> None:
        """Add a request to the waiting queue."""
        self.scheduler.add_request(request)

    def abort_requests(self, request_ids: list[str]) -> None:
        """Abort running and waiting requests; their blocks are free at once."""
        self.scheduler.finish_requests(request_ids, RequestStatus.FINISHED_ABORTED)

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache. Return False, and change nothing, while requests hold blocks."""
        return self.scheduler.reset_prefix_cache()

    def shutdown(self) -> None:
        """End the workers."""
        self.model_executor.shutdown()

    def get_supported_tasks(self) -> tuple[str, ...]:
        """Return the tasks of the model."""
        return get_supported_tasks(self.vllm_config)

    def get_request_counts(self) -> tuple[int, int]:
        """Return the numbers of running and waiting requests."""
        return self.scheduler.get_request_counts()

    def get_num_free_blocks(self) -> int:
        """Return the number of free KV cache blocks; without requests, all but the null block. Not in vLLM."""
        return self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()

    def has_work(self) -> bool:
        """Return whether a step has anything to do."""
        return self.scheduler.has_requests() or bool(self.batch_queue)

    def step_fn(self) -> tuple[dict[int, EngineCoreOutputs] | None, bool]:
        """Run one step: schedule, execute the model, process its outputs.

        Returns:
            The outputs by client index, or None if there are none; and whether the model was executed.
        """
        if self.batch_queue is not None:
            try:
                return self.step_with_batch_queue(self.batch_queue)
            except BaseException:
                self.batch_queue.clear()  # the requests of these steps are lost
                raise
        if not self.scheduler.has_requests():
            return None, False
        scheduler_output = self._schedule()
        # A step without tokens is executed too: it reports finished requests to the model runner.
        model_output = result_of(self._execute_model(scheduler_output))
        outputs = self._process_model_outputs(scheduler_output, model_output)
        return outputs or None, scheduler_output.total_num_scheduled_tokens > 0

    def step_with_batch_queue(
        self, batch_queue: deque[tuple[StepResult, SchedulerOutput]]
    ) -> tuple[dict[int, EngineCoreOutputs] | None, bool]:
        """Run one step under asynchronous scheduling or pipeline parallelism: launch a step, then process the oldest.

        While the queue is not full, a step returns without outputs. vLLM does so only if the oldest step is not done.
        Under its MultiprocExecutor, no step is done before it is awaited, so the steps are the same as here.

        Returns:
            The outputs of the oldest step, as in `step_fn`; and whether the model was executed in either step.
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
        """After a step without work, wait until a grammar is compiled. Called by the client after each step.

        vLLM repeats empty steps instead, and uses this method for speculative decoding.
        """
        if not model_executed:
            self.structured_output_manager.wait_for_a_grammar()

    def _schedule(self) -> SchedulerOutput:
        """Phase 1: choose the requests of the step, their tokens and their KV cache blocks."""
        return self.scheduler.schedule()

    def _execute_model(self, scheduler_output: SchedulerOutput) -> StepResult:
        """Phase 2: run the forward pass and sample under the grammars; with a batch queue, without waiting."""
        non_block = self.batch_queue is not None
        model_output = self.model_executor.execute_model(scheduler_output, non_block)
        if self.is_pooling_model or (model_output is not None and not scheduler_output.total_num_scheduled_tokens):
            assert model_output is not None
            return model_output  # nothing to sample
        grammar_output = self.scheduler.get_grammar_bitmask(scheduler_output)
        return self.model_executor.sample_tokens(grammar_output, non_block)

    def _process_model_outputs(
        self, scheduler_output: SchedulerOutput, model_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Phase 3: append the new tokens and end finished requests."""
        return self.scheduler.update_from_output(scheduler_output, model_output)
