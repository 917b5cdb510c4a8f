"""Checks of every scheduler decision, for any workload: limits, order, and correct reasons."""

from dataclasses import dataclass

from tests.engine.sched.harness import reasons
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.sched.reasons import CutShort, NotScheduledReason, ReasonCode
from tracellm.engine.core.sched.request_queue import SchedulingPolicy
from tracellm.engine.core.sched.scheduler import Scheduler

__all__ = ["Before", "check_decisions"]

Reason = NotScheduledReason | CutShort


@dataclass
class Before:
    """State of the scheduler at the beginning of a step."""

    running: list[Request]
    waiting: list[Request]
    num_tokens: dict[str, int]
    num_computed_tokens: dict[str, int]
    scheduled: set[str]
    """Requests scheduled in the previous step."""

    @classmethod
    def of(cls, scheduler: Scheduler) -> "Before":
        """Copy the scheduler's current state."""
        requests = scheduler.requests.values()
        return cls(
            running=list(scheduler.running),
            waiting=list(scheduler.waiting),
            num_tokens={request.request_id: request.num_tokens for request in requests},
            num_computed_tokens={request.request_id: request.num_computed_tokens for request in requests},
            scheduled=set(scheduler.prev_step_scheduled_req_ids),
        )


def check_decisions(scheduler: Scheduler, before: Before, output: SchedulerOutput) -> None:
    """Check a step's decisions, after `schedule` and before `update_from_output`."""
    _check_limits(scheduler, before, output)
    _check_order(scheduler, before, output)
    for request_id in before.num_tokens:
        _check_reason(scheduler, before, output, request_id)
    assert output.not_scheduled.keys() <= before.num_tokens.keys() - output.num_scheduled_tokens.keys()
    assert output.cut_short.keys() <= output.num_scheduled_tokens.keys()
    others = {request.request_id for request in scheduler.waiting} - output.not_scheduled.keys()
    assert (output.waiting_reason is not None) == bool(others), "a reason of all others that wait, if there are any"


def _computed(before: Before, output: SchedulerOutput, request_id: str) -> int:
    """Return the number of a request's tokens computed before this step or found in the cache."""
    found = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    found |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    return found.get(request_id, before.num_computed_tokens[request_id])


def _check_limits(scheduler: Scheduler, before: Before, output: SchedulerOutput) -> None:
    config, scheduled = scheduler.scheduler_config, output.num_scheduled_tokens
    assert output.total_num_scheduled_tokens == sum(scheduled.values()) <= config.max_num_batched_tokens
    assert len(scheduled) <= len(scheduler.running) <= config.max_num_seqs
    sent_ids = [new.req_id for new in output.scheduled_new_reqs] + output.scheduled_cached_reqs.req_ids
    assert sorted(sent_ids) == sorted(scheduled), "workers receive each scheduled request once, and no other"
    cached = output.scheduled_cached_reqs
    assert cached.all_token_ids == {
        request_id: list(scheduler.requests[request_id].all_token_ids)
        for request_id in cached.req_ids
        if request_id not in before.scheduled
    }, "workers keep the tokens of a request only from step to step"
    for request_id, tokens in scheduled.items():
        wanted = before.num_tokens[request_id] - _computed(before, output, request_id)
        assert 0 < tokens <= min(wanted, config.long_prefill_token_threshold or wanted)
        begins = request_id not in before.num_computed_tokens or not before.num_computed_tokens[request_id]
        if begins and not config.enable_chunked_prefill:
            assert tokens == min(wanted, config.long_prefill_token_threshold or wanted), "a prompt was cut"


def _urgency(request: Request) -> tuple[int, float]:
    return request.priority, request.arrival_time


def _check_order(scheduler: Scheduler, before: Before, output: SchedulerOutput) -> None:
    """Check that the last in line were preempted, the first began, and none began in a step that preempts."""
    preempted = [request for request in before.running if request.status is RequestStatus.PREEMPTED]
    stayed = [request for request in before.running if request not in preempted]
    started = scheduler.running[len(stayed) :]
    assert scheduler.running == stayed + started
    assert not (preempted and started)
    assert set(started) <= set(before.waiting)
    still_waiting = [request for request in scheduler.waiting if request not in preempted]
    fcfs = scheduler.policy is SchedulingPolicy.FCFS
    if fcfs:
        assert before.running == stayed + preempted, "the last that began are preempted first"
    else:
        assert not preempted or all(_urgency(one) <= min(map(_urgency, preempted)) for one in stayed)
        assert list(scheduler.waiting) == sorted(scheduler.waiting, key=_urgency)
    if scheduler.scheduler_config.enable_chunked_prefill:
        assert started + still_waiting == before.waiting, "somebody was overtaken"
    if fcfs and scheduler.scheduler_config.enable_chunked_prefill:
        everybody = [*scheduler.running, *scheduler.waiting]
        assert everybody == sorted(everybody, key=lambda request: request.arrival_time)
        if everybody:  # no starvation: each request is the oldest at some point
            assert everybody[0].request_id in output.num_scheduled_tokens


