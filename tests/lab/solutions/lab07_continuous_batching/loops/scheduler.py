"""Plain loops, everything in place."""


class Scheduler:
    def schedule(self):
        step = _Step(token_budget=self.max_num_scheduled_tokens)
        self._schedule_running(step)
        preempted = len(step.preempted_reqs) > 0
        if not preempted:
            self._schedule_waiting(step)
        result = self._make_scheduler_output(step)
        self._update_after_schedule(result)
        return result

    def _schedule_waiting(self, step):
        put_back = []
        while True:
            if len(self.waiting) == 0:
                break
            if step.token_budget <= 0:
                break
            if len(self.running) >= self.max_num_running_reqs:
                break
            req = self.waiting.peek_request()
            blocks, n_cached = self.kv_cache_manager.get_computed_blocks(req)
            todo = req.num_tokens - n_cached
            now = self._chunk(todo)
            if now > step.token_budget:
                if not self.scheduler_config.enable_chunked_prefill:
                    put_back.append(self.waiting.pop_request())
                    continue
                now = step.token_budget
            got = self.kv_cache_manager.allocate_slots(req, now, n_cached, blocks)
            if got is None:
                break
            self.waiting.pop_request()
            self.running.append(req)
            if req.status == RequestStatus.WAITING:
                step.new_reqs.append(req)
            else:
                step.resumed_reqs.append(req)
            req.status = RequestStatus.RUNNING
            req.num_computed_tokens = n_cached
            if req.num_cached_tokens == -1:
                req.num_cached_tokens = n_cached
            step.new_blocks[req.request_id] = self.kv_cache_manager.get_blocks(req.request_id)
            step.num_scheduled_tokens[req.request_id] = now
            step.token_budget = step.token_budget - now
        for req in put_back:
            self.waiting.prepend_request(req)

    def _update_after_schedule(self, scheduler_output):
        for rid in scheduler_output.num_scheduled_tokens:
            req = self.requests[rid]
            req.num_computed_tokens = req.num_computed_tokens + scheduler_output.num_scheduled_tokens[rid]
        self.prev_step_scheduled_req_ids = set(scheduler_output.num_scheduled_tokens)
        self.finished_req_ids = set()

    def update_from_output(self, scheduler_output, model_runner_output):
        by_client = {}
        for rid in scheduler_output.num_scheduled_tokens:
            if rid not in self.requests:
                continue
            req = self.requests[rid]
            i = model_runner_output.req_id_to_index[rid]
            tokens = model_runner_output.sampled_token_ids[i]
            if len(tokens) == 0:
                continue
            tokens, done = self._update_request_with_output(req, tokens)
            out = EngineCoreOutput(request_id=rid, new_token_ids=tokens)
            out.stop_reason = req.stop_reason
            out.num_cached_tokens = req.num_cached_tokens
            out.events = req.take_events()
            if done:
                out.finish_reason = req.get_finished_reason()
                self.running.remove(req)
                self._free_request(req)
            if req.client_index not in by_client:
                by_client[req.client_index] = EngineCoreOutputs(outputs=[])
            by_client[req.client_index].outputs.append(out)
        return by_client

    def _update_request_with_output(self, request, new_token_ids):
        kept = []
        for token in new_token_ids:
            kept.append(token)
            request.append_output_token_ids(token)
            if check_stop(request, self.max_model_len):
                return kept, True
        return kept, False

    def finish_requests(self, request_ids, finished_status):
        if isinstance(request_ids, str):
            request_ids = [request_ids]
        for rid in request_ids:
            if rid not in self.requests:
                continue
            req = self.requests[rid]
            if req in self.running:
                self.running.remove(req)
            else:
                self.waiting.remove_requests([req])
            req.status = finished_status
            self._free_request(req)

    def _free_request(self, request):
        self.finished_req_ids.add(request.request_id)
        self.kv_cache_manager.free(request)
        self.requests.pop(request.request_id)
        self.constrained_req_ids.discard(request.request_id)
