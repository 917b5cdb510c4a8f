"""A worklist of the requests still to serve, instead of an index."""

from collections import deque


class _NoBlocks(Exception):
    """The request has preempted itself."""


def _blocks_for(scheduler, step, request, count):
    """Return the new blocks of a request, preempting others if necessary."""
    blocks = scheduler.kv_cache_manager.allocate_slots(request, count)
    if blocks is not None:
        return blocks
    if scheduler._preempt(step, request, count) is request:
        raise _NoBlocks
    return _blocks_for(scheduler, step, request, count)


def _undo(scheduler, step, victim):
    """Take back what a request got in this step."""
    step.running_reqs = [one for one in step.running_reqs if one is not victim]
    step.new_blocks.pop(victim.request_id)
    step.token_budget += step.num_scheduled_tokens.pop(victim.request_id)
    scheduler.kv_cache_manager.evict_uncomputed_blocks(victim)


class Scheduler:
    def schedule(self):
        step = _Step(self.max_num_scheduled_tokens)
        self._schedule_running(step)
        step.preempted_reqs or self._schedule_waiting(step)
        output = self._make_scheduler_output(step)
        self._update_after_schedule(output)
        return output

    def _schedule_running(self, step):
        todo = deque(self.running)
        try:
            while todo and step.token_budget:
                request = todo.popleft()
                if request.status is not RequestStatus.RUNNING:
                    continue  # preempted before its turn
                wanted = self._get_num_wanted_tokens(request)
                if wanted:
                    count = min(self._chunk(wanted), step.token_budget)
                    blocks = _blocks_for(self, step, request, count)
                    step.token_budget -= count
                    step.num_scheduled_tokens[request.request_id] = count
                    step.new_blocks[request.request_id] = blocks
                    step.running_reqs.append(request)
        except _NoBlocks:
            pass

    def _get_num_wanted_tokens(self, request):
        return len(request.all_token_ids) - request.num_computed_tokens

    def _chunk(self, wanted):
        limit = self.scheduler_config.long_prefill_token_threshold
        return min(wanted, limit) if limit > 0 else wanted

    def _preempt(self, step, request, num_new_tokens):
        if self.policy is SchedulingPolicy.PRIORITY:
            victim = sorted(self.running, key=lambda one: (one.priority, one.arrival_time))[-1]
        else:
            victim = self.running[-1]
        if victim in step.running_reqs:
            _undo(self, step, victim)
        self.running = [one for one in self.running if one is not victim]
        self.kv_cache_manager.free(victim)
        victim.status, victim.num_computed_tokens = RequestStatus.PREEMPTED, 0
        victim.num_preemptions += 1
        if self.log_stats:
            victim.record_event(EngineCoreEventType.PREEMPTED, step.timestamp)
        self.waiting.prepend_request(victim)
        step.preempted_reqs.append(victim)
        return victim

    def _make_cached_request_data(self, step):
        requests = [*step.running_reqs, *step.resumed_reqs]
        known = frozenset(self.prev_step_scheduled_req_ids)
        counts = {one.request_id: one.num_output_tokens + one.num_output_placeholders for one in requests}

        def tokens():
            return {
                one.request_id: list(one.all_token_ids)[: one.num_prompt_tokens + counts[one.request_id]]
                for one in requests
                if one.request_id not in known
            }

        return CachedRequestData(
            req_ids=list(counts),
            resumed_req_ids=set(counts) - {one.request_id for one in step.running_reqs},
            new_token_ids=[],
            copy_token_ids=tokens,
            new_block_ids=[step.new_blocks[name].get_block_ids(allow_none=True) for name in counts],
            num_computed_tokens=[one.num_computed_tokens for one in requests],
            num_output_tokens=list(counts.values()),
        )
