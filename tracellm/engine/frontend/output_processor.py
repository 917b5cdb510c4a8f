"""From what a step brought to what the caller sees: text, stop strings, log probabilities, finished requests.

Keeps a `RequestState` for each unfinished request, from `add_request` to its last token. `LLMEngine` gets the outputs
back from `process_outputs`; of `AsyncLLM` each request has a queue (output_collector.py), into which its outputs go.

vLLM: vllm/v1/engine/output_processor.py. Left out: streaming intervals, pooling, LoRA, OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracellm.engine.config.errors import EngineDeadError, InvalidRequestError
from tracellm.engine.frontend.output_collector import RequestOutputCollector
from tracellm.engine.frontend.outputs import RequestOutput
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.frontend.request_state import RequestState
from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from tracellm.engine.metrics.stats import IterationStats

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["OutputProcessor", "OutputProcessorOutput", "RequestOutputCollector", "RequestState"]


@dataclass
class OutputProcessorOutput:
    """What one step's outputs became."""

    request_outputs: list[RequestOutput]
    """Of the requests that have no queue."""
    reqs_to_abort: list[str]
    """Requests that ended here, by a stop string or an error: the engine core does not know yet."""


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
        queue: RequestOutputCollector | None = None,
    ) -> None:
        """Begin to follow a request; with `n > 1`, the child of `parent_req` at `request_index`.

        Its outputs go to `queue`; without one, `process_outputs` returns them.

        Raises:
            InvalidRequestError: one with this id is unfinished.
        """
        request_id = request.request_id if parent_req is None else parent_req.request_id
        taken = {request.request_id, request_id} & self.request_states.keys()
        if taken or self.parent_requests.get(request_id, parent_req) is not parent_req:
            raise InvalidRequestError(f"A request with the id {request_id!r} is running; ids must be unique.")
        self.request_states[request.request_id] = RequestState.from_new_request(
            self.tokenizer, request, prompt, self.log_stats, parent_req, request_index, queue
        )
        if parent_req is not None:
            self.parent_requests[parent_req.request_id] = parent_req

    def is_followed(self, request_id: str, queue: RequestOutputCollector) -> bool:
        """Does a request of this id, or a child of it, still put its outputs into `queue`?"""
        parent = self.parent_requests.get(request_id)
        ids = [request_id] if parent is None else parent.child_requests
        return any(self.request_states[name].queue is queue for name in ids if name in self.request_states)

    def propagate_error(self, error: Exception) -> list[str]:
        """The engine has failed: tell every reader of a queue, and forget the requests. Returns their ids."""
        for state in self.request_states.values():
            if state.queue is not None:
                # One for each: an error that several tasks raise would collect all their tracebacks.
                state.queue.put(EngineDeadError(str(error)) if isinstance(error, EngineDeadError) else error)
        request_ids = list(self.request_states)
        self.request_states.clear()
        self.parent_requests.clear()
        return request_ids

    def abort_requests(self, request_ids: Iterable[str]) -> list[str]:
        """Forget these requests, and the children of those that have some.

        The reader of a queue gets a last output, with the reason `abort`.

        Returns:
            The ids by which the engine core knows those of them that were unfinished.
        """
        aborted = []
        for request_id in request_ids:
            if (parent := self.parent_requests.get(request_id)) is not None:
                parent.child_requests.intersection_update(self.request_states)  # those yet to be added never will be
                aborted += self.abort_requests(sorted(parent.child_requests))
                self.parent_requests.pop(request_id, None)
            elif (state := self.request_states.get(request_id)) is not None:
                if state.queue is not None and (last := state.make_request_output([], FinishReason.ABORT, None)):
                    state.queue.put(last)
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
        engine_core_outputs: Sequence[EngineCoreOutput],
        engine_core_timestamp: float | None = None,
        iteration_stats: IterationStats | None = None,
    ) -> OutputProcessorOutput:
        """Take in one step, or a part of one.

        A request that fails here, or has failed in the engine core, is ended and leaves the others alone: the reader of
        its queue gets the error. Without a queue the former raises, and the latter is an output with the reason
        `error`.

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
            try:
                failed = output.finish_reason is FinishReason.ERROR
                if iteration_stats is not None and not failed:  # there is no token whose times could be told
                    assert engine_core_timestamp is not None
                    self._update_stats_from_output(state, output, engine_core_timestamp, iteration_stats)
                request_output, finish_reason = self._process_output(state, output)
            except Exception as error:
                if state.queue is None:
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
            self._forget(output.request_id)
            if not output.finished:
                reqs_to_abort.append(output.request_id)
            if iteration_stats is not None:
                self._update_stats_from_finished(state, finish_reason, iteration_stats)
        return OutputProcessorOutput(request_outputs, reqs_to_abort)

    def _process_output(
        self, state: RequestState, output: EngineCoreOutput
    ) -> tuple[RequestOutput | None, FinishReason | None]:
        """What the caller gets to see of this output, if anything, and why the request ends, if it does.

        Raises:
            InvalidRequestError: it has failed in the engine core, and has a queue.
        """
        state.is_prefilling = False
        state.num_cached_tokens = output.num_cached_tokens
        finish_reason, stop_reason = output.finish_reason, output.stop_reason
        if finish_reason is FinishReason.ERROR and state.queue is not None:
            raise InvalidRequestError(str(stop_reason))
        stop_string = state.detokenizer.update(output.new_token_ids, finish_reason is FinishReason.STOP)
        if stop_string is not None:
            finish_reason, stop_reason = FinishReason.STOP, stop_string
        state.logprobs_processor.update_from_output(output)
        return state.make_request_output(output.new_token_ids, finish_reason, stop_reason), finish_reason

    def _fail(self, state: RequestState, error: Exception, finished: bool) -> list[str]:
        """End a request, with all its siblings, by an error. Returns those of them that the engine core still has."""
        assert state.queue is not None
        state.queue.put(error)
        siblings = state.parent_req.child_requests if state.parent_req is not None else set()
        forgotten = sorted({state.request_id, *siblings} & self.request_states.keys())
        for request_id in forgotten:
            self._forget(request_id)
        return [request_id for request_id in forgotten if request_id != state.request_id or not finished]

    def _update_stats_from_output(
        self, state: RequestState, output: EngineCoreOutput, timestamp: float, iteration_stats: IterationStats
    ) -> None:
        assert state.stats is not None
        iteration_stats.update_from_output(
            output, timestamp, state.is_prefilling, len(state.prompt_token_ids), state.stats
        )

    def _update_stats_from_finished(
        self, state: RequestState, finish_reason: FinishReason, iteration_stats: IterationStats
    ) -> None:
        assert state.stats is not None
        iteration_stats.update_from_finished_request(
            finish_reason, len(state.prompt_token_ids), state.max_tokens_param, state.stats
        )
        ParentRequest.observe_finished_request(state.parent_req, iteration_stats, state.stats.num_generation_tokens)
