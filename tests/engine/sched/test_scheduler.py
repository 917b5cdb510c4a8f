"""Tests of the scheduler, step by step."""

from tests.engine.sched.harness import make_request, make_scheduler, run_step, sample
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.reasons import ReasonCode
from tracellm.engine.ipc.messages import FinishReason
from tracellm.engine.worker.model_runner_output import ModelRunnerOutput


def test_a_request_from_prompt_to_end():
    """A request runs its prompt in one step, then a token a step, and its end is reported to the workers."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 20, max_tokens=3))
    steps = [run_step(scheduler) for _ in range(3)]
    assert [output.num_scheduled_tokens for output, _ in steps] == [{"a": 20}, {"a": 1}, {"a": 1}]
    outs = [by_client[0].outputs[0] for _, by_client in steps]
    assert [out.new_token_ids for out in outs] == [[7], [7], [7]]
    assert [out.finish_reason for out in outs] == [None, None, FinishReason.LENGTH]
    assert not scheduler.has_unfinished_requests()
    assert scheduler.has_requests()
    output, by_client = run_step(scheduler)
    assert output.finished_req_ids == {"a"}
    assert output.total_num_scheduled_tokens == 0
    assert by_client == {}
    assert not scheduler.has_requests()
    assert scheduler.kv_cache_manager.usage == 0


def test_new_requests_are_sent_in_full_and_known_ones_as_changes():
    """A request is sent in full at first, then only as new blocks and computed tokens."""
    scheduler = make_scheduler()
    request = make_request("a", 31, max_tokens=9)
    scheduler.add_request(request)
    (new,) = run_step(scheduler)[0].scheduled_new_reqs
    assert (new.req_id, new.prompt_token_ids, new.block_ids, new.num_computed_tokens) == (
        "a",
        request.prompt_token_ids,
        ([1, 2],),
        0,
    )
    assert new.sampling_params is request.sampling_params
    changes = [run_step(scheduler)[0].scheduled_cached_reqs for _ in range(2)]
    assert [cached.new_block_ids for cached in changes] == [[None], [([3],)]]
    assert [cached.num_computed_tokens for cached in changes] == [[31], [32]]
    assert [cached.num_output_tokens for cached in changes] == [[1], [2]]
    assert [cached.num_reqs for cached in changes] == [1, 1]


def test_running_requests_come_before_waiting_ones():
    """Running requests get their tokens first; a long prompt gets the rest, and samples after its last chunk."""
    scheduler = make_scheduler(max_num_batched_tokens=10)
    scheduler.add_request(make_request("a", 4, max_tokens=9))
    scheduler.add_request(make_request("b", 20, max_tokens=9))
    steps = [run_step(scheduler) for _ in range(4)]
    assert [output.num_scheduled_tokens for output, _ in steps] == [
        {"a": 4, "b": 6},
        {"a": 1, "b": 9},
        {"a": 1, "b": 5},
        {"a": 1, "b": 1},
    ]
    outputs = [[out.request_id for out in by_client[0].outputs] for _, by_client in steps]
    assert outputs == [["a"], ["a"], ["a", "b"], ["a", "b"]]


def test_the_next_chunk_can_be_scheduled_before_the_last_one_is_back():
    """Scheduled tokens count as computed at once, so two schedules in a row advance through a prompt."""
    scheduler = make_scheduler(max_num_batched_tokens=10)
    scheduler.add_request(make_request("a", 15))
    first, second, third = scheduler.schedule(), scheduler.schedule(), scheduler.schedule()
    assert first.num_scheduled_tokens == {"a": 10}
    assert second.num_scheduled_tokens == {"a": 5}
    assert third.num_scheduled_tokens == {}  # its token is still to come
    assert (third.not_scheduled, third.cut_short) == ({}, {})


def test_a_cached_prefix_is_not_computed_again():
    """A request starts after its cached prefix, and its first output has the number of cached tokens."""
    scheduler = make_scheduler()
    prompt = list(range(40))
    scheduler.add_request(make_request("a", prompt, max_tokens=1))
    run_step(scheduler)
    scheduler.add_request(make_request("b", prompt))
    output, by_client = run_step(scheduler)
    assert output.num_scheduled_tokens == {"b": 8}
    assert output.scheduled_new_reqs[0].num_computed_tokens == 32
    assert by_client[0].outputs[0].num_cached_tokens == 32
    assert not scheduler.reset_prefix_cache()
    scheduler.finish_requests("b", RequestStatus.FINISHED_ABORTED)
    assert scheduler.reset_prefix_cache()
    scheduler.add_request(make_request("c", prompt))
    assert run_step(scheduler)[0].num_scheduled_tokens == {"c": 40}


def test_a_preempted_request_comes_back_with_all_its_tokens():
    """A preempted request is first in the queue, and resumes with new blocks for prompt and output."""
    scheduler = make_scheduler(num_gpu_blocks=5, enable_prefix_caching=False)
    first = make_request("a", 31, max_tokens=4, block_size=None)
    second = make_request("b", 31, max_tokens=4, block_size=None)
    for request in (first, second, make_request("c", 1, block_size=None)):
        scheduler.add_request(request)
    run_step(scheduler)
    run_step(scheduler)
    output, _ = run_step(scheduler)  # "a" needs a third block
    assert output.num_scheduled_tokens == {"a": 1}
    assert second.status is RequestStatus.PREEMPTED
    assert second.num_preemptions == 1
    assert [request.request_id for request in scheduler.waiting] == ["b", "c"]
    run_step(scheduler)  # "a" ends
    cached = run_step(scheduler)[0].scheduled_cached_reqs
    assert cached.resumed_req_ids == {"b"}
    assert cached.num_computed_tokens == [0]
    assert cached.num_output_tokens == [2]
    assert cached.all_token_ids == {"b": [*second.prompt_token_ids, 7, 7]}
    assert cached.new_block_ids[0] is not None
    assert len(cached.new_block_ids[0][0]) == 3


def test_the_most_urgent_request_keeps_its_blocks():
    """By priority the least urgent request is preempted, even if it was scheduled in this step."""
    scheduler = make_scheduler(num_gpu_blocks=5, enable_prefix_caching=False, policy="priority")
    scheduler.add_request(make_request("low", 20, priority=5, block_size=None))
    run_step(scheduler)
    scheduler.add_request(make_request("high", 32, priority=1, block_size=None))
    run_step(scheduler)
    output, _ = run_step(scheduler)
    # "low" is first in line and has its token already when "high" finds no free block.
    assert output.num_scheduled_tokens == {"high": 1}
    assert [request.request_id for request in scheduler.waiting] == ["low"]


def test_an_aborted_request_is_gone_at_once():
    """An aborted request, running or waiting, frees its blocks and is reported to workers; unknown ids are ignored."""
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.add_request(make_request("a", 20))
    scheduler.add_request(make_request("b", 20))
    run_step(scheduler)
    scheduler.finish_requests(["a", "b", "never"], RequestStatus.FINISHED_ABORTED)
    assert scheduler.get_request_counts() == (0, 0)
    assert scheduler.kv_cache_manager.usage == 0
    assert scheduler.schedule().finished_req_ids == {"a", "b"}


def test_a_request_aborted_while_its_step_runs_gets_no_output():
    """The output of a request that was aborted during its step is dropped."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 5))
    scheduler.add_request(make_request("b", 5))
    output = scheduler.schedule()
    result = sample(scheduler, output)
    scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    (of_client,) = scheduler.update_from_output(output, result).values()
    assert [out.request_id for out in of_client.outputs] == ["b"]


