"""`LLMEngine`: the synchronous engine. `add_request` takes requests in, `step` returns outputs until none is left.

It joins the front end (processor, output processor) to the engine core behind a client, `engine_core`. `LLM` drives it.

vLLM: vllm/v1/engine/llm_engine.py::LLMEngine. Left out: LoRA, profiling, periodic statistics.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from tracellm.engine.config import envs
from tracellm.engine.config.errors import EngineError, InvalidRequestError
from tracellm.engine.config.tokenizer import get_tokenizer, load_complete_tokenizer
from tracellm.engine.config.validation import NUMBER, is_a
from tracellm.engine.config.vllm_config import VllmConfig
from tracellm.engine.executor.abstract import Executor
from tracellm.engine.frontend.output_processor import OutputProcessor
from tracellm.engine.frontend.outputs import PoolingRequestOutput, RequestOutput
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.frontend.preprocess import PromptType, get_prompt_text
from tracellm.engine.frontend.processor import Processor
from tracellm.engine.frontend.tracing import TRACER_NAME, init_tracer
from tracellm.engine.ipc.core_client import EngineCoreClient
from tracellm.engine.ipc.messages import EngineCoreRequest
from tracellm.engine.metrics.stats import IterationStats
from tracellm.engine.pool.pooling_params import PoolingParams
from tracellm.engine.sample.sampling_params import SamplingParams

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tracellm.engine.config.arg_utils import EngineArgs

__all__ = ["LLMEngine", "verify_request"]


class LLMEngine:
    """Synchronous engine: processor, engine core client and output processor; driven by `LLM`."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        executor_class: type[Executor],
        log_stats: bool,
        multiprocess_mode: bool = False,
    ) -> None:
        if (size := vllm_config.parallel_config.data_parallel_size) > 1:
            raise EngineError(
                f"LLM has one engine core, got data_parallel_size={size}. Use AsyncLLM or `tracellm serve`, which "
                "divide requests between several, or a process with an LLM for each part of the prompts."
            )
        self.vllm_config = vllm_config
        self.model_config = vllm_config.model_config
        endpoint = vllm_config.observability_config.otlp_traces_endpoint
        self.log_stats = log_stats = log_stats or endpoint is not None  # the spans have the times of the statistics
        config = self.model_config
        self.tokenizer = None if config.skip_tokenizer_init else get_tokenizer(config.tokenizer, config.truncation_side)
        self.processor = Processor(vllm_config, self.tokenizer)
        self.output_processor = OutputProcessor(self.tokenizer, log_stats)
        self.output_processor.tracer = init_tracer(TRACER_NAME, endpoint)
        self.engine_core = EngineCoreClient.make_client(
            multiprocess_mode=multiprocess_mode,
            asyncio_mode=False,
            vllm_config=vllm_config,
            executor_class=executor_class,
            log_stats=log_stats,
        )

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, multiprocess_mode: bool | None = None) -> LLMEngine:
        """Resolve the configuration, choose the executor and build the engine.

        Args:
            engine_args: the user's arguments.
            multiprocess_mode: run the engine core in a process of its own; None follows the environment variable
                VLLM_ENABLE_V1_MULTIPROCESSING.

        Raises:
            EngineError: an invalid setting or model, or too little memory.
        """
        if multiprocess_mode is None:
            multiprocess_mode = envs.enable_v1_multiprocessing()
        vllm_config = engine_args.create_engine_config()
        return cls(
            vllm_config=vllm_config,
            executor_class=Executor.get_class(vllm_config),
            log_stats=not engine_args.disable_log_stats,
            multiprocess_mode=multiprocess_mode,
        )

    def add_request(
        self,
        request_id: str,
        prompt: EngineCoreRequest | PromptType,
        params: SamplingParams | PoolingParams,
        arrival_time: float | None = None,
        priority: int = 0,
        prompt_text: str | None = None,
    ) -> None:
        """Add a request, or n child requests with `n > 1` (parallel_sampling.py).

        Args:
            request_id: an id that no unfinished request has.
            prompt: a prompt, or a request made by the `Processor`.
            params: the request's sampling or pooling parameters.
            arrival_time: when the request came, in seconds since the epoch; None is now.
            priority: lower values run first, under scheduling_policy="priority".
            prompt_text: text of the prompt, if `prompt` is a request.

        Raises:
            InvalidRequestError: the request cannot be served, or its id is in use; nothing was added.
        """
        verify_request(request_id, arrival_time, priority)
        if isinstance(prompt, EngineCoreRequest):
            request = prompt
        else:
            request = self.processor.process_inputs(request_id, prompt, params, arrival_time, priority)
            prompt_text = get_prompt_text(prompt)
        if request.sampling_params is None or request.sampling_params.n == 1:
            self._add_request(request, prompt_text)
            return
        parent_req = ParentRequest(request.request_id, request.sampling_params)
        added: list[str] = []
        try:
            for index in range(parent_req.n):
                child_request = copy(request)
                child_request.request_id, child_request.sampling_params = parent_req.get_child_info(index)
                self._add_request(child_request, prompt_text, parent_req, index)
                added.append(child_request.request_id)
        except BaseException:
            parent_req.child_requests.intersection_update(added)
            self.abort_request(added)
            raise

    def _add_request(
        self,
        request: EngineCoreRequest,
        prompt_text: str | None,
        parent_req: ParentRequest | None = None,
        request_index: int = 0,
    ) -> None:
        self.output_processor.add_request(request, prompt_text, parent_req, request_index)
        try:
            self.engine_core.add_request(request)
        except BaseException:
            self.output_processor.abort_requests([request.request_id])
            raise

    def abort_request(self, request_ids: list[str]) -> None:
        """Abort requests, including all children; unknown ids are ignored.

        Raises:
            InvalidRequestError: `request_ids` is a string.
        """
        if isinstance(request_ids, str):
            raise InvalidRequestError(f"abort_request takes a list of request ids, got {request_ids!r}.")
        self.engine_core.abort_requests(self.output_processor.abort_requests(request_ids))

    def step(self) -> list[RequestOutput | PoolingRequestOutput[Any]]:
        """Run one step of the engine core and return the outputs for its callers."""
        outputs = self.engine_core.get_output()
        iteration_stats = IterationStats() if self.log_stats else None
        processed = self.output_processor.process_outputs(outputs.outputs, outputs.timestamp, iteration_stats)
        self.engine_core.abort_requests(processed.reqs_to_abort)  # ended by a stop string
        return processed.request_outputs

    def get_num_unfinished_requests(self) -> int:
        """Return the number of unfinished requests."""
        return self.output_processor.get_num_unfinished_requests()

    def has_unfinished_requests(self) -> bool:
        """Return whether any request is unfinished."""
        return self.output_processor.has_unfinished_requests()

    def get_tokenizer(self) -> PreTrainedTokenizerFast:
        """Return the model's tokenizer.

        Raises:
            EngineError: the engine was made with `skip_tokenizer_init`.
        """
        if self.tokenizer is None:
            raise EngineError("This LLM has no tokenizer: it was made with skip_tokenizer_init=True.")
        return load_complete_tokenizer(self.tokenizer)

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache. Return False, and change nothing, while requests hold blocks."""
        return self.engine_core.reset_prefix_cache()


def verify_request(request_id: object, arrival_time: object, priority: object) -> None:
    """Reject values that would fail later in the scheduler, and with them all its requests."""
    for name, value, accepted, is_valid in (
        ("request_id", request_id, "a string", isinstance(request_id, str)),
        ("arrival_time", arrival_time, "seconds, or None", arrival_time is None or is_a(arrival_time, NUMBER)),
        ("priority", priority, "a whole number", is_a(priority, int)),
    ):
        if not is_valid:
            raise InvalidRequestError(f"add_request: `{name}` must be {accepted}, got {value!r}.")
