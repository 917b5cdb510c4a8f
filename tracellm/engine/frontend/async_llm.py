"""`AsyncLLM`: the engine for asyncio callers, many at once, each reading its own stream of outputs.

    from tracellm import AsyncLLM, SamplingParams

    async def main():
        llm = AsyncLLM(model="tiny")
        async for output in llm.generate("The capital of France is", SamplingParams(max_tokens=8), request_id="1"):
            print(output.outputs[0].text)
        llm.shutdown()

    asyncio.run(main())

`generate` puts a request into the engine core's process, and reads the request's queue. One task, the output handler,
receives what all the steps bring, and fills the queues.

vLLM: vllm/v1/engine/async_llm.py::AsyncLLM. Left out: pooling (`encode`), LoRA, data parallelism, profiling, sleeping.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any

from tracellm.engine.config.arg_utils import AsyncEngineArgs, EngineArgs
from tracellm.engine.config.async_settings import settle
from tracellm.engine.config.errors import EngineError, EngineGenerateError, InvalidRequestError
from tracellm.engine.config.tokenizer import get_tokenizer
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.entrypoints.arguments import refuse_unknown
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.frontend import output_handling
from tracellm.engine.frontend.llm_engine import verify_request
from tracellm.engine.frontend.output_processor import OutputProcessor, RequestOutputCollector
from tracellm.engine.frontend.outputs import RequestOutput
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.frontend.preprocess import PromptType, get_prompt_text
from tracellm.engine.frontend.processor import Processor
from tracellm.engine.frontend.protocol import EngineClient
from tracellm.engine.ipc.core_client import EngineCoreClient
from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.metrics.loggers import StatLoggerFactory, StatLoggerManager
from tracellm.engine.sample.sampling_params import SamplingParams

__all__ = ["AsyncLLM"]

logger = logging.getLogger(__name__)

_CHILDREN_AT_ONCE = 64  # of a request with a large `n`; then other tasks may run


class AsyncLLM(EngineClient):
    """A model in a process of its own, ready to generate for any number of asyncio callers.

    There are two ways to make one:

    - `AsyncLLM(model="tiny", ...)`, or `AsyncLLM("tiny", ...)`: with the arguments of `LLM`. As in vLLM's
      AsyncEngineArgs, `disable_log_stats` is False unless it is given.
    - `AsyncLLM(vllm_config, executor_class, log_stats)`: vLLM's own; `from_vllm_config` and `from_engine_args` call it.

    It may be made before the event loop runs, or inside, and serves one loop at a time: when an `asyncio.run` has
    ended, another one may follow. End it with `shutdown()`; the destructor does, too.

    Raises:
        EngineError: an argument that is unknown, out of range or unsupported; what kept the engine core from starting.
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
        """Start the engine core's process, and wait until it has loaded the model.

        Args:
            vllm_config: all settings; or the model, with its further arguments in `engine_args`.
            executor_class: with a `VllmConfig`: what runs the workers; `None`: as the configuration says.
            log_stats: with a `VllmConfig`: keep statistics, for `do_log_stats`, `prometheus_registry` and
                `RequestOutput.metrics`; `None` is True.
            log_requests: log each request when it comes and when it is given up.
            stat_loggers: makers of further loggers of statistics; with them statistics are kept in any case.
            **engine_args: the arguments of `LLM`.
        """
        vllm_config, log_stats = settle(vllm_config, executor_class, log_stats, engine_args)
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        self.log_requests = log_requests
        self.log_stats = log_stats or bool(stat_loggers)
        self.output_handler: asyncio.Task[None] | None = None

        skip = self.model_config.skip_tokenizer_init
        self.processor = Processor(vllm_config, None if skip else get_tokenizer(self.model_config.tokenizer))
        self.output_processor = OutputProcessor(self.processor.tokenizer, self.log_stats)
        self.engine_core = EngineCoreClient.make_async_mp_client(
            vllm_config=vllm_config,
            executor_class=executor_class or Executor.get_class(vllm_config),
            log_stats=self.log_stats,
        )
        self.logger_manager: StatLoggerManager | None = None
        if self.log_stats:
            self.logger_manager = StatLoggerManager(vllm_config, stat_loggers, enable_default_loggers=log_stats)
            self.logger_manager.log_engine_initialized()
        with suppress(RuntimeError):  # no loop runs yet: then the first `generate` starts it
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
        """Choose the executor, and build the engine.

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
        """Settle the configuration, choose the executor, and build the engine.

        Raises:
            EngineError: settings, model or memory do not allow it.
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
        """End the engine core's process, and everything that talks to it. Whoever still reads a stream gets an
        `EngineDeadError`. A second call does nothing.
        """
        if (engine_core := getattr(self, "engine_core", None)) is not None:  # __init__ may not have come so far
            engine_core.shutdown()
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
        **unknown: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Continue a prompt, and yield what there is of it as it comes: `async for output in llm.generate(...)`.

        It is an asynchronous generator, as in vLLM, and not to be awaited. A reader that stops early (`break` and then
        `aclose`, a cancelled task) gives the request up, and its KV blocks are free within two steps. `sampling_params.
        output_kind` says what an output holds: all so far (`CUMULATIVE`, the default), what is new (`DELTA`), or, once,
        the whole (`FINAL_ONLY`).

        Args:
            prompt: a string, `{"prompt": text}` or `{"prompt_token_ids": [ids]}`; or a request that the `Processor` has
                made already, whose text `prompt_text` then is.
            sampling_params: how to go on from it.
            request_id: a name that no unfinished request has.
            prompt_text: see `prompt`.
            trace_headers: W3C trace context of the caller, for those who follow the request.
            priority: lower ones run first, under scheduling_policy="priority".
            **unknown: refused by name.

        Raises:
            InvalidRequestError: the request cannot be served, or cannot go on; the engine can be used again.
            EngineGenerateError: it has failed for a reason of ours; the engine can be used again.
            EngineDeadError: the engine core has died, or was shut down.
        """
        refuse_unknown(self.generate, unknown)
        queue: RequestOutputCollector | None = None
        finished = False
        try:
            self._run_output_handler()
            queue = await self.add_request(
                request_id,
                prompt,
                sampling_params,
                trace_headers=trace_headers,
                priority=priority,
                prompt_text=prompt_text,
            )
            while not finished:
                # Without awaiting where possible: under load there is always an output, and no need to change tasks.
                output = queue.get_nowait() or await queue.get()
                finished = output.finished
                yield output
        except (asyncio.CancelledError, GeneratorExit, ValueError):
            # The own message of a ValueError says it all; EngineDeadError is one.
            await self._give_up(request_id, queue)
            raise
        except Exception as error:
            await self._give_up(request_id, queue)
            raise EngineGenerateError(
                f"Request {request_id!r} has failed ({type(error).__name__}: {error}). This is a fault of tracellm; "
                "the engine can be used again."
            ) from error

    async def add_request(
        self,
        request_id: str,
        prompt: EngineCoreRequest | PromptType,
        params: SamplingParams,
        arrival_time: float | None = None,
        *,
        trace_headers: Mapping[str, str] | None = None,
        priority: int = 0,
        prompt_text: str | None = None,
    ) -> RequestOutputCollector:
        """Queue a request; with `n > 1` as n requests (parallel_sampling.py). Returns where its outputs will be.

        Raises:
            InvalidRequestError: the request cannot be served, or its id is in use; nothing of it is left behind.
            EngineDeadError: the engine core has died, or was shut down.
        """
        if self.errored:
            raise self.dead_error
        verify_request(request_id, arrival_time, priority)
        if isinstance(prompt, EngineCoreRequest):
            request = prompt
        else:
            request = self.processor.process_inputs(
                request_id, prompt, params, arrival_time, priority, trace_headers=trace_headers
            )
            prompt_text = get_prompt_text(prompt)
        if request.request_id != request_id:
            raise InvalidRequestError(f"The request has the id {request.request_id!r}, not {request_id!r}.")
        queue = RequestOutputCollector(request.sampling_params.output_kind)
        try:
            if request.sampling_params.n == 1:
                await self._add_request(request, prompt_text, None, 0, queue)
            else:
                await self._add_children(request, prompt_text, queue)
        except BaseException:
            await self._give_up(request_id, queue)
            raise
        return queue

    async def _add_children(
        self, request: EngineCoreRequest, prompt: str | None, queue: RequestOutputCollector
    ) -> None:
        parent_req = ParentRequest(request.request_id, request.sampling_params)
        # All are known before the first one runs: it may have finished before the last one is added.
        children = [parent_req.get_child_info(index) for index in range(parent_req.n)]
        try:
            for index, (child_id, child_params) in enumerate(children):
                if child_id not in parent_req.child_requests:  # aborted meanwhile
                    ids = request.prompt_token_ids
                    queue.put(RequestOutput(request.request_id, prompt, ids, None, [], finished=True))
                    return
                child_request = copy(request)
                child_request.request_id, child_request.sampling_params = child_id, child_params
                await self._add_request(child_request, prompt, parent_req, index, queue)
                if index % _CHILDREN_AT_ONCE == _CHILDREN_AT_ONCE - 1:
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
        """Register a request twice: here, where its outputs become text, and in the engine core."""
        self.output_processor.add_request(request, prompt, parent_req, index, queue)
        await self.engine_core.add_request_async(request)
        if self.log_requests:
            logger.info("Added request %s.", request.request_id)

    async def _give_up(self, request_id: str, queue: RequestOutputCollector | None) -> None:
        """Abort a request, if it is the one of this queue: another one may have got its id in the meantime."""
        if queue is not None and self.output_processor.has_queue(request_id, queue):
            await self.abort(request_id)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """Give requests up, in both halves of the engine; of one with `n > 1`, all of it. Unknown ids are passed over.

        Their readers get a last output, with the finish reason `abort`.
        """
        request_ids = [request_id] if isinstance(request_id, str) else list(request_id)
        aborted = self.output_processor.abort_requests(request_ids)
        if aborted and not self.errored:
            await self.engine_core.abort_requests_async(aborted)
        if self.log_requests:
            logger.info("Aborted request(s) %s.", ", ".join(request_ids))

    def _run_output_handler(self) -> None:
        """Start the task that receives the outputs, unless it runs already, or has ended by an error.

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
        # It is not given `self`: a task that runs would keep this object from being collected. vLLM: the same.
        handler = output_handling.output_handler(self.engine_core, self.output_processor, self.logger_manager)
        self.output_handler = asyncio.create_task(handler, name="output_handler")


def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel a task from whatever thread. Nothing happens to one that is done, or whose loop has been closed."""
    loop = task.get_loop()
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        task.cancel()
    elif not loop.is_closed():
        loop.call_soon_threadsafe(task.cancel)
