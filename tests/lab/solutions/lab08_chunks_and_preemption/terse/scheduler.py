"""The shortest version."""

from itertools import chain
from math import inf


class Scheduler:
    def schedule(self):
        self._schedule_running(step := _Step(self.max_num_scheduled_tokens))
        if not step.preempted_reqs:
            self._schedule_waiting(step)
        self._update_after_schedule(output := self._make_scheduler_output(step))
        return output

    def _schedule_running(self, step):
        done = set()
        while rest := [one for one in self.running if one not in done and self._get_num_wanted_tokens(one)]:
            request = rest[0]
            count = min(self._chunk(self._get_num_wanted_tokens(request)), step.token_budget)
            if not count:
                return
            while (blocks := self.kv_cache_manager.allocate_slots(request, count)) is None:
                if self._preempt(step, request, count) is request:
                    return
            done.add(request)
            step.running_reqs += [request]
            step.new_blocks[request.request_id], step.num_scheduled_tokens[request.request_id] = blocks, count
            step.token_budget -= count

    def _get_num_wanted_tokens(self, request):
        return request.num_tokens - request.num_computed_tokens

    def _chunk(self, wanted):
        return min(wanted, self.scheduler_config.long_prefill_token_threshold or inf)

    def _preempt(self, step, request, num_new_tokens):
        by_priority = self.policy is SchedulingPolicy.PRIORITY
        order = {one: (one.priority, one.arrival_time) if by_priority else at for at, one in enumerate(self.running)}
        victim = max(order, key=order.get)
        name = victim.request_id
        self.running.remove(victim)
        if given := step.num_scheduled_tokens.pop(name, 0):
            step.running_reqs.remove(victim)
            step.new_blocks.pop(name)
            step.token_budget += given
            self.kv_cache_manager.evict_uncomputed_blocks(victim)
        self.kv_cache_manager.free(victim)
        victim.status, victim.num_computed_tokens, victim.num_preemptions = (
            RequestStatus.PREEMPTED,
            0,
            victim.num_preemptions + 1,
        )
        if self.log_stats:
            victim.record_event(EngineCoreEventType.PREEMPTED, step.timestamp)
        self.waiting.prepend_request(victim)
        step.preempted_reqs += [victim]
        return victim

    def _make_cached_request_data(self, step):
        rows = [
            (
                one.request_id,
                step.new_blocks[one.request_id].get_block_ids(allow_none=True),
                one.num_computed_tokens,
                one.num_output_tokens + one.num_output_placeholders,
                list(one.all_token_ids),
            )
            for one in chain(step.running_reqs, step.resumed_reqs)
        ]
        names, blocks, computed, outputs, tokens = map(list, zip(*rows)) if rows else ([], [], [], [], [])
        before = set(self.prev_step_scheduled_req_ids)
        return CachedRequestData(
            names,
            {one.request_id for one in step.resumed_reqs},
            [],
            lambda: {name: ids for name, ids in zip(names, tokens) if name not in before},
            blocks,
            computed,
            outputs,
        )