def test_tokens_after_the_end_are_dropped():
    """Tokens after the one that ended the request are dropped."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 5, max_tokens=9, eos_token_id=1))
    output = scheduler.schedule()
    result = ModelRunnerOutput(["a"], {"a": 0}, [[5, 1, 6]], None, {}, (1, 8))
    (out,) = scheduler.update_from_output(output, result)[0].outputs
    assert out.new_token_ids == [5, 1]
    assert out.finish_reason is FinishReason.STOP


def test_outputs_go_to_the_client_that_asked():
    """A step's outputs are grouped by client index."""
    scheduler = make_scheduler()
    for index, request_id in enumerate("ab"):
        request = make_request(request_id, 5)
        request.client_index = index
        scheduler.add_request(request)
    by_client = run_step(scheduler)[1]
    assert {client: [out.request_id for out in of.outputs] for client, of in by_client.items()} == {0: ["a"], 1: ["b"]}


def test_a_short_prompt_passes_a_long_one_that_must_be_computed_in_one_go():
    """Without chunked prefill, a prompt too large for the budget is skipped, and stays first."""
    scheduler = make_scheduler(max_num_batched_tokens=64, enable_chunked_prefill=False)
    for request_id, prompt in (("a", 40), ("b", 40), ("c", 10)):
        scheduler.add_request(make_request(request_id, prompt))
    assert run_step(scheduler)[0].num_scheduled_tokens == {"a": 40, "c": 10}
    assert run_step(scheduler)[0].num_scheduled_tokens == {"a": 1, "c": 1, "b": 40}


