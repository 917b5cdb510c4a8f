"""Tests of the scheduling of images and sounds: what is encoded when, the reasons, and what workers can rely on."""

import random
from contextlib import nullcontext

import pytest

from tests.engine.core_requests import core_request
from tests.engine.sched.encoding_workers import EncodingWorkers
from tests.engine.sched.harness import make_request, make_scheduler, reasons_by_request, run_step, sample
from tests.engine.sched.stand_in import make_core
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.core.request import Request, RequestStatus
from tracellm.engine.core.sched.output import SchedulerOutput
from tracellm.engine.core.sched.reasons import ReasonCode
from tracellm.engine.core.sched.scheduler import Scheduler
from tracellm.engine.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from tracellm.engine.sample.sampling_params import SamplingParams

BLOCK, MAX_MODEL_LEN, LARGEST = 4, 48, 12


def make_mm_scheduler(**settings) -> Scheduler:
    """Make a scheduler whose largest item has 12 tokens."""
    return make_scheduler(max_tokens_per_mm_item=LARGEST, **settings)


def first_request(scheduler: Scheduler) -> tuple[int, list[int]]:
    """Run a step; return the tokens and the items of the first request."""
    output, _ = run_step(scheduler)
    return output.num_scheduled_tokens.get("a", 0), output.scheduled_encoder_inputs.get("a", [])


# -- what is encoded --------------------------------------------------------------------------------------------------


def test_an_item_is_encoded_when_its_first_token_is_computed():
    """A chunk that reaches an item has it encoded, once, and later chunks use the output."""
    scheduler = make_mm_scheduler(max_num_batched_tokens=8)
    scheduler.add_request(make_request("a", 30, items=[("x", 10, 12), ("y", 24, 2)]))
    assert [first_request(scheduler) for _ in range(4)] == [(8, []), (8, [0]), (8, []), (6, [1])]


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
    assert first_request(scheduler) == (14, [0])


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
    """An item whose tokens are all in the prefix cache is not encoded; one whose last tokens are not there is."""
    scheduler = make_mm_scheduler(block_size=8, encoder_cache_size=12)
    prompt, items = list(range(40)), [("x", 2, 6), ("y", 20, 12)]
    for request_id, text, its_items in (("a", prompt, items), ("b", 20, [("z", 2, 12)]), ("c", prompt[:33], items)):
        scheduler.add_request(make_request(request_id, text, 1, block_size=8, items=its_items))
        run_step(scheduler)
    assert scheduler.encoder_cache_manager.cached == {"z": set()}
    scheduler.add_request(make_request("d", [*prompt[:31], 99, 99], 1, block_size=8, items=items))
    output, _ = run_step(scheduler)
    assert (output.num_scheduled_tokens, output.scheduled_encoder_inputs) == ({"d": 9}, {"d": [1]})
    assert output.free_encoder_mm_hashes == ["z"]


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


def test_a_reset_of_the_prefix_cache_drops_the_outputs_too():
    """An interrupted step may not have encoded what it scheduled, so the encoder cache is emptied as well."""
    scheduler = make_mm_scheduler()
    scheduler.add_request(make_request("a", 12, items=[("x", 2, 8)]))
    run_step(scheduler)
    assert not scheduler.reset_prefix_cache()
    scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    assert scheduler.reset_prefix_cache()
    scheduler.add_request(make_request("b", 12, items=[("x", 2, 8)]))
    output, _ = run_step(scheduler)
    assert (output.free_encoder_mm_hashes, output.scheduled_encoder_inputs) == (["x"], {"b": [0]})


@pytest.mark.parametrize(("largest", "limit"), [(5, 32), (40, 40), (0, 0)])
def test_an_item_that_is_too_large_is_refused(largest, limit):
    """An item that no step can encode is refused on arrival, and any item by a text model."""
    core = make_core(False, max_num_batched_tokens=32, max_tokens_per_mm_item=largest)
    for length in (limit, limit + 1):
        item = MultiModalFeatureSpec(None, "image", "x", PlaceholderRange(0, length))
        request = core_request("a", [1], SamplingParams(max_tokens=1), mm_features=[item])
        error = pytest.raises(InvalidRequestError, match=rf"item 0 .* has {length} tokens, .* at most {limit}\.")
        with nullcontext() if length == limit else error:
            core.preprocess_add_request(request)


def test_a_text_model_has_no_encoder_cache():
    """Without items nothing is encoded, and the budgets are 0."""
    scheduler = make_scheduler()
    scheduler.add_request(make_request("a", 30))
    output, _ = run_step(scheduler)
    assert (output.scheduled_encoder_inputs, output.free_encoder_mm_hashes) == ({}, [])
    assert scheduler.max_num_encoder_input_tokens == scheduler.encoder_cache_manager.cache_size == 0


# -- preemption and stalls --------------------------------------------------------------------------------------------


def end_all(scheduler: Scheduler, workers: EncodingWorkers) -> list[SchedulerOutput]:
    """Run until no request is left; return the steps."""
    requests, outputs = dict(scheduler.requests), []
    while scheduler.has_unfinished_requests():
        outputs.append(scheduler.schedule())
        workers.execute(scheduler, outputs[-1], requests)
        scheduler.update_from_output(outputs[-1], sample(scheduler, outputs[-1]))
        assert len(outputs) < 100, f"{sorted(scheduler.requests)} never end"
    return outputs


