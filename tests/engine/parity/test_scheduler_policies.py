"""Tests of the scheduler against vLLM 0.11.1 under every policy, with arrivals and aborts."""

from typing import Any

import pytest

from tests.engine.parity.cases import policy_cases
from tests.engine.parity.compare import side_by_side
from tests.engine.parity.replay import replay
from tests.engine.sched.harness import sample
from tracellm.engine.core.sched.scheduler import Scheduler


def run_step(scheduler: Scheduler, sampled: dict[str, int]) -> dict[str, Any]:
    """Run one step with the recorded samples; return it in the recording's form."""
    output = scheduler.schedule()
    cached = output.scheduled_cached_reqs
    record = {
        "scheduled": output.num_scheduled_tokens,
        "new": [[new.req_id, new.num_computed_tokens, new.block_ids[0]] for new in output.scheduled_new_reqs],
        "cached": [
            [req_id, computed, generated, blocks[0] if blocks else None]
            for req_id, computed, generated, blocks in zip(
                cached.req_ids, cached.num_computed_tokens, cached.num_output_tokens, cached.new_block_ids, strict=True
            )
        ],
        "resumed": sorted(cached.resumed_req_ids),
        "all_token_ids": cached.all_token_ids,
        "common_prefix": output.num_common_prefix_blocks,
        "finished": sorted(output.finished_req_ids),
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
    }
    by_client = scheduler.update_from_output(
        output, sample(scheduler, output, lambda request: sampled[request.request_id])
    )
    record["sampled"] = sampled
    record["outputs"] = [
        [
            out.request_id,
            out.new_token_ids,
            None if out.finish_reason is None else str(out.finish_reason),
            out.stop_reason,
            out.num_cached_tokens,
        ]
        for of_client in by_client.values()
        for out in of_client.outputs
    ]
    return record


@pytest.mark.parametrize("case", policy_cases(), ids=lambda case: f"seed{case['seed']}")
def test_schedules_as_vllm_under_every_policy(case):
    """With priorities, chunk thresholds, aborts and stop tokens, messages to workers and clients equal vLLM's."""
    for number, expected, ours in replay(case, run_step):
        assert ours == expected, side_by_side(number, expected, ours)
