"""Tests of scheduling for a pipeline: several steps are under way, each with other requests."""

from typing import Any

from tests.engine.sched.harness import make_config, make_kv_cache_config, make_request
from tests.engine.sched.test_async_scheduling import tokens_of
from tracellm.engine.core.request import RequestStatus
from tracellm.engine.core.sched.pipeline_scheduler import PipelineScheduler
from tracellm.engine.core.structured_output.manager import StructuredOutputManager


def make_scheduler(num_blocks: int = 100, **more: Any) -> PipelineScheduler:
    """Make a scheduler with blocks of 16 tokens."""
    config = make_config(num_gpu_blocks=num_blocks, **more)
    return PipelineScheduler(config, make_kv_cache_config(num_blocks), StructuredOutputManager(config))


def test_a_request_waits_for_its_token() -> None:
    """A request is left out of the steps after one that samples its token, until the token is known."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 5, max_tokens=9))
    first = scheduler.schedule()
    assert scheduler.schedule().num_scheduled_tokens == {}
    scheduler.update_from_output(first, tokens_of(first, 7))
    third = scheduler.schedule()
    assert third.num_scheduled_tokens == {"a": 1}
    assert third.scheduled_cached_reqs.new_token_ids == [[7]]


def test_requests_take_turns() -> None:
    """Two requests that do not fit into one step are in different steps from then on."""
    scheduler = make_scheduler(max_num_batched_tokens=8)
    for name in "ab":
        scheduler.add_request(make_request(name, 8, max_tokens=9))
    under_way = [scheduler.schedule(), scheduler.schedule()]
    seen = [step.num_scheduled_tokens for step in under_way]
    for _ in range(4):
        oldest = under_way.pop(0)
        scheduler.update_from_output(oldest, tokens_of(oldest, 7))
        under_way.append(scheduler.schedule())
        seen.append(under_way[-1].num_scheduled_tokens)
    assert seen == [{"a": 8}, {"b": 8}, {"a": 1}, {"b": 1}, {"a": 1}, {"b": 1}]


def test_the_next_chunk_of_a_prompt_does_not_wait() -> None:
    """The pieces of a prompt follow each other through the stages; each carries its tokens."""
    scheduler = make_scheduler(max_num_batched_tokens=8)
    request = make_request("a", 20)
    scheduler.add_request(request)
    steps = [scheduler.schedule() for _ in range(4)]
    assert [step.num_scheduled_tokens for step in steps] == [{"a": 8}, {"a": 8}, {"a": 4}, {}]
    assert steps[1].scheduled_cached_reqs.new_token_ids == [list(request.all_token_ids[8:16])]


def test_a_preempted_request_is_not_resumed_before_its_token() -> None:
    """With three steps under way, a preempted request whose token is computed waits for it, and gets it once."""
    scheduler = make_scheduler(num_blocks=3, max_num_batched_tokens=16)  # two blocks for requests
    scheduler.add_request(make_request("a", 16, max_tokens=9))
    scheduler.add_request(b := make_request("b", 16, max_tokens=9))
    first, second = scheduler.schedule(), scheduler.schedule()
    scheduler.update_from_output(first, tokens_of(first, 7))
    third = scheduler.schedule()
    assert (third.num_scheduled_tokens, b.status) == ({"a": 1}, RequestStatus.PREEMPTED)
    scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    assert scheduler.schedule().num_scheduled_tokens == {}
    scheduler.update_from_output(second, tokens_of(second, 8))
    assert scheduler.schedule().num_scheduled_tokens == {"b": 16}
    assert b.output_token_ids == [8]


def test_a_token_of_a_preempted_request_can_end_it() -> None:
    """A request that was preempted while its last token was computed ends, and leaves the queue."""
    scheduler = make_scheduler(num_blocks=3, max_num_batched_tokens=16)  # two blocks for requests
    scheduler.add_request(make_request("a", 16, max_tokens=9))
    scheduler.add_request(make_request("b", 16, max_tokens=1))
    first, second = scheduler.schedule(), scheduler.schedule()
    assert [step.num_scheduled_tokens for step in (first, second)] == [{"a": 16}, {"b": 16}]
    scheduler.update_from_output(first, tokens_of(first, 7))
    assert "b" in scheduler.schedule().not_scheduled  # a needs a second block, and b loses its own
    scheduler.update_from_output(second, tokens_of(second, 8))
    assert scheduler.get_request_counts() == (1, 0)
