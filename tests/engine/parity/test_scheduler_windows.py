"""Tests of the scheduler against vLLM 0.11.1 with sliding windows and several KV cache groups."""

import json
from typing import Any

import pytest

from tests.engine.parity.cases import window_cases
from tests.engine.parity.compare import side_by_side
from tests.engine.parity.replay import replay
from tests.engine.sched.harness import sample
from tracellm.engine.core.sched.scheduler import Scheduler


def run_step(scheduler: Scheduler, sampled: dict[str, int]) -> dict[str, Any]:
    """Run one step with the recorded samples; return it in the recording's form."""
    output = scheduler.schedule()
    cached, manager = output.scheduled_cached_reqs, scheduler.kv_cache_manager
    record = {
        "scheduled": output.num_scheduled_tokens,
        "new": [[new.req_id, new.num_computed_tokens, new.block_ids] for new in output.scheduled_new_reqs],
        "cached": list(zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True)),
        "resumed": sorted(cached.resumed_req_ids),
        "common_prefix": output.num_common_prefix_blocks,
        "finished": sorted(output.finished_req_ids),
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "tables": {request.request_id: manager.get_block_ids(request.request_id) for request in scheduler.running},
        "free": [block.block_id for block in manager.block_pool.free_block_queue.get_all_free_blocks()],
        "sampled": sampled,
    }
    record = json.loads(json.dumps(record))  # tuples become lists, as in the recording
    scheduler.update_from_output(output, sample(scheduler, output, lambda request: sampled[request.request_id]))
    return record


@pytest.mark.parametrize("case", window_cases(), ids=lambda case: f"seed{case['seed']}-{case['windows']}")
def test_schedules_as_vllm_with_windows(case: dict[str, Any]) -> None:
    """Every step has the same requests, the same block tables in every group, and the same queue of free blocks."""
    for number, expected, ours in replay(case, run_step):
        assert ours == expected, side_by_side(number, expected, ours)


def test_the_recordings_reach_what_they_are_for() -> None:
    """The recordings cover freed windowed blocks, prefix hits with and without their beginning, and preemptions."""
    steps = [step for case in window_cases() for step in case["steps"]]
    first_blocks = [blocks[0] for step in steps for _, computed, tables in step["new"] if computed for blocks in tables]
    assert first_blocks.count(0) > 5
    assert len(first_blocks) - first_blocks.count(0) > 5
    assert sum(len(step["resumed"]) for step in steps) > 20
    assert sum(0 in blocks for step in steps for tables in step["tables"].values() for blocks in tables) > 500
