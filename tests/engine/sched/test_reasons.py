"""Tests of the reasons for unscheduled and shortened requests: every code, with the numbers of a small example."""

import pytest

from tests.engine.sched.harness import make_request, make_scheduler, reasons_by_request, run_step
from tracellm.engine.core.request import RequestStatus
from tracellm.engine.core.sched.reasons import NotScheduledReason, ReasonCode


def test_a_step_without_limits_has_no_reasons():
    """Prompts that fit, and decoding requests, have no reasons."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 20))
    scheduler.add_request(make_request("b", 20))
    outputs = [run_step(scheduler)[0] for _ in range(3)]
    assert [(step.not_scheduled, step.cut_short, step.waiting_reason) for step in outputs] == [({}, {}, None)] * 3


def test_a_reason_is_data_and_a_line_of_text():
    """A reason has a code and numbers, and prints as one line."""
    reason = NotScheduledReason.token_budget(budget=16, left=5, wanted=69)
    assert reason.code is ReasonCode.TOKEN_BUDGET
    assert reason.numbers == {"budget": 16, "left": 5, "wanted": 69, "given": 0}
    assert str(reason) == "token_budget budget=16 left=5 wanted=69 given=0"


def test_token_budget_cuts_a_prompt_short():
    """The prompt that uses up the budget gets fewer tokens than it needs, and the next one none."""
    scheduler = make_scheduler(max_num_batched_tokens=16)
    for request_id, prompt in (("a", 10), ("b", 69), ("c", 3), ("d", 3)):
        scheduler.add_request(make_request(request_id, prompt))
    assert reasons_by_request(scheduler, run_step(scheduler)[0]) == {
        "b": "token_budget budget=16 left=6 wanted=69 given=6",
        "c": "token_budget budget=16 left=0 wanted=3 given=0",
        "d": "behind request=c cause=token_budget",
    }


def test_token_budget_can_leave_a_running_request_without_any():
    """Running requests beyond the budget have the reason too."""
    scheduler = make_scheduler(max_num_batched_tokens=2)
    for request_id in "abc":
        scheduler.add_request(make_request(request_id, 1, max_tokens=9))
    run_step(scheduler)
    scheduler.max_num_scheduled_tokens = 1  # below the running requests, which no configuration allows
    assert reasons_by_request(scheduler, run_step(scheduler)[0])["b"] == "token_budget budget=1 left=0 wanted=1 given=0"


def test_token_budget_skips_a_prompt_that_must_go_in_one():
    """Without chunked prefill, the reason names the remaining budget, though none of it was used."""
    scheduler = make_scheduler(max_num_batched_tokens=64, enable_chunked_prefill=False)
    for request_id, prompt in (("a", 40), ("b", 40), ("c", 10)):
        scheduler.add_request(make_request(request_id, prompt))
    assert reasons_by_request(scheduler, run_step(scheduler)[0]) == {
        "b": "token_budget budget=64 left=24 wanted=40 given=0"
    }


def test_chunk_threshold_cuts_a_long_prompt():
    """A prompt over long_prefill_token_threshold gets the threshold in every step until the rest is smaller."""
    scheduler = make_scheduler(long_prefill_token_threshold=12)
    scheduler.add_request(make_request("a", 30))
    assert [reasons_by_request(scheduler, run_step(scheduler)[0]) for _ in range(3)] == [
        {"a": "chunk_threshold threshold=12 wanted=30 given=12"},
        {"a": "chunk_threshold threshold=12 wanted=18 given=12"},
        {},
    ]


def test_of_threshold_and_budget_the_smaller_one_is_the_reason():
    """If the budget has less left than the threshold allows, the budget is the reason."""
    scheduler = make_scheduler(long_prefill_token_threshold=12, max_num_batched_tokens=20)
    scheduler.add_request(make_request("a", 30))
    scheduler.add_request(make_request("b", 30))
    assert reasons_by_request(scheduler, run_step(scheduler)[0]) == {
        "a": "chunk_threshold threshold=12 wanted=30 given=12",
        "b": "token_budget budget=20 left=8 wanted=30 given=8",
    }


def test_max_num_seqs_holds_all_that_wait():
    """At `max_num_seqs`, one reason serves all waiting requests."""
    scheduler = make_scheduler(max_num_seqs=2)
    for request_id in "abcd":
        scheduler.add_request(make_request(request_id, 5))
    output, _ = run_step(scheduler)
    assert reasons_by_request(scheduler, output) == {
        "c": "max_num_seqs limit=2 running=2",
        "d": "max_num_seqs limit=2 running=2",
    }
    assert not output.not_scheduled


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize(
    ("settings", "looked_at"),
    [
        ({"max_num_seqs": 1}, []),
        ({"max_num_batched_tokens": 16}, ["w0"]),
        ({"num_gpu_blocks": 3}, ["w0"]),
    ],
    ids=["places", "tokens", "blocks"],
)
def test_a_long_queue_costs_no_more_than_a_short_one(monkeypatch, settings, looked_at, policy):
    """With thousands of waiting requests, the scheduler makes one reason, and never iterates over the queue."""
    scheduler = make_scheduler(policy=policy, **settings)
    scheduler.add_request(make_request("r", 16, max_tokens=9))
    for number in range(3000):
        scheduler.add_request(make_request(f"w{number}", 17, arrival_time=1.0 + number))
    with monkeypatch.context() as patch:
        patch.setattr(type(scheduler.waiting), "__iter__", None)
        output = scheduler.schedule()
    assert list(output.not_scheduled) == looked_at
    assert output.waiting_reason is not None
    assert len(reasons_by_request(scheduler, output)) == 3000


def test_no_free_blocks_holds_a_new_request_and_those_behind_it():
    """A prompt that needs more blocks than are free waits, and so do smaller ones behind it."""
    scheduler = make_scheduler(num_gpu_blocks=6)
    for request_id, prompt in (("a", 40), ("b", 40), ("c", 1)):
        scheduler.add_request(make_request(request_id, prompt))
    assert reasons_by_request(scheduler, run_step(scheduler)[0]) == {
        "b": "no_free_blocks needed=3 free=2",
        "c": "behind request=b cause=no_free_blocks",
    }


def test_no_free_blocks_counts_the_free_blocks_that_a_hit_would_take():
    """Free cached blocks that a hit would use count as needed in the reason's numbers."""
    scheduler = make_scheduler(num_gpu_blocks=5)
    prompt = list(range(40))
    scheduler.add_request(make_request("a", prompt, max_tokens=1))
    run_step(scheduler)
    scheduler.add_request(make_request("b", 30))
    run_step(scheduler)
    scheduler.add_request(make_request("c", prompt))
    assert reasons_by_request(scheduler, run_step(scheduler)[0]) == {"c": "no_free_blocks needed=3 free=2"}


