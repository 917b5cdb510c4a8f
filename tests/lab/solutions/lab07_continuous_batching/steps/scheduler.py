"""One start at a time, by recursion; small functions of its own."""


def _can_start(scheduler, step):
    return bool(scheduler.waiting) and step.token_budget > 0 and len(scheduler.running) < scheduler.max_num_running_reqs


def _start_first(scheduler, step, skipped):
    """Start the first waiting request or put it aside; return False if it has to wait."""
    request = scheduler.waiting.peek_request()
    name = request.request_id
    cached_blocks, num_cached = scheduler.kv_cache_manager.get_computed_blocks(request)
    missing = len(request.all_token_ids) - num_cached
    tokens = min(scheduler._chunk(missing), step.token_budget)
    if tokens < scheduler._chunk(missing) and not scheduler.scheduler_config.enable_chunked_prefill:
        skipped.insert(0, scheduler.waiting.pop_request())
        return True
    if scheduler.kv_cache_manager.allocate_slots(request, tokens, num_cached, cached_blocks) is None:
        return False
    if request.status is RequestStatus.PREEMPTED:
        step.resumed_reqs.append(request)
    else:
        step.new_reqs.append(request)
        request.num_cached_tokens = num_cached
    request.status = RequestStatus.RUNNING
    request.num_computed_tokens = num_cached
    scheduler.running.append(scheduler.waiting.pop_request())
    step.new_blocks[name] = scheduler.kv_cache_manager.get_blocks(name)
    step.num_scheduled_tokens[name] = tokens
    step.token_budget -= tokens
    return True


def _start_all(scheduler, step, skipped):
    """Start requests, one by one; return those put aside."""
    if _can_start(scheduler, step) and _start_first(scheduler, step, skipped):
        return _start_all(scheduler, step, skipped)
    return skipped


class Scheduler:
    def schedule(self):
        step = _Step(self.max_num_scheduled_tokens)
        self._schedule_running(step)
        if step.preempted_reqs:
            step.waiting_reason = NotScheduledReason.behind(step.preempted_reqs[0].request_id, ReasonCode.PREEMPTED)
        else:
            self._schedule_waiting(step)
        decided = self._make_scheduler_output(step)
        self._update_after_schedule(decided)
        return decided

    def _schedule_waiting(self, step):
        for request in reversed(_start_all(self, step, [])):
            self.waiting.prepend_request(request)

    def _update_after_schedule(self, scheduler_output):
        for name, count in scheduler_output.num_scheduled_tokens.items():
            self.requests[name].num_computed_tokens += count
        self.prev_step_scheduled_req_ids = set(scheduler_output.num_scheduled_tokens)
        self.finished_req_ids = type(self.finished_req_ids)()

    def update_from_output(self, scheduler_output, model_runner_output):
        clients = {}
        for name in list(scheduler_output.num_scheduled_tokens):
            request = self.requests.get(name)
            tokens = model_runner_output.sampled_token_ids[model_runner_output.req_id_to_index[name]]
            if request is None or not tokens:
                continue
            tokens, stopped = self._update_request_with_output(request, tokens)
            clients.setdefault(request.client_index, []).append(self._output(request, tokens))
            if stopped:
                self.running = [other for other in self.running if other is not request]
                self._free_request(request)
        return {index: EngineCoreOutputs(outputs=outputs) for index, outputs in clients.items()}

    def _update_request_with_output(self, request, new_token_ids):
        if not new_token_ids:
            return [], False
        first, rest = new_token_ids[0], new_token_ids[1:]
        request.append_output_token_ids(first)
        if check_stop(request, self.max_model_len):
            return [first], True
        others, stopped = self._update_request_with_output(request, rest)
        return [first, *others], stopped

    def finish_requests(self, request_ids, finished_status):
        for name in [request_ids] if isinstance(request_ids, str) else list(request_ids):
            request = self.requests.get(name)
            if request is not None:
                if request.status is RequestStatus.RUNNING:
                    self.running.remove(request)
                else:
                    self.waiting.remove_requests([request])
                request.status = finished_status
                self._free_request(request)

    def _free_request(self, request):
        self.kv_cache_manager.free(request)
        self.requests = {name: other for name, other in self.requests.items() if other is not request}
        self.finished_req_ids.add(request.request_id)


def _output(self, request, tokens):
    return EngineCoreOutput(
        request_id=request.request_id,
        new_token_ids=tokens,
        finish_reason=request.get_finished_reason(),
        stop_reason=request.stop_reason,
        events=request.take_events(),
        trace_headers=request.trace_headers,
        num_cached_tokens=request.num_cached_tokens,
    )


Scheduler._output = _output
