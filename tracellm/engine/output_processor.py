"""From what a step brought to what the caller sees: text, stop strings, log probabilities, finished requests.

Keeps a `RequestState` for each unfinished request, from `LLMEngine.add_request` to its last token.

vLLM: vllm/v1/engine/output_processor.py. Left out: streaming queues, pooling.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracellm.engine.detokenizer import IncrementalDetokenizer
from tracellm.engine.errors import InvalidRequestError
from tracellm.engine.logprobs import LogprobsProcessor
from tracellm.engine.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from tracellm.engine.metrics.stats import IterationStats, RequestStateStats
from tracellm.engine.outputs import CompletionOutput, RequestOutput
from tracellm.engine.parallel_sampling import ParentRequest
from tracellm.engine.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["OutputProcessor", "OutputProcessorOutput", "RequestState"]


@dataclass
class OutputProcessorOutput:
    """What one step's outputs became."""

    request_outputs: list[RequestOutput]
    reqs_to_abort: list[str]
    """Requests that a stop string ended: the engine core does not know yet."""


class RequestState:
    """An unfinished request as the front half of the engine sees it."""

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
        self.stats = stats
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
    ) -> RequestState:
        """The state of a request that was just made; `prompt` is its text, if there is one.

        With `n > 1` it is the child of `parent_req` at `request_index`.
        """
        params = request.sampling_params
        its_tokenizer = tokenizer if params.detokenize else None
        return cls(
            request_id=request.request_id,
            output_kind=params.output_kind,
            prompt=prompt,
            prompt_token_ids=request.prompt_token_ids,
            logprobs_processor=LogprobsProcessor.from_new_request(its_tokenizer, request),
            detokenizer=IncrementalDetokenizer.from_new_request(its_tokenizer, request),
            max_tokens_param=params.max_tokens,
            stats=RequestStateStats(arrival_time=request.arrival_time) if log_stats else None,
            parent_req=parent_req,
            request_index=request_index,
        )

    def make_request_output(
        self, new_token_ids: list[int], finish_reason: FinishReason | None, stop_reason: int | str | None
    ) -> RequestOutput | None:
        """What the caller gets after this step; `None` when it wants only the finished output and this is not it."""
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
        if logprobs is not None:  # copied, so that what the caller has does not grow; vLLM lets it
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


class OutputProcessor:
    """Turns `EngineCoreOutput`s into `RequestOutput`s."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast | None, log_stats: bool) -> None:
        self.tokenizer = tokenizer
        self.log_stats = log_stats
        self.request_states: dict[str, RequestState] = {}
        self.parent_requests: dict[str, ParentRequest] = {}

    def get_num_unfinished_requests(self) -> int:
        """How many requests still run or wait."""
        return len(self.request_states)

    def has_unfinished_requests(self) -> bool:
        """Does any request still run or wait?"""
        return bool(self.request_states)

    def add_request(
        self,
        request: EngineCoreRequest,
        prompt: str | None,
        parent_req: ParentRequest | None = None,
        request_index: int = 0,
    ) -> None:
        """Begin to follow a request; with `n > 1`, the child of `parent_req` at `request_index`.

        Raises:
            InvalidRequestError: one with this id is unfinished.
        """
        request_id = request.request_id if parent_req is None else parent_req.request_id
        taken = {request.request_id, request_id} & self.request_states.keys()
        if taken or self.parent_requests.get(request_id, parent_req) is not parent_req:
            raise InvalidRequestError(f"A request with the id {request_id!r} is running; ids must be unique.")
        self.request_states[request.request_id] = RequestState.from_new_request(
            self.tokenizer, request, prompt, self.log_stats, parent_req, request_index
        )
        if parent_req is not None:
            self.parent_requests[parent_req.request_id] = parent_req

    def abort_requests(self, request_ids: Iterable[str]) -> list[str]:
        """Forget these requests, and the children of those that have some.

        Returns:
            The ids by which the engine core knows those of them that were unfinished.
        """
        aborted = []
        for request_id in request_ids:
            if (parent := self.parent_requests.get(request_id)) is not None:
                aborted += self.abort_requests(sorted(parent.child_requests))
            elif request_id in self.request_states:
                self._forget(request_id)
                aborted.append(request_id)
        return aborted

    def _forget(self, request_id: str) -> None:
        """Drop a request; with the last child goes the parent."""
        parent = self.request_states.pop(request_id).parent_req
        if parent is not None:
            parent.child_requests.discard(request_id)
            if not parent.child_requests:
                self.parent_requests.pop(parent.request_id, None)

    def process_outputs(
        self,
        engine_core_outputs: list[EngineCoreOutput],
        engine_core_timestamp: float | None = None,
        iteration_stats: IterationStats | None = None,
    ) -> OutputProcessorOutput:
        """Take in one step.

        Args:
            engine_core_outputs: of the requests that got tokens or ended.
            engine_core_timestamp: when the step ended, on the engine core's monotonic clock, in seconds.
            iteration_stats: to be filled; needs the timestamp, and `log_stats`.
        """
        request_outputs: list[RequestOutput] = []
        reqs_to_abort: list[str] = []
        for output in engine_core_outputs:
            state = self.request_states.get(output.request_id)
            if state is None:  # aborted while the step ran
                continue
            if iteration_stats is not None:
                assert engine_core_timestamp is not None
                assert state.stats is not None
                iteration_stats.update_from_output(
                    output, engine_core_timestamp, state.is_prefilling, len(state.prompt_token_ids), state.stats
                )
            state.is_prefilling = False
            state.num_cached_tokens = output.num_cached_tokens
            finish_reason, stop_reason = output.finish_reason, output.stop_reason
            stop_string = state.detokenizer.update(output.new_token_ids, finish_reason is FinishReason.STOP)
            if stop_string is not None:
                finish_reason, stop_reason = FinishReason.STOP, stop_string
            state.logprobs_processor.update_from_output(output)
            if request_output := state.make_request_output(output.new_token_ids, finish_reason, stop_reason):
                request_outputs.append(request_output)
            if finish_reason is None:
                continue
            self._forget(output.request_id)
            if not output.finished:
                reqs_to_abort.append(output.request_id)
            if iteration_stats is not None and state.stats is not None:
                iteration_stats.update_from_finished_request(
                    finish_reason, len(state.prompt_token_ids), state.max_tokens_param, state.stats
                )
                ParentRequest.observe_finished_request(
                    state.parent_req, iteration_stats, state.stats.num_generation_tokens
                )
        return OutputProcessorOutput(request_outputs, reqs_to_abort)
