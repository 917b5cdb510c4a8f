"""From what a step brought to what the caller sees: text, stop strings, finished requests.

Keeps a `RequestState` for each unfinished request, from `LLMEngine.add_request` to its last token.

vLLM: vllm/v1/engine/output_processor.py. Left out: streaming queues, parallel sampling, log probabilities, pooling.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracellm.engine.detokenizer import IncrementalDetokenizer
from tracellm.engine.errors import InvalidRequestError
from tracellm.engine.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from tracellm.engine.outputs import CompletionOutput, RequestOutput, RequestStateStats
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
        detokenizer: IncrementalDetokenizer,
        stats: RequestStateStats | None,
    ) -> None:
        self.request_id = request_id
        self.output_kind = output_kind
        self.prompt = prompt
        self.prompt_token_ids = prompt_token_ids
        self.detokenizer = detokenizer
        self.stats = stats
        self.num_cached_tokens = 0

    @classmethod
    def from_new_request(
        cls,
        tokenizer: PreTrainedTokenizerFast,
        request: EngineCoreRequest,
        prompt: str | None,
        log_stats: bool,
    ) -> RequestState:
        """The state of a request that was just made; `prompt` is its text, if there is one."""
        params = request.sampling_params
        return cls(
            request_id=request.request_id,
            output_kind=params.output_kind,
            prompt=prompt,
            prompt_token_ids=request.prompt_token_ids,
            detokenizer=IncrementalDetokenizer.from_new_request(tokenizer if params.detokenize else None, request),
            stats=RequestStateStats(arrival_time=request.arrival_time) if log_stats else None,
        )

    def make_request_output(
        self, new_token_ids: list[int], finish_reason: FinishReason | None, stop_reason: int | str | None
    ) -> RequestOutput | None:
        """What the caller gets after this step; `None` when it wants only the finished output and this is not it."""
        finished = finish_reason is not None
        if not finished and self.output_kind is RequestOutputKind.FINAL_ONLY:
            return None
        delta = self.output_kind is RequestOutputKind.DELTA
        completion = CompletionOutput(
            index=0,
            text=self.detokenizer.get_next_output_text(finished, delta),
            token_ids=new_token_ids if delta else list(self.detokenizer.output_token_ids),
            finish_reason=str(finish_reason) if finished else None,
            stop_reason=stop_reason,
        )
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            outputs=[completion],
            finished=finished,
            num_cached_tokens=self.num_cached_tokens,
            metrics=self.stats,
        )


class OutputProcessor:
    """Turns `EngineCoreOutput`s into `RequestOutput`s."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, log_stats: bool) -> None:
        self.tokenizer = tokenizer
        self.log_stats = log_stats
        self.request_states: dict[str, RequestState] = {}

    def get_num_unfinished_requests(self) -> int:
        """How many requests still run or wait."""
        return len(self.request_states)

    def has_unfinished_requests(self) -> bool:
        """Does any request still run or wait?"""
        return bool(self.request_states)

    def add_request(self, request: EngineCoreRequest, prompt: str | None) -> None:
        """Begin to follow a request.

        Raises:
            InvalidRequestError: one with this id is unfinished.
        """
        if request.request_id in self.request_states:
            raise InvalidRequestError(f"A request with the id {request.request_id!r} is running; ids must be unique.")
        self.request_states[request.request_id] = RequestState.from_new_request(
            self.tokenizer, request, prompt, self.log_stats
        )

    def abort_requests(self, request_ids: Iterable[str]) -> list[str]:
        """Forget these requests; those of them that were unfinished."""
        return [request_id for request_id in request_ids if self.request_states.pop(request_id, None) is not None]

    def process_outputs(
        self, engine_core_outputs: list[EngineCoreOutput], engine_core_timestamp: float | None = None
    ) -> OutputProcessorOutput:
        """Take in one step.

        Args:
            engine_core_outputs: of the requests that got tokens or ended.
            engine_core_timestamp: when the step ended, on the monotonic clock, in seconds.
        """
        request_outputs: list[RequestOutput] = []
        reqs_to_abort: list[str] = []
        for output in engine_core_outputs:
            state = self.request_states.get(output.request_id)
            if state is None:  # aborted while the step ran
                continue
            self._update_stats_from_output(state, output, engine_core_timestamp)
            state.num_cached_tokens = output.num_cached_tokens
            finish_reason, stop_reason = output.finish_reason, output.stop_reason
            stop_string = state.detokenizer.update(output.new_token_ids, finish_reason is FinishReason.STOP)
            if stop_string is not None:
                finish_reason, stop_reason = FinishReason.STOP, stop_string
            if request_output := state.make_request_output(output.new_token_ids, finish_reason, stop_reason):
                request_outputs.append(request_output)
            if finish_reason is not None:
                del self.request_states[output.request_id]
                if not output.finished:
                    reqs_to_abort.append(output.request_id)
        return OutputProcessorOutput(request_outputs, reqs_to_abort)

    def _update_stats_from_output(
        self, state: RequestState, output: EngineCoreOutput, engine_core_timestamp: float | None
    ) -> None:
        if (stats := state.stats) is None or engine_core_timestamp is None or not output.new_token_ids:
            return
        if not stats.num_generation_tokens:
            stats.first_token_latency = time.time() - stats.arrival_time
            stats.first_token_ts = engine_core_timestamp
        stats.last_token_ts = engine_core_timestamp
        stats.num_generation_tokens += len(output.new_token_ids)
