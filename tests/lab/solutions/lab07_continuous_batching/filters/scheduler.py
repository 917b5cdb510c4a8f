"""Few statements: comprehensions, and a generator of the requests that may start."""

from collections import defaultdict


def _limit(scheduler, step, wanted):
    """Tokens for a prompt in this step, 0 if it must wait for a step of its own."""
    chunk = scheduler._chunk(wanted)
    if chunk <= step.token_budget:
        return chunk
    return step.token_budget if scheduler.scheduler_config.enable_chunked_prefill else 0


class Scheduler:
    def schedule(self):
        step = _Step(self.max_num_scheduled_tokens)
        phases = [self._schedule_running, self._schedule_waiting]
        for phase in phases:
            if not step.preempted_reqs:
                phase(step)
        output = self._make_scheduler_output(step)
        self._update_after_schedule(output)
        return output

    def _schedule_waiting(self, step):
        manager = self.kv_cache_manager
        skipped = create_request_queue(self.policy)
        while self.waiting and step.token_budget and len(self.running) < self.max_num_running_reqs:
            request = self.waiting.pop_request()
            hit, start = manager.get_computed_blocks(request)
            count = _limit(self, step, request.num_tokens - start)
            if not count:
                skipped.prepend_request(request)
            elif manager.allocate_slots(request, count, start, hit) is None:
                self.waiting.prepend_request(request)
                break
            else:
                (step.resumed_reqs if request.num_preemptions else step.new_reqs).append(request)
                self.running = [*self.running, request]
                request.status, request.num_computed_tokens = RequestStatus.RUNNING, start
                request.num_cached_tokens = start if request.num_cached_tokens < 0 else request.num_cached_tokens
                step.num_scheduled_tokens |= {request.request_id: count}
                step.new_blocks |= {request.request_id: manager.get_blocks(request.request_id)}
                step.token_budget -= count
        self.waiting.prepend_requests(skipped)

    def _update_after_schedule(self, scheduler_output):
        scheduled = scheduler_output.num_scheduled_tokens
        for request in map(self.requests.get, scheduled):
            request.num_computed_tokens += scheduled[request.request_id]
        self.prev_step_scheduled_req_ids, self.finished_req_ids = frozenset(scheduled), set()

    def update_from_output(self, scheduler_output, model_runner_output):
        sampled = dict(zip(model_runner_output.req_ids, model_runner_output.sampled_token_ids, strict=True))
        got = [
            (self.requests[name], sampled[name])
            for name in scheduler_output.num_scheduled_tokens
            if name in self.requests and sampled[name]
        ]
        outputs = defaultdict(list)
        for request, tokens in got:
            kept, stopped = self._update_request_with_output(request, tokens)
            outputs[request.client_index].append(
                EngineCoreOutput(
                    request.request_id,
                    kept,
                    finish_reason=request.get_finished_reason(),
                    stop_reason=request.stop_reason,
                    events=request.take_events(),
                    num_cached_tokens=request.num_cached_tokens,
                )
            )
        for request in [one for one, _ in got if one.is_finished()]:
            self._free_request(request)
        self.running = [one for one in self.running if not one.is_finished()]
        return {client: EngineCoreOutputs(outputs=ones) for client, ones in outputs.items()}

    def _update_request_with_output(self, request, new_token_ids):
        for index, token in enumerate(new_token_ids):
            request.append_output_token_ids([token])
            if check_stop(request, self.max_model_len):
                return new_token_ids[: index + 1], True
        return new_token_ids, False

    def finish_requests(self, request_ids, finished_status):
        names = {request_ids} if isinstance(request_ids, str) else set(request_ids)
        ended = [request for name, request in self.requests.items() if name in names]
        self.running = [one for one in self.running if one not in ended]
        self.waiting.remove_requests(ended)
        for request in ended:
            request.status = finished_status
            self._free_request(request)

    def _free_request(self, request):
        del self.requests[request.request_id]
        self.constrained_req_ids -= {request.request_id}
        self.finished_req_ids |= {request.request_id}
        self.kv_cache_manager.free(request)
