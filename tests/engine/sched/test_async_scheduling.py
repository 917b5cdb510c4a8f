"""Tests of asynchronous scheduling: a step scheduled before the last step's tokens exist does not change outputs.

`stand_in.py` has the engine core without a model, and its events.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.sched.harness import make_config, make_kv_cache_config, make_request
from tests.engine.sched.stand_in import STOP, Happening, NeverFailing, make_core, run
from tracellm.engine.core.core import EngineCore
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.async_scheduler import AsyncScheduler
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.structured_output.manager import StructuredOutputManager
from tracellm.engine.worker.model_runner_output import ModelRunnerOutput


def make_scheduler(num_blocks: int = 100, **more: Any) -> AsyncScheduler:
    """Make a scheduler with blocks of 16 tokens."""
    config = make_config(num_gpu_blocks=num_blocks, **more)
    return AsyncScheduler(config, make_kv_cache_config(num_blocks), StructuredOutputManager(config))


def tokens_of(output: SchedulerOutput, token: int) -> ModelRunnerOutput:
    """Return an output with this token for each scheduled request."""
    req_ids = list(output.num_scheduled_tokens)
    rows = {req_id: row for row, req_id in enumerate(req_ids)}
    return ModelRunnerOutput(req_ids, rows, [[token] for _ in req_ids], None, {}, (len(req_ids), 8))


def numbers(request: Request) -> tuple[int, int, int]:
    """Return the request's numbers of tokens, computed tokens and placeholders."""
    return request.num_tokens, request.num_computed_tokens, request.num_output_placeholders


def test_a_request_goes_on_before_its_token_is_known() -> None:
    """A placeholder counts as a token to compute, and the sampled token replaces it."""
    scheduler = make_scheduler()
    request = make_request("a", 5, max_tokens=9)
    scheduler.add_request(request)
    steps = [scheduler.schedule()]
    assert numbers(request) == (5, 5, 1)
    steps.append(scheduler.schedule())
    assert steps[1].num_scheduled_tokens == {"a": 1}
    assert steps[1].scheduled_cached_reqs.num_output_tokens == [1]
    assert numbers(request) == (5, 6, 2)
    scheduler.update_from_output(steps[0], tokens_of(steps[0], 7))
    assert numbers(request) == (6, 6, 1)
    scheduler.update_from_output(steps[1], tokens_of(steps[1], 8))
    assert numbers(request) == (7, 6, 0)
    assert request.output_token_ids == [7, 8]


def test_a_piece_of_a_prompt_has_no_placeholder() -> None:
    """Only a request whose tokens are all computed gets a placeholder."""
    scheduler = make_scheduler(max_num_batched_tokens=8)
    request = make_request("a", 12)
    scheduler.add_request(request)
    scheduler.schedule()
    assert numbers(request) == (12, 8, 0)
    scheduler.schedule()
    assert numbers(request) == (12, 12, 1)


@pytest.mark.parametrize(("max_tokens", "max_model_len"), [(2, 256), (99, 7)])
def test_no_step_is_spent_on_what_comes_after_the_last_token(max_tokens: int, max_model_len: int) -> None:
    """A request that is sampling its last token is left out of the next step, without a reason."""
    scheduler = make_scheduler(max_model_len=max_model_len)
    scheduler.add_request(make_request("a", 5, max_tokens))
    steps = [scheduler.schedule(), scheduler.schedule(), scheduler.schedule()]
    assert [step.num_scheduled_tokens for step in steps] == [{"a": 5}, {"a": 1}, {}]
    assert (steps[2].not_scheduled, steps[2].cut_short) == ({}, {})


def test_what_follows_a_stop_is_thrown_away() -> None:
    """A request ends at its stop token even if the next step already contains it."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 5, max_tokens=9, stop_token_ids=[3]))
    first, second = scheduler.schedule(), scheduler.schedule()
    ((output,),) = [
        of_client.outputs for of_client in scheduler.update_from_output(first, tokens_of(first, 3)).values()
    ]
    assert (output.new_token_ids, output.stop_reason) == ([3], 3)
    assert scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 99
    assert scheduler.update_from_output(second, tokens_of(second, 7)) == {}
    assert scheduler.schedule().finished_req_ids == {"a"}


def test_a_token_of_an_ended_request_never_reaches_another_of_its_name() -> None:
    """A token of an ended request does not reach a new request with the same id."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 5))
    old = scheduler.schedule()
    scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    request = make_request("a", 6)
    scheduler.add_request(request)
    new = scheduler.schedule()
    assert scheduler.update_from_output(old, tokens_of(old, 7)) == {}
    assert numbers(request) == (6, 6, 1)
    scheduler.update_from_output(new, tokens_of(new, 8))
    assert request.output_token_ids == [8]


