"""Short: the arithmetic in helpers."""

from itertools import takewhile

from tracellm.engine.core.request import RequestStatus


def total(request):
    return request.num_tokens + request.num_output_placeholders


class AsyncScheduler:
    def _get_num_wanted_tokens(self, request):
        last = min(request.num_prompt_tokens + request.max_tokens, self.max_model_len) - 1
        waits = request.use_structured_output and request.num_output_placeholders
        return 0 if waits else min(total(request), last) - request.num_computed_tokens

    def _update_after_schedule(self, scheduler_output):
        super()._update_after_schedule(scheduler_output)
        requests = list(map(self.requests.__getitem__, scheduler_output.num_scheduled_tokens))
        for one in requests:
            one.num_output_placeholders += one.num_computed_tokens == total(one)
        self._steps_in_flight.append((scheduler_output, requests))

    def update_from_output(self, scheduler_output, model_runner_output):
        out = model_runner_output
        gone = {r.request_id for r in self._pop_requests(scheduler_output) if self.requests.get(r.request_id) is not r}
        for name in gone:
            out.sampled_token_ids[out.req_id_to_index[name]] = []
            out.errors.pop(name, None)
        return super().update_from_output(scheduler_output, out)

    def _pop_requests(self, scheduler_output):
        steps = list(self._steps_in_flight)
        lost = list(takewhile(lambda pair: pair[0] is not scheduler_output, steps))
        if len(lost) == len(steps):
            raise ValueError(scheduler_output)
        for _ in [*lost, 1]:
            self._steps_in_flight.popleft()
        return steps[len(lost)][1]

    def _update_request_with_output(self, request, new_token_ids):
        had_blocks = request.status is not RequestStatus.PREEMPTED
        request.num_output_placeholders -= len(new_token_ids)
        result = super()._update_request_with_output(request, new_token_ids)
        if had_blocks:
            done = request.num_computed_tokens - request.num_output_placeholders
            self.kv_cache_manager.cache_blocks(request, min(done, request.num_tokens - 1))
        elif result[1]:
            self.waiting.remove_requests((request,))
        return result

    def _fail_request(self, request, message):
        self.waiting.remove_requests([request] if request.status is RequestStatus.PREEMPTED else [])
        super()._fail_request(request, message)
