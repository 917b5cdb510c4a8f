"""Output side of the front end: from the engine core's outputs to the `RequestOutput`s that callers see.

Adds what the engine core does not compute: text, stop strings, log probabilities by token, statistics. Each unfinished
request has a `RequestState`, for pooling a `PoolingRequestState` (pooling.py), from `add_request` to its last output.
`LLMEngine` gets the outputs returned by `process_outputs`; under `AsyncLLM` each request has a queue, a
`RequestOutputCollector`.

vLLM: vllm/v1/engine/output_processor.py. Left out: streaming intervals, LoRA. `do_tracing` is in tracing.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tracellm.engine.config.errors import EngineDeadError, InvalidRequestError
from tracellm.engine.frontend.detokenizer import IncrementalDetokenizer
from tracellm.engine.frontend.logprobs import LogprobsProcessor
from tracellm.engine.frontend.output_collector import RequestOutputCollector
from tracellm.engine.frontend.outputs import CompletionOutput, PoolingRequestOutput, RequestOutput
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.frontend.pooling import PoolingRequestState
from tracellm.engine.frontend.tracing import do_tracing
from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from tracellm.engine.metrics.stats import IterationStats, RequestStateStats
from tracellm.engine.sample.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from transformers import PreTrainedTokenizerFast

__all__ = ["OutputProcessor", "OutputProcessorOutput", "RequestState"]


@dataclass
class OutputProcessorOutput:
    """Result of `OutputProcessor.process_outputs`."""

    request_outputs: list[RequestOutput | PoolingRequestOutput[Any]]
    """Outputs of the requests without a queue."""
    reqs_to_abort: list[str]
    """Requests that ended here, by a stop string or an error, and still run in the engine core."""


class RequestState:
    """Front-end state of an unfinished request; makes its outputs."""

    def __init__(
        self,
        request_id: str,
        output_kind: RequestOutputKind,
        prompt: str | None,
        prompt_token_ids: list[int],
        logprobs_processor: LogprobsProcessor,
        detokenizer: IncrementalDetokenizer,
        max_tokens_param: int | None,
        stats: RequestStateStats | None,
        parent_req: ParentRequest | None = None,
        request_index: int = 0,
        queue: RequestOutputCollector | None = None,
        top_p: float | None = None,
        n: int | None = None,
        temperature: float | None = None,
    ) -> None:
        self.request_id = request_id
        self.parent_req = parent_req
        self.request_index = request_index
        self.output_kind = output_kind
        self.prompt = prompt
        self.prompt_token_ids = prompt_token_ids
        self.logprobs_processor = logprobs_processor
        self.detokenizer = detokenizer
        self.max_tokens_param = max_tokens_param
        self.top_p = top_p
        self.n = n
        self.temperature = temperature
        self.stats = stats
        self.queue = queue
        """Queue for the outputs; without one, `process_outputs` returns them."""
        self.is_prefilling = True
        self.num_cached_tokens = 0

    @classmethod
    def from_new_request(
        cls,
        tokenizer: PreTrainedTokenizerFast | None,
        request: EngineCoreRequest,
        prompt: str | None,
        log_stats: bool,
        parent_req: ParentRequest | None = None,
        request_index: int = 0,
        queue: RequestOutputCollector | None = None,
    ) -> RequestState | PoolingRequestState:
        """Create the state of a new request.

        Args:
            tokenizer: the model's tokenizer; None makes no text.
            request: the request as the engine core gets it.
            prompt: the prompt's text, if there is one.
            log_stats: whether to keep the request's times.
            parent_req: with `n > 1`, the parent of this child request.
            request_index: the child's index among its siblings.
            queue: queue for the outputs, under `AsyncLLM`.
        """
        if (params := request.sampling_params) is None:
            return PoolingRequestState(request, log_stats, queue)
        if not params.detokenize:
            tokenizer = None
        return cls(
            request_id=request.request_id,
            output_kind=params.output_kind,
            prompt=prompt,
            prompt_token_ids=request.prompt_token_ids,
            logprobs_processor=LogprobsProcessor.from_new_request(tokenizer, request),
            detokenizer=IncrementalDetokenizer.from_new_request(tokenizer, request),
            max_tokens_param=params.max_tokens,
            stats=RequestStateStats(arrival_time=request.arrival_time) if log_stats else None,
            parent_req=parent_req,
            request_index=request_index,
            queue=queue,
            top_p=params.top_p,
            n=params.n,
            temperature=params.temperature,
        )

    def update(self, output: EngineCoreOutput) -> tuple[RequestOutput | None, FinishReason | None]:
        """Return the caller's output, if there is one now, and the finish reason, if the request ends.

        Raises:
            InvalidRequestError: the request failed in the engine core and has a queue.
        """
        self.is_prefilling = False
        self.num_cached_tokens = output.num_cached_tokens
        finish_reason, stop_reason = output.finish_reason, output.stop_reason
        if finish_reason is FinishReason.ERROR and self.queue is not None:
            raise InvalidRequestError(str(stop_reason))
        stop_string = self.detokenizer.update(output.new_token_ids, finish_reason is FinishReason.STOP)
        if stop_string is not None:
            finish_reason, stop_reason = FinishReason.STOP, stop_string
        self.logprobs_processor.update_from_output(output)
        return self.make_request_output(output.new_token_ids, finish_reason, stop_reason), finish_reason

    def make_request_output(
        self, new_token_ids: list[int], finish_reason: FinishReason | None, stop_reason: int | str | None
    ) -> RequestOutput | None:
        """Return the output of this step, or None under `FINAL_ONLY` before the end."""
        finished = finish_reason is not None
        if not finished and self.output_kind is RequestOutputKind.FINAL_ONLY:
            return None
        completion = self._new_completion_output(new_token_ids, finish_reason, stop_reason)
        if self.parent_req is None:
            return self._new_request_output(self.request_id, [completion], finished)
        request_id, outputs, finished = self.parent_req.get_outputs(self.request_id, completion)
        return self._new_request_output(request_id, outputs, finished) if outputs else None

    def _new_completion_output(
        self, new_token_ids: list[int], finish_reason: FinishReason | None, stop_reason: int | str | None
    ) -> CompletionOutput:
        finished = finish_reason is not None
        delta = self.output_kind is RequestOutputKind.DELTA
        logprobs = self.logprobs_processor.logprobs
        if logprobs is not None:  # a copy, so the caller's list does not grow; vLLM's does
            logprobs = logprobs[len(logprobs) - len(new_token_ids) if delta else 0 :]
        return CompletionOutput(
            index=self.request_index,
            text=self.detokenizer.get_next_output_text(finished, delta),
            token_ids=new_token_ids if delta else list(self.detokenizer.output_token_ids),
            cumulative_logprob=self.logprobs_processor.cumulative_logprob,
            logprobs=logprobs,
            finish_reason=str(finish_reason) if finished else None,
            stop_reason=stop_reason if finished else None,
        )

    def _new_request_output(self, request_id: str, outputs: list[CompletionOutput], finished: bool) -> RequestOutput:
        if self.output_kind is RequestOutputKind.DELTA:
            prompt_logprobs = self.logprobs_processor.pop_prompt_logprobs()
        else:
            prompt_logprobs = self.logprobs_processor.prompt_logprobs
        return RequestOutput(
            request_id=request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            prompt_logprobs=prompt_logprobs,
            outputs=outputs,
            finished=finished,
            metrics=self.stats,
            num_cached_tokens=self.num_cached_tokens,
        )


_State: TypeAlias = RequestState | PoolingRequestState


class OutputProcessor:
    """Turns `EngineCoreOutput`s into `RequestOutput`s; used by `LLMEngine` and `AsyncLLM`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast | None, log_stats: bool) -> None:
        self.tokenizer = tokenizer
        self.log_stats = log_stats
        self.request_states: dict[str, _State] = {}
        self.parent_requests: dict[str, ParentRequest] = {}
        self.tracer: Tracer | None = None
        """Tracer of finished requests; None without `otlp_traces_endpoint`."""

    def get_num_unfinished_requests(self) -> int:
        """Return the number of unfinished requests."""
        return len(self.request_states)

    def has_unfinished_requests(self) -> bool:
        """Return whether any request is unfinished."""
        return bool(self.request_states)

    def add_request(
        self,
        request: EngineCoreRequest,
        prompt: str | None,
        parent_req: ParentRequest | None = None,
        request_index: int = 0,
        queue: RequestOutputCollector | None = None,
    ) -> None:
        """Register a request; arguments as for `RequestState.from_new_request`.

        Raises:
            InvalidRequestError: an unfinished request has the same id.
        """
        request_id = request.request_id if parent_req is None else parent_req.request_id
        duplicates = {request.request_id, request_id} & self.request_states.keys()
        if duplicates or self.parent_requests.get(request_id, parent_req) is not parent_req:
            raise InvalidRequestError(f"Request id {request_id} already running. Give another id: ids must be unique.")
        self.request_states[request.request_id] = RequestState.from_new_request(
            self.tokenizer, request, prompt, self.log_stats, parent_req, request_index, queue
        )
        if parent_req is not None:
            self.parent_requests[parent_req.request_id] = parent_req

    def has_queue(self, request_id: str, queue: RequestOutputCollector) -> bool:
        """Return whether this request, or a child of it, puts its outputs into `queue`."""
        parent = self.parent_requests.get(request_id)
        ids = [request_id] if parent is None else parent.child_requests
        return any(self.request_states[name].queue is queue for name in ids if name in self.request_states)

    def propagate_error(self, error: Exception) -> list[str]:
        """Put the engine's error into every queue and drop all requests. Return their ids."""
        for state in self.request_states.values():
            if state.queue is not None:
                # One exception per reader: a shared one would collect the tracebacks of all of them.
                state.queue.put(EngineDeadError(str(error)) if isinstance(error, EngineDeadError) else error)
        request_ids = list(self.request_states)
        self.request_states.clear()
        self.parent_requests.clear()
        return request_ids

    def abort_requests(self, request_ids: Iterable[str]) -> list[str]:
        """Drop requests and the children of those that have some. A queue gets a last output with reason `abort`.

        Returns:
            The ids of those that were unfinished, as the engine core has them.
        """
        aborted = []
        for request_id in request_ids:
            if (parent := self.parent_requests.get(request_id)) is not None:
                parent.child_requests.intersection_update(self.request_states)  # children not added yet never will be
                aborted += self.abort_requests(sorted(parent.child_requests))
                self.parent_requests.pop(request_id, None)
            elif (state := self.request_states.get(request_id)) is not None:
                if state.queue is not None and (last := state.make_request_output([], FinishReason.ABORT, None)):
                    state.queue.put(last)
                self._remove(request_id)
                aborted.append(request_id)
        return aborted

    def _remove(self, request_id: str) -> None:
        """Drop a request, and its parent when it was the last child."""
        parent = self.request_states.pop(request_id).parent_req
        if parent is not None:
            parent.child_requests.discard(request_id)
            if not parent.child_requests:
                self.parent_requests.pop(parent.request_id, None)

    def process_outputs(
        self,
        engine_core_outputs: Sequence[EngineCoreOutput],
        engine_core_timestamp: float | None = None,
        iteration_stats: IterationStats | None = None,
    ) -> OutputProcessorOutput:
        """Process the outputs of one step, or a chunk of them.

        A request that failed in the engine core, or fails here, ends alone. With a queue its reader gets the error.
        Without one, a failure here or of a request for pooling is raised; others become an output with reason `error`.

        Args:
            engine_core_outputs: outputs of the requests that got tokens or ended.
            engine_core_timestamp: end of the step on the engine core's monotonic clock, in seconds.
            iteration_stats: statistics to fill; needs the timestamp and `log_stats`.
        """
        request_outputs: list[RequestOutput | PoolingRequestOutput[Any]] = []
        reqs_to_abort: list[str] = []
        for output in engine_core_outputs:
            state = self.request_states.get(output.request_id)
            if state is None:  # aborted while the step ran
                continue
            try:
                failed = output.finish_reason is FinishReason.ERROR
                if iteration_stats is not None and not failed:  # a failed request got no token to count
                    assert engine_core_timestamp is not None
                    self._update_stats_from_output(state, output, engine_core_timestamp, iteration_stats)
                request_output, finish_reason = state.update(output)
            except Exception as error:
                if state.queue is None:
                    self._remove(output.request_id)
                    raise
                reqs_to_abort += self._fail(state, error, output.finished)
                if iteration_stats is not None:
                    self._update_stats_from_finished(state, FinishReason.ERROR, iteration_stats)
                continue
            if request_output is not None:
                if state.queue is None:
                    request_outputs.append(request_output)
                else:
                    state.queue.put(request_output)
            if finish_reason is None:
                continue
            self._remove(output.request_id)
            if not output.finished:
                reqs_to_abort.append(output.request_id)
            if iteration_stats is not None:
                self._update_stats_from_finished(state, finish_reason, iteration_stats)
                if self.tracer is not None:
                    do_tracing(self.tracer, state, output.trace_headers, iteration_stats)
        return OutputProcessorOutput(request_outputs, reqs_to_abort)

    def _fail(self, state: _State, error: Exception, finished: bool) -> list[str]:
        """End a request and its siblings by an error. Return those that still run in the engine core."""
        assert state.queue is not None
        state.queue.put(error)
        siblings = state.parent_req.child_requests if state.parent_req is not None else set()
        removed = sorted({state.request_id, *siblings} & self.request_states.keys())
        for request_id in removed:
            self._remove(request_id)
        return [request_id for request_id in removed if request_id != state.request_id or not finished]

    def _update_stats_from_output(
        self, state: _State, output: EngineCoreOutput, timestamp: float, iteration_stats: IterationStats
    ) -> None:
        assert state.stats is not None
        iteration_stats.update_from_output(
            output, timestamp, state.is_prefilling, len(state.prompt_token_ids), state.stats
        )

    def _update_stats_from_finished(
        self, state: _State, finish_reason: FinishReason, iteration_stats: IterationStats
    ) -> None:
        assert state.stats is not None
        iteration_stats.update_from_finished_request(
            finish_reason, len(state.prompt_token_ids), state.max_tokens_param, state.stats
        )
        ParentRequest.observe_finished_request(state.parent_req, iteration_stats, state.stats.num_generation_tokens)
