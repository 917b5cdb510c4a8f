"""`PoolingRequestState`: the state of an unfinished request to a pooling model in the front end.

In a request's life: from `OutputProcessor.add_request` to its only output.

vLLM: the branches for pooling in vllm/v1/engine/output_processor.py::RequestState.
"""

from __future__ import annotations

from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.frontend.output_collector import RequestOutputCollector
from tracellm.engine.frontend.outputs import PoolingOutput, PoolingRequestOutput
from tracellm.engine.frontend.parallel_sampling import ParentRequest
from tracellm.engine.ipc.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from tracellm.engine.metrics.stats import RequestStateStats

__all__ = ["PoolingRequestState"]


class PoolingRequestState:
    """Front-end state of a request for pooling; makes its output. The counterpart of `RequestState`."""

    def __init__(self, request: EngineCoreRequest, log_stats: bool, queue: RequestOutputCollector | None) -> None:
        """Create the state of a new request; the arguments are those of `RequestState.from_new_request`."""
        self.request_id = request.request_id
        self.parent_req: ParentRequest | None = None
        self.prompt_token_ids = request.prompt_token_ids
        self.max_tokens_param: int | None = None
        self.top_p: float | None = None
        self.temperature: float | None = None
        self.n: int | None = None
        self.stats = RequestStateStats(arrival_time=request.arrival_time) if log_stats else None
        self.queue = queue
        self.is_prefilling = True
        self.num_cached_tokens = 0

    def update(
        self, output: EngineCoreOutput
    ) -> tuple[PoolingRequestOutput[PoolingOutput] | None, FinishReason | None]:
        """Return the caller's output, and the finish reason.

        Raises:
            InvalidRequestError: the request failed in the engine core.
        """
        self.is_prefilling = False
        self.num_cached_tokens = output.num_cached_tokens
        if output.finish_reason is FinishReason.ERROR:
            raise InvalidRequestError(f"Request {self.request_id!r}: {output.stop_reason}")
        return self._new_output(output.pooling_output), output.finish_reason

    def make_request_output(
        self, new_token_ids: list[int], finish_reason: FinishReason | None, stop_reason: int | str | None
    ) -> PoolingRequestOutput[PoolingOutput]:
        """Return the last output of an aborted request, whose result is empty."""
        import torch

        return self._new_output(torch.empty(0))

    def _new_output(self, data: object) -> PoolingRequestOutput[PoolingOutput]:
        return PoolingRequestOutput(
            request_id=self.request_id,
            outputs=PoolingOutput(data),  # type: ignore[arg-type]
            prompt_token_ids=self.prompt_token_ids,
            num_cached_tokens=self.num_cached_tokens,
            finished=True,
        )