def test_a_chunk_of_the_threshold_counts_as_going_in_one():
    """With chunked prefill off and a threshold on, only the chunk must fit the budget, as in vLLM."""
    scheduler = make_scheduler(max_num_batched_tokens=64, enable_chunked_prefill=False, long_prefill_token_threshold=12)
    for request_id in "abcdef":
        scheduler.add_request(make_request(request_id, 40))
    output, _ = run_step(scheduler)
    assert output.num_scheduled_tokens == dict.fromkeys("abcde", 12)
    assert output.not_scheduled["f"].numbers == {"budget": 64, "left": 4, "wanted": 40, "given": 0}


def test_what_a_preempted_request_had_been_given_goes_to_those_behind():
    """By priority, tokens of a request preempted in the same step return to the budget."""
    scheduler = make_scheduler(
        num_gpu_blocks=6, max_num_batched_tokens=32, policy="priority", enable_prefix_caching=False
    )
    scheduler.add_request(make_request("low", 33, priority=5, block_size=None))
    run_step(scheduler)
    scheduler.add_request(make_request("high", 16, priority=1, block_size=None))
    scheduler.add_request(make_request("long", 64, priority=2, block_size=None))
    assert run_step(scheduler)[0].num_scheduled_tokens == {"low": 1, "high": 16, "long": 15}
    # All 5 blocks are in use. "low" gets its token, then "high" needs a block: of the 32 tokens, "long" can have 31.
    assert run_step(scheduler)[0].num_scheduled_tokens == {"high": 1, "long": 31}


def test_what_an_undone_step_would_have_computed_is_not_found():
    """By priority a request preempted after it was scheduled keeps only its computed tokens in the cache."""
    scheduler = make_scheduler(block_size=4, num_gpu_blocks=8, long_prefill_token_threshold=8, policy="priority")
    scheduler.add_request(make_request("late", 24, block_size=4, priority=5))
    run_step(scheduler)
    scheduler.add_request(make_request("urgent", 4, max_tokens=2, block_size=4))
    run_step(scheduler)
    undone, _ = run_step(scheduler)
    assert undone.num_scheduled_tokens == {"urgent": 1}
    assert undone.not_scheduled["late"].code is ReasonCode.PREEMPTED
    assert run_step(scheduler)[0].scheduled_cached_reqs.num_computed_tokens == [16]


def test_workers_are_sent_all_tokens_of_a_request_that_paused_for_a_step():
    """A running request that got no tokens in a step is sent with all its tokens in the next."""
    scheduler = make_scheduler(num_gpu_blocks=5, policy="priority")
    scheduler.add_request(make_request("low", 31, priority=5))
    run_step(scheduler)
    scheduler.add_request(make_request("high", 30, priority=1))
    run_step(scheduler)
    assert run_step(scheduler)[0].num_scheduled_tokens == {}  # `low` gave up its own blocks, `high` was behind it
    output, _ = run_step(scheduler)
    request = scheduler.requests["high"]
    assert output.scheduled_cached_reqs.all_token_ids == {"high": list(request.all_token_ids)[:-1]}
    assert request.num_preemptions == 0


def test_shared_blocks_are_counted_when_read(monkeypatch):
    """The number of blocks common to all requests is computed when it is read, not in the step."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 40))
    with monkeypatch.context() as patch:
        patch.setattr(type(scheduler.kv_cache_manager), "get_num_common_prefix_blocks", None)
        output = scheduler.schedule()
    assert output.num_common_prefix_blocks == [3]


def test_tokens_of_a_paused_request_are_copied_when_read(monkeypatch):
    """The tokens of a paused request are copied when they are read, and are those of that step."""
    scheduler = make_scheduler(num_gpu_blocks=5, policy="priority")
    scheduler.add_request(make_request("low", 31, priority=5))
    run_step(scheduler)
    high = make_request("high", 30, priority=1)
    scheduler.add_request(high)
    run_step(scheduler)
    run_step(scheduler)  # `low` gave up its own blocks, and `high` was behind it
    with monkeypatch.context() as patch:
        patch.setattr(Request, "all_token_ids", None)
        output = scheduler.schedule()
    scheduler.update_from_output(output, sample(scheduler, output, lambda request: 7))
    assert output.scheduled_cached_reqs.all_token_ids == {"high": high.all_token_ids[:-1]}
