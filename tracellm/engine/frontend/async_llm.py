"""`AsyncLLM`: the engine for asyncio callers, who each read their own stream of outputs.

    from tracellm import AsyncLLM, SamplingParams

    async def main():
        llm = AsyncLLM(model="tiny")
        async for output in llm.generate("The capital of France is", SamplingParams(max_tokens=8), request_id="1"):
            print(output.outputs[0].text)
        llm.shutdown()

    asyncio.run(main())

`generate` sends a request to the engine core's process and reads the request's queue. One task for all requests, the
output handler, receives the outputs of each step and fills the queues.

vLLM: vllm/v1/engine/async_llm.py::AsyncLLM. Left out: LoRA, profiling, sleeping.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from tracellm.engine.config.arg_utils import AsyncEngineArgs, EngineArgs, resolve_config
from tracellm.engine.config.errors import EngineDeadError, EngineError, EngineGenerateError, InvalidRequestError
from tracellm.engine.config.tokenizer import get_tokenizer
from tracellm.engine.config.validation import reject_unknown_arguments
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.frontend.llm_engine import verify_request
from tracellm.engine.frontend.output_collector import RequestOutputCollector
from tracellm.engine.frontend.output_processor import OutputProcessor
from tracellm.engine.frontend.outputs import PoolingOutput, PoolingRequestOutput, RequestOutput
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.frontend.preprocess import PromptType, get_prompt_text
from tracellm.engine.frontend.processor import Processor
from tracellm.engine.frontend.protocol import EngineClient
from tracellm.engine.frontend.tracing import TRACER_NAME, init_tracer
from tracellm.engine.ipc.core_client import EngineCoreClient
from tracellm.engine.ipc.messages import EngineCoreOutputs, EngineCoreRequest
from tracellm.engine.metrics.loggers import StatLoggerFactory, StatLoggerManager
from tracellm.engine.metrics.stats import IterationStats
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    from tracellm.engine.ipc.mp_client import AsyncMPClient

__all__ = ["AsyncLLM", "output_handler"]

logger = logging.getLogger(__name__)

# Child requests added, and outputs processed, before other tasks may run. vLLM: VLLM_V1_OUTPUT_PROC_CHUNK_SIZE.
_CHILDREN_CHUNK_SIZE = 64
_OUTPUTS_CHUNK_SIZE = 128


class AsyncLLM(EngineClient):
    """Asynchronous engine: a model in a process of its own that generates for any number of asyncio callers.

    There are two forms of the constructor:

    - `AsyncLLM(model="tiny", ...)` or `AsyncLLM("tiny", ...)` takes the arguments of `LLM`. As in vLLM's
      AsyncEngineArgs, `disable_log_stats` defaults to False.
    - `AsyncLLM(vllm_config, executor_class, log_stats)` is vLLM's; `from_vllm_config` and `from_engine_args` use it.

    It can be made before or inside the event loop, and serves one loop at a time: after one `asyncio.run` has ended,
    another may follow. `shutdown()` ends it, and so does the destructor.

    Raises:
        EngineError: an argument is unknown, out of range or unsupported, or the engine core could not start.
    """

    def __init__(
        self,
        vllm_config: VllmConfig | str | os.PathLike[str] | None = None,
        executor_class: type[Executor] | None = None,
        log_stats: bool | None = None,
        *,
        log_requests: bool = False,
        stat_loggers: Sequence[StatLoggerFactory] | None = None,
        **engine_args: Any,
    ) -> None:
        """Start the engine core's process and wait until it has loaded the model.

        Args:
            vllm_config: all settings, or the model, whose other arguments are then in `engine_args`.
            executor_class: executor to run the workers with, only with a `VllmConfig`; None follows the configuration.
            log_stats: only with a `VllmConfig`: keep statistics for `do_log_stats`, `prometheus_registry` and
                `RequestOutput.metrics`. None is True.
            log_requests: log each request when it is added and when it is aborted.
            stat_loggers: factories of additional statistics loggers; they turn statistics on.
            **engine_args: arguments of `LLM`.
        """
        vllm_config, log_stats = resolve_config(vllm_config, executor_class, log_stats, engine_args)
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.log_requests = log_requests
        endpoint = vllm_config.observability_config.otlp_traces_endpoint
        self.log_stats = log_stats or bool(stat_loggers) or endpoint is not None
        self.output_handler: asyncio.Task[None] | None = None
        self._mm_lock = asyncio.Lock()
        """Held while a thread processes images or sounds."""
        self._grammar_executor = ThreadPoolExecutor(max_workers=4, thread_name_prefix="grammar-check")
        self._trial_executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar-trial")
        """Thread for the checks of grammars that may take seconds."""

        config = self.model_config
        tokenizer = None if config.skip_tokenizer_init else get_tokenizer(config.tokenizer, config.truncation_side)
        self.processor = Processor(vllm_config, tokenizer)
        self.output_processor = OutputProcessor(self.processor.tokenizer, self.log_stats)
        self.output_processor.tracer = init_tracer(TRACER_NAME, endpoint)
        self.engine_core = EngineCoreClient.make_async_mp_client(
            vllm_config=vllm_config,
            executor_class=executor_class or Executor.get_class(vllm_config),
            log_stats=self.log_stats,
        )
        self.logger_manager: StatLoggerManager | None = None
        if self.log_stats:
            self.logger_manager = StatLoggerManager(vllm_config, stat_loggers, enable_default_loggers=log_stats)
            self.logger_manager.log_engine_initialized()
        with suppress(RuntimeError):  # no running loop: the first `generate` starts the handler
            asyncio.get_running_loop()
            self._run_output_handler()

    @classmethod
    def from_vllm_config(
        cls,
        vllm_config: VllmConfig,
        *,
        stat_loggers: Sequence[StatLoggerFactory] | None = None,
        enable_log_requests: bool = False,
        disable_log_stats: bool = False,
    ) -> AsyncLLM:
        """Choose the executor and build the engine.

        Raises:
            EngineError: the engine core could not start.
        """
        return cls(
            vllm_config,
            Executor.get_class(vllm_config),
            log_stats=not disable_log_stats,
            log_requests=enable_log_requests,
            stat_loggers=stat_loggers,
        )

    @classmethod
    def from_engine_args(
        cls, engine_args: EngineArgs, stat_loggers: Sequence[StatLoggerFactory] | None = None
    ) -> AsyncLLM:
        """Resolve the configuration, choose the executor and build the engine.

        Raises:
            EngineError: an invalid setting or model, or too little memory.
        """
        return cls.from_vllm_config(
            engine_args.create_engine_config("ENGINE_CONTEXT"),
            stat_loggers=stat_loggers,
            enable_log_requests=isinstance(engine_args, AsyncEngineArgs) and engine_args.enable_log_requests,
            disable_log_stats=engine_args.disable_log_stats,
        )

    def __del__(self) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """End the engine core's process. Unfinished `generate` calls raise `EngineDeadError`. Idempotent."""
        if (engine_core := getattr(self, "engine_core", None)) is not None:  # `__init__` may have failed before
            engine_core.shutdown()
            self._grammar_executor.shutdown(wait=False, cancel_futures=True)
            self._trial_executor.shutdown(wait=False, cancel_futures=True)
        if (output_handler := getattr(self, "output_handler", None)) is not None:
            _cancel(output_handler)

    # -- requests -----------------------------------------------------------------------------------------------------

    async def generate(
        self,
        prompt: EngineCoreRequest | PromptType,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        prompt_text: str | None = None,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        data_parallel_rank: int | None = None,
        **unknown: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Generate from a prompt and yield outputs as they come: `async for output in llm.generate(...)`.

        An asynchronous generator, as in vLLM; it is not awaited. Stopping early (`break` and `aclose`, or cancelling
        the task) aborts the request, and its KV cache blocks are free within two steps. `sampling_params.output_kind`
        selects the content of an output: everything so far (`CUMULATIVE`, the default), new text (`DELTA`), or all in
        one last output (`FINAL_ONLY`).

        Args:
            prompt: a string, `{"prompt": text}`, `{"prompt_token_ids": [ids]}`, or a request made by the `Processor`.
            sampling_params: the request's sampling parameters.
            request_id: an id that no unfinished request has.
            prompt_text: text of the prompt, if `prompt` is a request made by the `Processor`.
            trace_headers: W3C trace context of the caller.
            priority: lower values run first, under scheduling_policy="priority".
            data_parallel_rank: index of the engine core to run it, of several; None chooses that of the smallest load.
            **unknown: rejected by name.

        Raises:
            InvalidRequestError: the request cannot be served or continued; the engine can be used again.
            EngineGenerateError: the request failed by a bug in tracellm; the engine can be used again.
            EngineDeadError: the engine core died or was shut down.
        """
        reject_unknown_arguments(self.generate, unknown)
        added = self._added(
            request_id,
            prompt,
            sampling_params,
            trace_headers=trace_headers,
            priority=priority,
            prompt_text=prompt_text,
            data_parallel_rank=data_parallel_rank,
        )
        finished = False
        async with added as queue:
            while not finished:
                # Under load an output is always ready; taking it without await saves a task switch.
                output = queue.get_nowait() or await queue.get()
                assert isinstance(output, RequestOutput)
                finished = output.finished
                yield output

    async def encode(
        self,
        prompt: PromptType,
        pooling_params: PoolingParams,
        request_id: str,
        *,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        data_parallel_rank: int | None = None,
        **unknown: Any,
    ) -> AsyncGenerator[PoolingRequestOutput[PoolingOutput], None]:
        """Pool the hidden states of a prompt, with a pooling model, and yield the only output.

        Args:
            prompt: as for `generate`.
            pooling_params: the request's pooling parameters; `task` must be set.
            request_id: an id that no unfinished request has.
            trace_headers: W3C trace context of the caller.
            priority: lower values run first, under scheduling_policy="priority".
            data_parallel_rank: as for `generate`.
            **unknown: rejected by name.

        Raises:
            InvalidRequestError: the model does not pool, or the request cannot be served; the engine can be used again.
            EngineGenerateError: the request failed by a bug in tracellm; the engine can be used again.
            EngineDeadError: the engine core died or was shut down.
        """
        reject_unknown_arguments(self.encode, unknown)
        added = self._added(
            request_id,
            prompt,
            pooling_params,
            trace_headers=trace_headers,
            priority=priority,
            data_parallel_rank=data_parallel_rank,
        )
        async with added as queue:
            output = await queue.get()
            assert isinstance(output, PoolingRequestOutput)
            yield output

    @asynccontextmanager
    async def _added(self, request_id: str, *args: Any, **arguments: Any) -> AsyncIterator[RequestOutputCollector]:
        """Add a request, for as long as its queue is read; it is aborted if the reader stops early.

        Raises:
            InvalidRequestError: see `add_request`.
            EngineGenerateError: the reader, or the engine, raised an error that is not the user's fault.
        """
        queue: RequestOutputCollector | None = None
        try:
            self._run_output_handler()
            queue = await self.add_request(request_id, *args, **arguments)
            yield queue
        except (asyncio.CancelledError, GeneratorExit, ValueError):
            # An EngineError is a ValueError, and its message is for the user.
            await self._abort_if_queued(request_id, queue)
            raise
        except Exception as error:
            await self._abort_if_queued(request_id, queue)
            raise EngineGenerateError(
                f"Request {request_id!r} has failed ({type(error).__name__}: {error}). This is a bug in tracellm; "
                "the engine can be used again."
            ) from error

    async def add_request(
        self,
        request_id: str,
        prompt: EngineCoreRequest | PromptType,
        params: SamplingParams | PoolingParams,
        arrival_time: float | None = None,
        *,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        prompt_text: str | None = None,
        data_parallel_rank: int | None = None,
    ) -> RequestOutputCollector:
        """Add a request, or n child requests with `n > 1`, and return the queue of its outputs.

        Raises:
            InvalidRequestError: the request cannot be served, or its id is in use; nothing was added.
            EngineDeadError: the engine core died or was shut down.
        """
        if self.errored:
            raise self.dead_error
        verify_request(request_id, arrival_time, priority)
        if isinstance(prompt, EngineCoreRequest):
            request = prompt
        else:
            process = partial(
                self.processor.process_inputs, request_id, params=params, arrival_time=arrival_time, priority=priority,
                trace_headers=trace_headers, data_parallel_rank=data_parallel_rank,
            )  # fmt: skip
            if isinstance(params, SamplingParams) and params.structured_outputs is not None:
                await self._validate_structured_output(params)
            if self.processor.input_preprocessor.has_items(prompt):  # processing an image takes time
                prompt = self.processor.input_preprocessor.tokenize_beside_items(prompt)
                async with self._mm_lock:
                    request = await asyncio.to_thread(process, prompt)
            else:
                request = process(prompt)
            prompt_text = get_prompt_text(prompt)
        if request.request_id != request_id:
            raise InvalidRequestError(f"The request has the id {request.request_id!r}, not {request_id!r}.")
        queue = RequestOutputCollector(request.params.output_kind)
        try:
            if request.sampling_params is None or request.sampling_params.n == 1:
                await self._add_request(request, prompt_text, None, 0, queue)
            else:
                await self._add_children(request, prompt_text, queue)
        except BaseException:
            await self._abort_if_queued(request_id, queue)
            raise
        return queue

    async def _validate_structured_output(self, params: SamplingParams) -> None:
        """Compile the constraint in threads; one that may take seconds delays only others of its kind."""
        loop = asyncio.get_running_loop()
        validate = self.processor.validate_structured_output
        if (trial := await loop.run_in_executor(self._grammar_executor, validate, params)) is not None:
            await loop.run_in_executor(self._trial_executor, trial)

    async def _add_children(
        self, request: EngineCoreRequest, prompt: str | None, queue: RequestOutputCollector
    ) -> None:
        assert request.sampling_params is not None, "only generation has several outputs"
        parent_req = ParentRequest(request.request_id, request.sampling_params)
        # Make all ids first: the first child may finish before the last one is added.
        children = [parent_req.get_child_info(index) for index in range(parent_req.n)]
        try:
            for index, (child_id, child_params) in enumerate(children):
                if child_id not in parent_req.child_requests:  # aborted since
                    token_ids = request.prompt_token_ids
                    queue.put(RequestOutput(request.request_id, prompt, token_ids, None, [], finished=True))
                    return
                child_request = copy(request)
                child_request.request_id, child_request.sampling_params = child_id, child_params
                await self._add_request(child_request, prompt, parent_req, index, queue)
                if index % _CHILDREN_CHUNK_SIZE == _CHILDREN_CHUNK_SIZE - 1:
                    await asyncio.sleep(0)
        except BaseException:
            parent_req.child_requests.intersection_update(self.output_processor.request_states)
            raise

    async def _add_request(
        self,
        request: EngineCoreRequest,
        prompt: str | None,
        parent_req: ParentRequest | None,
        index: int,
        queue: RequestOutputCollector,
    ) -> None:
        """Add a request to the output processor and to the engine core."""
        self.output_processor.add_request(request, prompt, parent_req, index, queue)
        await self.engine_core.add_request_async(request)
        if self.log_requests:
            logger.info("Added request %s.", request.request_id)

    async def _abort_if_queued(self, request_id: str, queue: RequestOutputCollector | None) -> None:
        """Abort a request if it has this queue; its id may belong to a later request by now."""
        if queue is not None and self.output_processor.has_queue(request_id, queue):
            await self.abort(request_id)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Abort requests, including all children; unknown ids are ignored.

        Their readers get a last output with the finish reason `abort`.
        """
        request_ids = [request_id] if isinstance(request_id, str) else list(request_id)
        aborted = self.output_processor.abort_requests(request_ids)
        if aborted and not self.errored:
            await self.engine_core.abort_requests_async(aborted)
        if self.log_requests:
            logger.info("Aborted request(s) %s.", ", ".join(request_ids))

    def _run_output_handler(self) -> None:
        """Start the output handler task, unless it was started in this event loop before.

        Raises:
            EngineError: it runs in another event loop.
        """
        if self.output_handler is not None and not (loop := self.output_handler.get_loop()).is_closed():
            if loop is not asyncio.get_running_loop():
                raise EngineError(
                    "This AsyncLLM is in use in another event loop, which has not ended: use it in that one, or make "
                    "another AsyncLLM."
                )
            return
        # The task gets no reference to `self`, which could otherwise never be garbage collected. vLLM does the same.
        handler = output_handler(self.engine_core, self.output_processor, self.logger_manager)
        self.output_handler = asyncio.create_task(handler, name="output_handler")


async def output_handler(
    engine_core: AsyncMPClient, output_processor: OutputProcessor, logger_manager: StatLoggerManager | None
) -> None:
    """Receive each step's outputs and put them into the requests' queues, until the engine ends.

    Its end puts an error into every queue. In vLLM it is a closure of `AsyncLLM._run_output_handler`; as a function it
    can be recorded.
    """
    try:
        while True:
            outputs = await engine_core.get_output_async()
            await _process_outputs(outputs, engine_core, output_processor, logger_manager)
    except asyncio.CancelledError:  # the engine was shut down, or the event loop ends
        error = EngineDeadError("The engine was shut down, or its event loop was ended, while this request ran.")
        await engine_core.abort_requests_async(output_processor.propagate_error(error))
        raise
    except EngineDeadError as error:
        output_processor.propagate_error(error)
    except Exception as error:
        logger.exception("The output handler has failed; no request of this engine can go on.")
        output_processor.propagate_error(error)


async def _process_outputs(
    outputs: EngineCoreOutputs,
    engine_core: AsyncMPClient,
    output_processor: OutputProcessor,
    logger_manager: StatLoggerManager | None,
) -> None:
    """Process one step's outputs in chunks, so other tasks can run in between."""
    iteration_stats = IterationStats() if logger_manager is not None and outputs.outputs else None
    for start in range(0, len(outputs.outputs), _OUTPUTS_CHUNK_SIZE):
        if start:
            await asyncio.sleep(0)
        chunk = outputs.outputs[start : start + _OUTPUTS_CHUNK_SIZE]
        processed = output_processor.process_outputs(chunk, outputs.timestamp, iteration_stats)
        assert not processed.request_outputs, "every request has a queue"
        if processed.reqs_to_abort:  # ended by a stop string or an error
            await engine_core.abort_requests_async(processed.reqs_to_abort)
    if logger_manager is not None:
        logger_manager.record(outputs.scheduler_stats, iteration_stats, engine_idx=outputs.engine_index)


def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task from any thread; does nothing if it is done or its event loop is closed."""
    loop = task.get_loop()
    try:
        in_loop = asyncio.get_running_loop() is loop
    except RuntimeError:
        in_loop = False
    if in_loop:
        task.cancel()
    elif not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)
