"""Step by step, with plain conditions."""

from tracellm.engine.core.request import RequestStatus


class AsyncScheduler:
    def _get_num_wanted_tokens(self, request):
        if request.use_structured_output:
            if request.num_output_placeholders > 0:
                return 0
        have = request.num_tokens + request.num_output_placeholders
        most = request.num_prompt_tokens + request.max_tokens
        if most > self.max_model_len:
            most = self.max_model_len
        if have > most - 1:
            have = most - 1
        return have - request.num_computed_tokens

    def _update_after_schedule(self, scheduler_output):
        super()._update_after_schedule(scheduler_output)
        requests = []
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests[request_id]
            requests.append(request)
            left = request.num_tokens + request.num_output_placeholders - request.num_computed_tokens
            if left == 0:
                request.num_output_placeholders = request.num_output_placeholders + 1
        self._steps_in_flight.append((scheduler_output, requests))

    def update_from_output(self, scheduler_output, model_runner_output):
        for request in self._pop_requests(scheduler_output):
            name = request.request_id
            if name in self.requests and self.requests[name] is not request:
                row = model_runner_output.req_id_to_index[name]
                model_runner_output.sampled_token_ids[row] = []
                if name in model_runner_output.errors:
                    del model_runner_output.errors[name]
        return super().update_from_output(scheduler_output, model_runner_output)

    def _pop_requests(self, scheduler_output):
        known = [step for step, _ in self._steps_in_flight]
        found = None
        for number in range(len(known)):
            if known[number] is scheduler_output:
                found = number
        if found is None:
            raise ValueError("unknown step")
        for _ in range(found):
            self._steps_in_flight.popleft()
        _, requests = self._steps_in_flight.popleft()
        return requests

    def _update_request_with_output(self, request, new_token_ids):
        was_preempted = request.status == RequestStatus.PREEMPTED
        for _ in new_token_ids:
            request.num_output_placeholders -= 1
        tokens, stopped = super()._update_request_with_output(request, new_token_ids)
        if was_preempted:
            if stopped:
                self.waiting.remove_requests([request])
            return tokens, stopped
        known = request.num_computed_tokens - request.num_output_placeholders
        self.kv_cache_manager.cache_blocks(request, known)
        return tokens, stopped

    def _fail_request(self, request, message):
        was_preempted = request.status == RequestStatus.PREEMPTED
        super()._fail_request(request, message)
        if was_preempted:
            self.waiting.remove_requests([request])
