"""A ledger of its own: the tokens in flight are counted from the launched steps, not up and down."""

from weakref import WeakKeyDictionary

from tracellm.engine.core.request import RequestStatus


LEDGERS = WeakKeyDictionary()


def ledger_of(scheduler):
    return LEDGERS.setdefault(scheduler, [])


def recount(scheduler, request):
    request.num_output_placeholders = sum(
        one is request and gets for _, entries in ledger_of(scheduler) for one, gets in entries
    )


class AsyncScheduler:
    def _get_num_wanted_tokens(self, request):
        in_flight = request.num_output_placeholders
        if in_flight and request.use_structured_output:
            return 0
        room = min(self.max_model_len, request.num_prompt_tokens + request.max_tokens)
        goal = request.num_tokens + in_flight
        return (goal if goal < room else room - 1) - request.num_computed_tokens

    def _update_after_schedule(self, scheduler_output):
        super()._update_after_schedule(scheduler_output)
        entries = []
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests[name]
            goal = request.num_tokens + request.num_output_placeholders
            entries.append((request, request.num_computed_tokens >= goal))
        ledger_of(self).append((scheduler_output, entries))
        for request, _ in entries:
            recount(self, request)

    def _pop_requests(self, scheduler_output):
        ledger = ledger_of(self)
        for index, (step, entries) in enumerate(ledger):
            if step is scheduler_output:
                del ledger[: index + 1]
                return [request for request, _ in entries]
        raise ValueError("no such step in flight")

    def update_from_output(self, scheduler_output, model_runner_output):
        for request in self._pop_requests(scheduler_output):
            now = self.requests.get(request.request_id)
            if now is request:
                recount(self, request)
            elif now is not None:
                row = model_runner_output.req_id_to_index[request.request_id]
                model_runner_output.sampled_token_ids[row].clear()
                model_runner_output.errors.pop(request.request_id, None)
        return super().update_from_output(scheduler_output, model_runner_output)

    def _update_request_with_output(self, request, new_token_ids):
        status = request.status
        tokens, stopped = super()._update_request_with_output(request, new_token_ids)
        if status is not RequestStatus.PREEMPTED:
            known = request.num_computed_tokens - request.num_output_placeholders
            size = self.kv_cache_manager.coordinator.block_size
            self.kv_cache_manager.cache_blocks(request, known // size * size)
        elif stopped:
            self.waiting.remove_requests([request])
        return tokens, stopped

    def _fail_request(self, request, message):
        if request in list(self.waiting):
            self.waiting.remove_requests([request])
        super()._fail_request(request, message)
