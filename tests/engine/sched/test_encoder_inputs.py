"""Tests of the scheduling of images and sounds: what is encoded when, the reasons, and what workers can rely on."""

import random

import pytest

from tests.engine.sched.harness import make_request, make_scheduler, reasons, reasons_by_request, run_step, sample
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.sched.scheduler import Scheduler

BLOCK, MAX_MODEL_LEN, LARGEST = 4, 48, 12


def make_mm_scheduler(**settings) -> Scheduler:
    """Make a scheduler whose largest item has 12 tokens."""
    return make_scheduler(max_tokens_per_mm_item=LARGEST, **settings)


def text_tokens(scheduler: Scheduler) -> list[tuple[int, list[int]]]:
    """Run a step; return the tokens and the items of the first request."""
    output, _ = run_step(scheduler)
    return output.num_scheduled_tokens.get("a", 0), output.scheduled_encoder_inputs.get("a", [])


# -- what is encoded --------------------------------------------------------------------------------------------------


def test_an_item_is_encoded_when_its_first_token_is_computed():
    """A chunk that reaches an item has it encoded, once, and later chunks use the output."""
    scheduler = make_mm_scheduler(max_num_batched_tokens=8)
    scheduler.add_request(make_request("a", 30, items=[("x", 10, 12), ("y", 24, 2)]))
    assert [text_tokens(scheduler) for _ in range(4)] == [(8, []), (8, [0]), (8, []), (6, [1])]


def test_the_tokens_before_an_item_do_not_wait_for_it():
    """Without budget for an item a request gets the tokens before it, and none if there are none."""
    scheduler = make_mm_scheduler(max_num_encoder_input_tokens=12)
    scheduler.add_request(make_request("a", 30, items=[("x", 2, 12)]))
    scheduler.add_request(make_request("b", 30, items=[("y", 5, 10)]))
    scheduler.add_request(make_request("c", 30, items=[("z", 0, 10)]))
    scheduler.add_request(make_request("d", 3))
    output, _ = run_step(scheduler)
    assert output.num_scheduled_tokens == {"a": 30, "b": 5}
    assert output.scheduled_encoder_inputs == {"a": [0]}
    assert reasons_by_request(scheduler, output) == {
        "b": "encoder_budget item=0 needed=10 budget=12 left=0",
        "c": "encoder_budget item=0 needed=10 budget=12 left=0",
        "d": "behind request=c cause=encoder_budget",
    }


def test_a_running_request_without_room_in_the_encoder_cache_lets_others_go_on():
    """A running request whose item finds no room gets nothing, and those behind it go on."""
    scheduler = make_mm_scheduler(max_num_batched_tokens=12, encoder_cache_size=12, long_prefill_token_threshold=5)
    scheduler.add_request(make_request("a", 30, items=[("x", 2, 12)]))
    scheduler.add_request(make_request("b", 30, items=[("y", 5, 10)]))
    outputs = [run_step(scheduler)[0] for _ in range(4)]
    assert [output.num_scheduled_tokens for output in outputs] == [
        {"a": 5, "b": 5},
        {"a": 5},
        {"a": 5},
        {"a": 5, "b": 5},
    ]
    assert [output.scheduled_encoder_inputs for output in outputs] == [{"a": [0]}, {}, {}, {"b": [0]}]
    assert str(outputs[1].not_scheduled["b"]) == "encoder_cache item=0 needed=10 size=12 free=0"
    assert outputs[3].free_encoder_mm_hashes == ["x"]


def test_an_item_that_must_be_whole_is_left_for_the_next_step():
    """With `disable_chunked_mm_input` a step ends before an item that it cannot compute to its end."""
    scheduler = make_mm_scheduler(max_num_batched_tokens=14, disable_chunked_mm_input=True)
    scheduler.add_request(make_request("a", 30, items=[("x", 5, 12)]))
    output, _ = run_step(scheduler)
    assert (output.num_scheduled_tokens, output.scheduled_encoder_inputs) == ({"a": 5}, {})
    assert reasons_by_request(scheduler, output) == {"a": "chunked_mm_input item=0 needed=12 left=9"}
    assert text_tokens(scheduler) == (14, [0])


def test_equal_items_are_encoded_once():
    """An item that occurs again, in the same request or in another one, is not encoded again."""
    scheduler = make_mm_scheduler()
    scheduler.add_request(make_request("a", 30, items=[("x", 2, 6), ("x", 10, 6)]))
    scheduler.add_request(make_request("b", 30, items=[("x", 2, 6)]))
    output, _ = run_step(scheduler)
    assert output.scheduled_encoder_inputs == {"a": [0]}
    scheduler.add_request(make_request("c", 30, items=[("x", 4, 6)]))
    assert run_step(scheduler)[0].scheduled_encoder_inputs == {}


def test_a_prefix_hit_can_spare_an_item():
    """Items whose tokens are all in the prefix cache are not encoded; one that is there in part is."""
    scheduler = make_mm_scheduler(encoder_cache_size=12)
    prompt = list(range(40))
    for request_id, items in (("a", [("x", 2, 6), ("y", 20, 12)]), ("b", [("z", 2, 12)])):
        scheduler.add_request(make_request(request_id, prompt, 1, block_size=8, items=items))
        scheduler.kv_cache_manager.coordinator.block_size = 16
        run_step(scheduler)
    scheduler.add_request(make_request("c", prompt[:36], 1, items=[("x", 2, 6), ("y", 20, 12)]))


@pytest.mark.parametrize("end", ["abort", "finish"])
def test_the_end_of_a_request_frees_its_items(end):
    """A request that ends inside an item no longer needs it."""
    scheduler = make_mm_scheduler(max_num_batched_tokens=8)
    scheduler.add_request(make_request("a", 12, 1, items=[("x", 2, 8)]))
    run_step(scheduler)
    assert scheduler.encoder_cache_manager.cached == {"x": {"a"}}
    if end == "abort":
        scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    else:
        run_step(scheduler)
    assert scheduler.encoder_cache_manager.cached == {"x": set()}


def test_a_text_model_has_no_encoder_cache():
    """Without items nothing is encoded, and the budgets are 0."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 30))
    output, _ = run_step(scheduler)
    assert (output.scheduled_encoder_inputs, output.free_encoder_mm_hashes) == ({}, [])
    assert scheduler.max_num_encoder_input_tokens == scheduler.encoder_cache_manager.cache_size == 0


# -- preemption -------------------------------------------------------------------------------------------------------


def undone_step(**items) -> tuple[Scheduler, SchedulerOutput]:
    """Run two requests until the urgent one takes the blocks of the other, which was scheduled before it."""
    scheduler = make_mm_scheduler(block_size=BLOCK, num_gpu_blocks=12, policy="priority", max_num_batched_tokens=16)
    scheduler.add_request(make_request("low", 40, block_size=BLOCK, priority=5, items=items.get("low", ())))
    run_step(scheduler)
    scheduler.add_request(
        make_request("high", 40, block_size=BLOCK, priority=1, arrival_time=1.0, items=items.get("high", ()))
    )
    while True:
        output = scheduler.schedule()
        if output.not_scheduled.get("low") and scheduler.requests["low"].num_preemptions:
            return scheduler, output
        scheduler.update_from_output(output, sample(scheduler, output))