@pytest.mark.parametrize(("item", "encoded"), [("y", {"high": [0]}), ("x", {"low": [0]})], ids=["other", "same"])
def test_a_request_that_is_preempted_after_all_encodes_only_for_others(item, encoded):
    """An item of a request whose scheduling is undone is not encoded, unless another request uses the item."""
    scheduler = make_mm_scheduler(
        block_size=BLOCK, num_gpu_blocks=14, policy="priority", long_prefill_token_threshold=8
    )
    scheduler.add_request(make_request("low", 40, block_size=BLOCK, priority=5, items=[("x", 24, 4)]))
    run_step(scheduler)
    scheduler.add_request(make_request("high", 40, block_size=BLOCK, priority=1, items=[(item, 16, 4)]))
    outputs = end_all(scheduler, EncodingWorkers())
    assert outputs[2].not_scheduled["low"].code is ReasonCode.PREEMPTED
    assert (outputs[2].num_scheduled_tokens, outputs[2].scheduled_encoder_inputs) == ({"high": 8}, encoded)


def test_requests_that_wait_for_each_other_go_on():
    """A waiting request that uses an item, and has no blocks, does not stop a running one that needs its space."""
    scheduler = make_mm_scheduler(
        block_size=BLOCK, num_gpu_blocks=6, encoder_cache_size=12, long_prefill_token_threshold=8
    )
    workers = EncodingWorkers()
    scheduler.add_request(make_request("before", 13, 1, block_size=BLOCK, items=[("x", 0, 12)]))
    end_all(scheduler, workers)
    scheduler.add_request(make_request("running", 20, 1, block_size=BLOCK, items=[("y", 16, 4)]))
    run_step(scheduler)
    scheduler.add_request(make_request("waiting", 14, 1, block_size=BLOCK, items=[("x", 0, 12)]))
    _, stalled, *_ = end_all(scheduler, workers)
    assert stalled.num_scheduled_tokens == {}
    assert {name: reason.code.value for name, reason in stalled.not_scheduled.items()} == {
        "running": "encoder_cache",
        "waiting": "no_free_blocks",
    }


# -- any workload -----------------------------------------------------------------------------------------------------


def draw_prompt(rng: random.Random, sizes: dict[str, int]) -> tuple[list[int], list[tuple[str, int, int]]]:
    """Draw a prompt of at most 40 tokens, texts and items in turn."""
    prompt: list[int] = []
    items: list[tuple[str, int, int]] = []
    length = rng.randrange(1, 36)
    while len(prompt) < length:
        name = rng.choice(sorted(sizes))
        if rng.random() < 0.5 and len(prompt) + sizes[name] <= 40:
            items.append((name, len(prompt), sizes[name]))
            prompt += [9] * sizes[name]
        else:
            prompt += [rng.randrange(2) for _ in range(rng.randrange(1, 5))]
    return prompt, items


def live_through(seed: int) -> None:
    """Run random operations with random settings, then all remaining requests to their end."""
    rng = random.Random(seed)
    budget = rng.choice([4, 6, 9, 16, 40, MAX_MODEL_LEN])
    caching = rng.random() < 0.75
    scheduler = make_mm_scheduler(
        block_size=BLOCK,
        max_model_len=MAX_MODEL_LEN,
        num_gpu_blocks=MAX_MODEL_LEN // BLOCK + 1 + rng.choice([0, 0, 1, 2, 6]),
        max_num_batched_tokens=budget,
        max_num_seqs=rng.choice([1, 2, 3, 4]),
        enable_prefix_caching=caching,
        enable_chunked_prefill=budget < MAX_MODEL_LEN or rng.random() < 0.5,
        long_prefill_token_threshold=rng.choice([0, 0, 3, 7]),
        policy=rng.choice(["fcfs", "priority", "priority"]),
        disable_chunked_mm_input=budget >= LARGEST and rng.random() < 0.3,
        max_num_encoder_input_tokens=rng.choice([1, 14, 30]),
        encoder_cache_size=rng.choice([1, 14, 20, 40]),
    )
    workers, live = EncodingWorkers(), dict[str, Request]()
    sizes = {name: rng.choice([1, 2, 5, 9, LARGEST]) for name in "abcdef"}
    prompts = [draw_prompt(rng, sizes) for _ in range(3)]

    def step(token: int) -> None:
        output = scheduler.schedule()
        workers.execute(scheduler, output, live)
        scheduler.update_from_output(output, sample(scheduler, output, lambda request: token))
        for request_id in [name for name, request in live.items() if request.is_finished()]:
            del live[request_id]

    for number in range(rng.choice([25, 60])):
        chance = rng.random()
        if chance < 0.3:
            prompt, items = rng.choice(prompts) if rng.random() < 0.5 else draw_prompt(rng, sizes)
            live[str(number)] = make_request(
                str(number),
                [*prompt, rng.randrange(2)],
                rng.choice([1, 2, 5, 7]),
                block_size=BLOCK if caching else None,
                priority=rng.randrange(3),
                arrival_time=float(number),
                eos_token_id=5,
                items=items,
            )
            scheduler.add_request(live[str(number)])
        elif chance < 0.35 and live:
            scheduler.finish_requests(request_id := rng.choice(sorted(live)), RequestStatus.FINISHED_ABORTED)
            del live[request_id]
        else:
            step(rng.choice([0, 1, 1, 1, 5]))
    for _ in range(2000):
        if live:
            step(1)
    assert not live, f"{sorted(live)} never end"
    assert not any(scheduler.encoder_cache_manager.cached.values())


@pytest.mark.parametrize("first", range(0, 1600, 200))
def test_no_workload_lacks_an_output_or_stalls(first):
    """Workers have each item's output when its tokens are computed, and every request ends, in any order of events."""
    for seed in range(first, first + 200):
        live_through(seed)
