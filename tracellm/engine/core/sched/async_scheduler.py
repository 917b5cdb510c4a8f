"""Asynchronous scheduling: a step is scheduled before the tokens of the previous step are known.

Scheduling takes CPU time, computing takes GPU time. In the plain loop each waits for the other. Here the CPU schedules
and launches step n+1 while the GPU computes step n, and processes the outputs of n afterwards:

    CPU   | schedule 1 | schedule 2 | update 1 | schedule 3 | update 2 | ...
    GPU                | step 1 ............ | step 2 ........... | step 3 ...

This works because a decision depends on whether a request gets a token, not on which one. The unknown token counts as a
placeholder (`Request.num_output_placeholders`) until `update_from_output` brings it. Its value stays on the device,
where the model runner uses it as the next step's input (worker/async_output.py).

Two events are noticed one step late: a token that ends the request, and an abort. The request is then in the next step
already, and its token from that step is discarded. Its blocks are freed at once nevertheless: their next owner writes
to them in a later step, and the device computes one step after the other. `max_tokens` is known in advance and wastes
no step.

Greedy tokens and tokens of seeded requests are those of the plain scheduler. Unseeded requests share a generator and
draw from it in another order. Two cases need the last token on the host, and are slower. A request with a grammar is
scheduled again only when its token is known (vLLM delays the sampling of the whole step instead). A step with penalties
or bad words waits for the previous step's tokens before it samples, as in vLLM.

vLLM: vllm/v1/core/sched/async_scheduler.py. The loop around it is `EngineCore.step_with_batch_queue`.
"""

from collections import deque
from typing import Any

from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.sched.scheduler import Scheduler
from tracellm.engine.ipc.messages import EngineCoreOutputs
from tracellm.engine.worker.model_runner_output import ModelRunnerOutput

__all__ = ["AsyncScheduler"]


class AsyncScheduler(Scheduler):
    """A scheduler that can schedule a step while another one runs.

    vLLM: vllm/v1/core/sched/async_scheduler.py::AsyncScheduler. Left out: draft tokens. Unlike there, tokens of an
    ended request never reach a new request with the same id.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._steps_in_flight: deque[tuple[SchedulerOutput, list[Request]]] = deque()
        """Steps without results so far, and the requests of each; the oldest first."""

    def _get_num_wanted_tokens(self, request: Request) -> int:
        """Count placeholders too, except for the last token of the request, from which nothing is computed."""
        if request.num_output_placeholders and request.use_structured_output:
            return 0  # its grammar needs the token first
        max_num_tokens = min(request.num_prompt_tokens + request.max_tokens, self.max_model_len)
        num_tokens = min(request.num_tokens + request.num_output_placeholders, max_num_tokens - 1)
        return num_tokens - request.num_computed_tokens

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Give a placeholder to each request that will get a token in this step."""
        super()._update_after_schedule(scheduler_output)
        requests = [self.requests[request_id] for request_id in scheduler_output.num_scheduled_tokens]
        for request in requests:
            if request.num_computed_tokens == request.num_tokens + request.num_output_placeholders:
                request.num_output_placeholders += 1
        self._steps_in_flight.append((scheduler_output, requests))

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Update as the plain scheduler does, leaving out requests that ended after they were scheduled."""
        for request in self._pop_requests(scheduler_output):
            request_id = request.request_id
            if request.is_finished() and request_id in self.requests:  # a new request has its id
                model_runner_output.sampled_token_ids[model_runner_output.req_id_to_index[request_id]] = []
                model_runner_output.errors.pop(request_id, None)
        return super().update_from_output(scheduler_output, model_runner_output)

    def _pop_requests(self, scheduler_output: SchedulerOutput) -> list[Request]:
        """Return the requests of this step. Older steps in the list were interrupted and have no results."""
        while self._steps_in_flight:
            step, requests = self._steps_in_flight.popleft()
            if step is scheduler_output:
                return requests
        raise ValueError("this step was not scheduled here, or its results have come already")

    def _update_request_with_output(self, request: Request, new_token_ids: list[int]) -> tuple[list[int], bool]:
        """Replace placeholders by tokens, and cache the block that they complete."""
        preempted = request.status is RequestStatus.PREEMPTED  # after this step was launched
        request.num_output_placeholders -= len(new_token_ids)
        new_token_ids, stopped = super()._update_request_with_output(request, new_token_ids)
        if not preempted:
            num_computed_tokens = request.num_computed_tokens - request.num_output_placeholders
            if num_computed_tokens % self.kv_cache_manager.coordinator.block_size == 0:
                self.kv_cache_manager.cache_blocks(request, num_computed_tokens)
        elif stopped:
            self.waiting.remove_requests([request])
        return new_token_ids, stopped

    def _fail_request(self, request: Request, message: str) -> None:
        """End the request, which may have been preempted after this step was launched."""
        if request.status is RequestStatus.PREEMPTED:
            self.waiting.remove_requests([request])
        super()._fail_request(request, message)
