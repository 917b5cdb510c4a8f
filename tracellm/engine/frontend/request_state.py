"""An unfinished request as the front half of the engine sees it, and the outputs that are made of it.

`OutputProcessor.add_request` makes a `RequestState`, and drops it with the request's last output.

vLLM: vllm/v1/engine/output_processor.py::RequestState. Left out: streaming intervals, pooling, LoRA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracellm.engine.frontend.detokenizer import IncrementalDetokenizer
from tracellm.engine.frontend.logprobs import LogprobsProcessor
from tracellm.engine.frontend.output_collector import RequestOutputCollector
from tracellm.engine.frontend.outputs import CompletionOutput, RequestOutput
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.ipc.messages import EngineCoreRequest, FinishReason
from tracellm.engine.metrics.stats import RequestStateStats
from tracellm.engine.sample.sampling_params import RequestOutputKind

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["RequestState"]


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
        queue: RequestOutputCollector | None = None,
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
        self.queue = queue
        """Where the outputs go; `None`: they are returned."""
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
    ) -> RequestState:
        """The state of a request that was just made; `prompt` is its text, if there is one.

        With `n > 1` it is the child of `parent_req` at `request_index`. Its outputs go to `queue`, if there is one.
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
            queue=queue,
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
