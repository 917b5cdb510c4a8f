"""Asynchronous scheduling: a step is decided before the tokens of the step before are known.

Deciding a step takes the CPU's time, computing it the GPU's. In turns, each waits for the other; here the CPU decides
step n+1 and launches it while the GPU computes step n, and only then draws the conclusions of n:

    CPU   | schedule 1 | schedule 2 | update 1 | schedule 3 | update 2 | ...
    GPU                | step 1 ............ | step 2 ........... | step 3 ...

That works because a decision does not depend on which token a request gets, only on that it gets one. Such a token
counts as a placeholder (`Request.num_output_placeholders`) until `update_from_output` brings it; its value stays on the
device, where the model runner takes it as the next step's input (worker/async_output.py).

One thing is found out too late: that the token ends the request (an end of sequence, a stop token), or that its client
is gone. By then it is in the next step, and what it gets there is thrown away. Its blocks are free at once all the
same: whoever gets them writes to them in a later step, and the device computes one step after the other. How many
tokens a request may get at most is known before, and no step is wasted on that.

Tokens are those of the plain scheduler: greedy ones, and random ones of requests with a seed. Requests without one
share a generator, and draw its numbers in another order. What needs the last token on the host before the next can be
sampled goes slower: of a request with a grammar the next step is scheduled when its token is there (vLLM delays the
sampling of the whole step instead); a step in which a request has penalties or bad words waits, before it samples,
for the tokens of the step before, as in vLLM.

vLLM: vllm/v1/core/sched/async_scheduler.py. `EngineCore.step_with_batch_queue` (core.py) is the loop's part of it.
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
    """A scheduler that may be asked for a step while one is under way.

    vLLM: vllm/v1/core/sched/async_scheduler.py::AsyncScheduler. Left out: draft tokens. Otherwise than there: tokens of
    a request that has ended never reach another that has its id.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._under_way: deque[tuple[SchedulerOutput, list[Request]]] = deque()
        """The steps whose results are still to come, the oldest first, and the requests in each."""

    def _get_num_wanted_tokens(self, request: Request) -> int:
        """Those that are being sampled count; of the last that it may get, nothing is ever computed."""
        if request.num_output_placeholders and request.use_structured_output:
            return 0  # its grammar must see that token first
        most = min(request.num_prompt_tokens + request.max_tokens, self.max_model_len)
        num_tokens = min(request.num_tokens + request.num_output_placeholders, most - 1)
        return num_tokens - request.num_computed_tokens

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        """Give each request whose tokens are now all computed a placeholder for the one it will get."""
        super()._update_after_schedule(scheduler_output)
        requests = [self.requests[request_id] for request_id in scheduler_output.num_scheduled_tokens]
        for request in requests:
            if request.num_computed_tokens == request.num_tokens + request.num_output_placeholders:
                request.num_output_placeholders += 1
        self._under_way.append((scheduler_output, requests))

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """As the plain scheduler, for requests that have not ended in the meantime."""
        for request in self._take_requests(scheduler_output):
            request_id = request.request_id
            if request.is_finished() and request_id in self.requests:  # another one, which has its id
                model_runner_output.sampled_token_ids[model_runner_output.req_id_to_index[request_id]] = []
                model_runner_output.errors.pop(request_id, None)
        return super().update_from_output(scheduler_output, model_runner_output)

    def _take_requests(self, scheduler_output: SchedulerOutput) -> list[Request]:
        """Who is in this step. Steps before it that are still listed were interrupted: nothing comes of them."""
        while self._under_way:
            step, requests = self._under_way.popleft()
            if step is scheduler_output:
                return requests
        raise ValueError("this step was not scheduled here, or its results have come already")

    def _update_request_with_output(self, request: Request, new_token_ids: list[int]) -> tuple[list[int], bool]:
        """The token takes the place of its placeholder, and may complete a block."""
        preempted = request.status is RequestStatus.PREEMPTED  # while its token was on the way
        request.num_output_placeholders -= len(new_token_ids)
        new_token_ids, stopped = super()._update_request_with_output(request, new_token_ids)
        if not preempted:
            num_computed_tokens = request.num_computed_tokens - request.num_output_placeholders
            if num_computed_tokens % self.kv_cache_manager.coordinator.block_size == 0:
                self.kv_cache_manager.cache_blocks(request, num_computed_tokens)
        elif stopped:
            self.waiting.remove_requests([request])
        return new_token_ids, stopped

    def _fail_request(self, request: Request, why: str) -> None:
        """It may have been preempted in the meantime."""
        if request.status is RequestStatus.PREEMPTED:
            self.waiting.remove_requests([request])
        super()._fail_request(request, why)