def test_preempted_names_the_request_that_needed_the_blocks():
    """A preempted request's reason names the request that needed the blocks, and none begins in that step."""
    scheduler = make_scheduler(num_gpu_blocks=5)
    for request_id, prompt in (("a", 32), ("b", 30), ("c", 1)):
        scheduler.add_request(make_request(request_id, prompt))
    run_step(scheduler)
    assert reasons_by_request(scheduler, run_step(scheduler)[0]) == {
        "b": "preempted by=a needed=1 free=0",
        "c": "behind request=b cause=preempted",
    }


def test_the_last_in_line_preempts_itself():
    """The last request in line preempts itself, and the reason has its numbers."""
    scheduler = make_scheduler(num_gpu_blocks=5)
    scheduler.add_request(make_request("a", 30))
    scheduler.add_request(make_request("b", 32))
    run_step(scheduler)
    assert reasons_by_request(scheduler, run_step(scheduler)[0]) == {"b": "preempted by=b needed=1 free=0"}


def test_running_requests_after_one_that_preempted_itself_are_behind_it():
    """By priority, requests behind one that preempted itself get nothing in this step."""
    scheduler = make_scheduler(num_gpu_blocks=5, policy="priority")
    scheduler.add_request(make_request("low", 31, priority=5))
    run_step(scheduler)
    scheduler.add_request(make_request("high", 30, priority=1))
    run_step(scheduler)
    output, _ = run_step(scheduler)
    assert output.num_scheduled_tokens == {}
    assert reasons_by_request(scheduler, output) == {
        "low": "preempted by=low needed=1 free=0",
        "high": "behind request=low cause=preempted",
    }


def test_a_preemption_overrides_what_was_said_before():
    """A request that was cut short and then preempted in the same step has only the preemption as its reason."""
    scheduler = make_scheduler(num_gpu_blocks=9, policy="priority", long_prefill_token_threshold=16)
    low = make_request("low", 100, priority=5)
    scheduler.add_request(low)
    run_step(scheduler)
    scheduler.add_request(make_request("high", 64, priority=1, arrival_time=1.0))
    outputs = [run_step(scheduler)[0] for _ in range(4)]
    assert "low" in outputs[0].cut_short
    assert outputs[-1].not_scheduled["low"].code is ReasonCode.PREEMPTED
    assert "low" not in outputs[-1].cut_short
    assert low.status is RequestStatus.PREEMPTED
