"""Scheduling for a pipeline: several steps are under way, each with other requests.

With p stages, p steps can run at once, one in each stage. A request whose token is not known is in one of them and is
left out of the next step, so the others have their turn. Prompts need no such wait: the next chunk of a prompt can be
scheduled while the previous one is computed, because each stage computes one step after the other.

If all requests are in one step, the next step is empty, and the stages work in turn. They overlap only once requests
are in different steps, because they came at different times or did not fit into one.

vLLM: vllm/v1/core/sched/scheduler.py::Scheduler does this too, if `use_pp` is set. There a preempted request can be
resumed before its token is known, with three stages or more, and gets that token twice.
"""

from typing import Any

from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.async_scheduler import AsyncScheduler
from tracellm.engine.core.sched.output import CachedRequestData
from tracellm.engine.core.sched.scheduler import Scheduler

__all__ = ["PipelineScheduler"]


class PipelineScheduler(AsyncScheduler):
    """An `AsyncScheduler` that waits for the token of a request before it schedules the request again."""

    def _get_num_wanted_tokens(self, request: Request) -> int:
        """Return the number of tokens that the request could compute: none while a token of it is computed."""
        return 0 if request.num_output_placeholders else request.num_tokens - request.num_computed_tokens

    def _make_cached_request_data(self, step: Any) -> CachedRequestData:
        """Add the tokens to compute: the first stage has not sampled them."""
        data = super()._make_cached_request_data(step)
        for request_id, start in zip(data.req_ids, data.num_computed_tokens, strict=True):
            end = start + step.num_scheduled_tokens[request_id]
            data.new_token_ids.append(list(self.requests[request_id].all_token_ids[start:end]))
        return data

    def _update_request_with_output(self, request: Request, new_token_ids: list[int]) -> tuple[list[int], bool]:
        """Append the tokens; blocks that they complete are cached when the request is scheduled again."""
        preempted = request.status is RequestStatus.PREEMPTED  # after this step was launched
        request.num_output_placeholders -= len(new_token_ids)
        new_token_ids, stopped = Scheduler._update_request_with_output(self, request, new_token_ids)
        if preempted and stopped:
            self.waiting.remove_requests([request])
        return new_token_ids, stopped
