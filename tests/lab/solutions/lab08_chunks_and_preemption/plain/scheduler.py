"""An index and flags."""


class Scheduler:
    def schedule(self):
        step = _Step(self.max_num_scheduled_tokens)
        self._schedule_running(step)
        if not step.preempted_reqs:
            self._schedule_waiting(step)
        out = self._make_scheduler_output(step)
        self._update_after_schedule(out)
        return out

    def _schedule_running(self, step):
        i = 0
        while i < len(self.running):
            if step.token_budget == 0:
                return
            req = self.running[i]
            n = self._get_num_wanted_tokens(req)
            if n <= 0:
                i += 1
                continue
            n = self._chunk(n)
            if n > step.token_budget:
                n = step.token_budget
            blocks = self.kv_cache_manager.allocate_slots(req, n)
            gave_up = False
            while blocks is None:
                victim = self._preempt(step, req, n)
                if victim is req:
                    gave_up = True
                    break
                if n > step.token_budget:  # cannot happen: the budget only grows
                    n = step.token_budget
                blocks = self.kv_cache_manager.allocate_slots(req, n)
            if gave_up:
                return
            step.running_reqs.append(req)
            step.new_blocks[req.request_id] = blocks
            step.num_scheduled_tokens[req.request_id] = n
            step.token_budget -= n
            i = self.running.index(req) + 1

    def _get_num_wanted_tokens(self, request):
        return request.num_prompt_tokens + request.num_output_tokens - request.num_computed_tokens

    def _chunk(self, wanted):
        threshold = self.scheduler_config.long_prefill_token_threshold
        if threshold == 0:
            return wanted
        if wanted > threshold:
            return threshold
        return wanted

    def _preempt(self, step, request, num_new_tokens):
        victim = self.running[-1]
        if self.policy == SchedulingPolicy.PRIORITY:
            for one in self.running:
                if one.priority > victim.priority:
                    victim = one
                elif one.priority == victim.priority and one.arrival_time > victim.arrival_time:
                    victim = one
        self.running.remove(victim)
        rid = victim.request_id
        if rid in step.num_scheduled_tokens:
            step.running_reqs.remove(victim)
            step.token_budget += step.num_scheduled_tokens[rid]
            del step.num_scheduled_tokens[rid]
            del step.new_blocks[rid]
            self.kv_cache_manager.evict_uncomputed_blocks(victim)
        self.kv_cache_manager.free(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.status = RequestStatus.PREEMPTED
        if self.log_stats:
            victim.record_event(EngineCoreEventType.PREEMPTED, step.timestamp)
        self.waiting.prepend_request(victim)
        step.preempted_reqs.append(victim)
        return victim

    def _make_cached_request_data(self, step):
        ids, blocks, computed, outputs = [], [], [], []
        tokens = {}
        for req in step.running_reqs + step.resumed_reqs:
            ids.append(req.request_id)
            blocks.append(step.new_blocks[req.request_id].get_block_ids(allow_none=True))
            computed.append(req.num_computed_tokens)
            outputs.append(req.num_output_tokens + req.num_output_placeholders)
            if req.request_id not in self.prev_step_scheduled_req_ids:
                tokens[req.request_id] = list(req.all_token_ids)
        resumed = set()
        for req in step.resumed_reqs:
            resumed.add(req.request_id)
        return CachedRequestData(ids, resumed, [], lambda: tokens, blocks, computed, outputs)
