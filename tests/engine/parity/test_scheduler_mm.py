"""Tests of the scheduler against vLLM 0.11.1 with images in the prompts."""

import json
from collections import Counter
from typing import Any

import pytest

from tests.engine.parity.cases import mm_cases
from tests.engine.parity.compare import side_by_side
from tests.engine.parity.replay import replay
from tests.engine.sched.harness import sample
from tracellm.engine.core.sched.scheduler import Scheduler


def run_step(scheduler: Scheduler, sampled: dict[str, int]) -> dict[str, Any]:
    """Run one step with the recorded samples; return it in the recording's form."""
    output = scheduler.schedule()
    cached, encoder = output.scheduled_cached_reqs, scheduler.encoder_cache_manager
    record = {
        "scheduled": output.num_scheduled_tokens,
        "new": [[new.req_id, new.num_computed_tokens, new.block_ids[0]] for new in output.scheduled_new_reqs],
        "cached": [
            [req_id, computed, blocks[0] if blocks else None]
            for req_id, computed, blocks in zip(
                cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
            )
        ],
        "resumed": sorted(cached.resumed_req_ids),
        "encoder_inputs": output.scheduled_encoder_inputs,
        "freed": output.free_encoder_mm_hashes,
        "finished": sorted(output.finished_req_ids),
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        "free_slots": [encoder.num_free_slots, encoder.num_freeable_slots],
        "freeable": list(encoder.freeable),
        "needed": {name: sorted(request_ids) for name, request_ids in sorted(encoder.cached.items())},
        "sampled": sampled,
    }
    record = json.loads(json.dumps(record))  # a copy, since the lists change in later steps
    scheduler.update_from_output(output, sample(scheduler, output, lambda request: sampled[request.request_id]))
    return record


@pytest.mark.parametrize("case", mm_cases(), ids=lambda case: f"seed{case['seed']}")
def test_schedules_as_vllm_with_images(case: dict[str, Any]) -> None:
    """Every step has the same requests, blocks, items to encode and evicted items, and the same encoder cache."""
    for number, expected, ours in replay(case, run_step):
        assert ours == expected, side_by_side(number, expected, ours)


def test_the_recordings_reach_what_they_are_for() -> None:
    """The recordings cover evictions, items cut by chunks and prefix hits, shared items, preemptions and aborts."""
    found: Counter[str] = Counter()
    for case in mm_cases():
        places = [[(offset, offset + length) for _, offset, length in one["mm_features"]] for one in case["requests"]]
        found["whole items"] += case["disable_chunked_mm_input"]
        found["aborts"] += sum(one["abort_before_step"] is not None for one in case["requests"])
        for step in case["steps"]:
            computed = {name: number for name, number, _ in step["new"] + step["cached"]}
            found["encoded"] += sum(map(len, step["encoder_inputs"].values()))
            found["evicted"] += len(step["freed"])
            found["resumed"] += sum(bool(places[int(name)]) for name in step["resumed"])
            found["shared"] += sum(len(request_ids) > 1 for request_ids in step["needed"].values())
            for name, number in computed.items():
                inside = any(start < number < end for start, end in places[int(name)])
                found["hit inside" if name in [new for new, *_ in step["new"]] else "cut inside"] += inside
    least = {"whole items": 5, "aborts": 20, "encoded": 100, "evicted": 50, "resumed": 10, "shared": 5}
    assert {name: found[name] for name in least if found[name] < least[name]} == {}
    assert min(found["hit inside"], found["cut inside"]) > 10