def _check_reason(scheduler: Scheduler, before: Before, output: SchedulerOutput, request_id: str) -> None:
    """Check that a request got all its tokens, or has a reason whose numbers agree with the step's."""
    reason = reasons(scheduler, output).get(request_id)
    given = output.num_scheduled_tokens.get(request_id, 0)
    wanted = before.num_tokens[request_id] - _computed(before, output, request_id)
    if reason is None:
        assert given == wanted, f"{request_id} got {given} of {wanted} without a word"
        return
    assert given < wanted, f"{request_id} got all tokens and has the reason {reason}"
    assert type(reason) is (CutShort if given else NotScheduledReason)
    if given:
        assert reason.code in (ReasonCode.TOKEN_BUDGET, ReasonCode.CHUNK_THRESHOLD)
    _CHECKS[reason.code](scheduler, output, scheduler.requests[request_id], reason, given, wanted)


def _token_budget(
    scheduler: Scheduler, output: SchedulerOutput, request: Request, reason: Reason, given: int, wanted: int
) -> None:
    numbers, budget = reason.numbers, scheduler.scheduler_config.max_num_batched_tokens
    assert (numbers["budget"], numbers["given"]) == (budget, given)
    left = int(numbers["left"])
    if given:
        assert (left, numbers["wanted"]) == (given, wanted)
        assert left <= budget - output.total_num_scheduled_tokens + given
    elif left:
        assert not scheduler.scheduler_config.enable_chunked_prefill
        assert min(int(numbers["wanted"]), scheduler.scheduler_config.long_prefill_token_threshold or 10**9) > left
        assert left >= budget - output.total_num_scheduled_tokens
    else:
        assert output.total_num_scheduled_tokens == budget
        assert numbers["wanted"] == wanted


def _chunk_threshold(
    scheduler: Scheduler, output: SchedulerOutput, request: Request, reason: Reason, given: int, wanted: int
) -> None:
    threshold = scheduler.scheduler_config.long_prefill_token_threshold
    assert reason.numbers == {"threshold": threshold, "wanted": wanted, "given": given}
    assert given == threshold


def _max_num_seqs(
    scheduler: Scheduler, output: SchedulerOutput, request: Request, reason: Reason, given: int, wanted: int
) -> None:
    limit = scheduler.scheduler_config.max_num_seqs
    assert reason.numbers == {"limit": limit, "running": limit}
    assert len(scheduler.running) == limit


def _no_free_blocks(
    scheduler: Scheduler, output: SchedulerOutput, request: Request, reason: Reason, given: int, wanted: int
) -> None:
    assert request in list(scheduler.waiting)
    assert int(reason.numbers["needed"]) > int(reason.numbers["free"])
    assert reason.numbers["free"] == scheduler.kv_cache_manager.block_pool.get_num_free_blocks()


def _preempted(
    scheduler: Scheduler, output: SchedulerOutput, request: Request, reason: Reason, given: int, wanted: int
) -> None:
    assert request.status is RequestStatus.PREEMPTED
    assert int(reason.numbers["needed"]) > int(reason.numbers["free"])
    by = scheduler.requests[str(reason.numbers["by"])]
    assert by is request or by in scheduler.running or by.status is RequestStatus.PREEMPTED


def _behind(
    scheduler: Scheduler, output: SchedulerOutput, request: Request, reason: Reason, given: int, wanted: int
) -> None:
    ahead = output.not_scheduled[str(reason.numbers["request"])]
    assert ahead.code == reason.numbers["cause"]
    assert ahead.code is not ReasonCode.BEHIND


_CHECKS = {
    ReasonCode.TOKEN_BUDGET: _token_budget,
    ReasonCode.CHUNK_THRESHOLD: _chunk_threshold,
    ReasonCode.MAX_NUM_SEQS: _max_num_seqs,
    ReasonCode.NO_FREE_BLOCKS: _no_free_blocks,
    ReasonCode.PREEMPTED: _preempted,
    ReasonCode.BEHIND: _behind,
}