def test_a_preempted_request_gets_the_token_that_was_on_its_way() -> None:
    """A preempted request gets the token of the step under way, and can end with it."""
    scheduler = make_scheduler(num_blocks=3)  # two of them for requests
    first, second = make_request("a", 16, max_tokens=9), make_request("b", 15, stop_token_ids=[3])
    for request in (first, second):
        scheduler.add_request(request)
    step = scheduler.schedule()
    assert scheduler.schedule().num_scheduled_tokens == {"a": 1}
    assert list(scheduler.waiting) == [second]
    scheduler.update_from_output(step, tokens_of(step, 3))
    assert second.status is RequestStatus.FINISHED_STOPPED
    assert not scheduler.waiting
    assert numbers(first) == (17, 17, 1)


def test_a_preempted_request_may_fail_by_the_token_that_was_on_its_way() -> None:
    """A preempted request can fail by the step under way, and then leaves the waiting queue."""
    scheduler = make_scheduler(num_blocks=3)
    for request in (make_request("a", 16, max_tokens=9), failing := make_request("b", 15)):
        scheduler.add_request(request)
    step = scheduler.schedule()
    scheduler.schedule()
    result = tokens_of(step, 7)
    result.errors["b"] = "no token is left"
    scheduler.update_from_output(step, result)
    assert failing.status is RequestStatus.FINISHED_ERROR
    assert not scheduler.waiting


def test_an_interrupted_step_is_forgotten() -> None:
    """A step that was scheduled but interrupted by Ctrl-C leaves nothing for the next."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 5))
    scheduler.schedule()
    scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    scheduler.add_request(make_request("b", 5))
    step = scheduler.schedule()
    outputs = scheduler.update_from_output(step, tokens_of(step, 7))
    assert [output.request_id for output in outputs[0].outputs] == ["b"]
    with pytest.raises(ValueError, match="have come already"):
        scheduler.update_from_output(step, tokens_of(step, 7))


# -- whole runs -------------------------------------------------------------------------------------------------------


def cached_content(core: EngineCore) -> set[object]:
    """Return the hashes of all cached blocks."""
    return {block.block_hash for block in core.scheduler.kv_cache_manager.block_pool.blocks if block.block_hash}


images = st.sampled_from(
    [(), (), (("x", 0, 3),), (("x", 2, 3), ("y", 6, 5)), (("y", 1, 5), ("z", 6, 4), ("x", 10, 3)), (("z", 9, 4),)]
)
happenings = st.lists(
    st.builds(
        Happening,
        at=st.integers(0, 12),
        prompt=st.lists(st.integers(3, 4), min_size=1, max_size=20),  # few different tokens, so prompts share prefixes
        max_tokens=st.integers(1, 14),
        gives_up_at=st.sampled_from([None, None, None, 0, 1, 2, 5]),
        again=st.booleans(),
        priority=st.integers(0, 2),
        params=st.sampled_from([{}, {}, {"ignore_eos": True}, {"min_tokens": 1}]),
        items=images,
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    happenings=happenings,
    num_blocks=st.integers(9, 20),
    max_num_batched_tokens=st.integers(4, 40),
    max_num_seqs=st.integers(1, 4),
    caching=st.booleans(),
    threshold=st.sampled_from([0, 0, 3]),
    policy=st.sampled_from(["fcfs", "priority"]),
    encoder_cache_size=st.integers(5, 12),
)
def test_outputs_are_those_of_the_plain_scheduler(
    happenings: list[Happening],
    num_blocks: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    caching: bool,
    threshold: int,
    policy: str,
    encoder_cache_size: int,
) -> None:
    """Each client gets the same tokens and the same end as with the plain scheduler, and all blocks are free.

    The events include arrivals, ends, failures, aborts and reused ids, with few blocks, small steps and images.
    """
    outputs = []
    for async_scheduling in (False, True):
        core = make_core(
            async_scheduling,
            num_blocks,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=min(max_num_seqs, max_num_batched_tokens),
            enable_prefix_caching=caching,
            long_prefill_token_threshold=threshold,
            policy=policy,
            max_tokens_per_mm_item=5,
            max_num_encoder_input_tokens=5,
            encoder_cache_size=encoder_cache_size,
        )
        outputs.append(run(core, happenings))
        assert core.get_num_free_blocks() == num_blocks - 1
        assert not core.scheduler.requests
    assert outputs[0] == outputs[1]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(happenings=happenings)
def test_the_same_content_can_be_found_afterwards(happenings: list[Happening]) -> None:
    """With enough blocks the prefix cache holds what it holds under the plain scheduler.

    Requests that fail are excluded, as the blocks of their last step are not cached.
    """
    contents = []
    for async_scheduling in (False, True):
        core = make_core(async_scheduling, num_blocks=200, executor=NeverFailing, max_tokens_per_mm_item=5)
        run(core, happenings)
        contents.append(cached_content(core))
    assert contents[0] == contents[1]


def test_the_stand_in_reaches_all_ends() -> None:
    """The random events include stops, length limits, failures and aborts."""
    many = [Happening(i, [3 + i % 2] * (1 + i % 7), 3 + i % 9, 2 if i % 5 == 0 else None) for i in range(60)]
    ends = {str(got[-1]) for got in run(make_core(True), many).values()}
    assert ends == {"stop None", f"stop {STOP}", "length None", "error no token is left", "gave up"}
