"""The recorded workloads of a real vLLM 0.11.1, replayed: every decision of every step must be the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.sched.harness import make_request, make_scheduler, sample
from tracellm.engine.sched.output import SchedulerOutput
from tracellm.engine.sched.scheduler import Scheduler

CASES = Path(__file__).parents[2] / "fixtures" / "scheduler-cases.jsonl"
SETTINGS = (
    "block_size",
    "max_model_len",
    "num_gpu_blocks",
    "max_num_batched_tokens",
    "max_num_seqs",
    "enable_prefix_caching",
)


def read_cases() -> list[dict[str, Any]]:
    """The recordings, one workload each."""
    return [json.loads(line) for line in CASES.read_text().splitlines()]


def record(scheduler: Scheduler, output: SchedulerOutput) -> dict[str, Any]:
    """One step in the form of the recording."""
    cached = output.scheduled_cached_reqs
    blocks = {new.req_id: new.block_ids[0] for new in output.scheduled_new_reqs}
    blocks |= {
        req_id: block_ids[0]
        for req_id, block_ids in zip(cached.req_ids, cached.new_block_ids, strict=True)
        if block_ids
    }
    return {
        "scheduled": output.num_scheduled_tokens,
        "new": [[new.req_id, new.num_computed_tokens] for new in output.scheduled_new_reqs],
        "blocks": blocks,
        "resumed": [
            [req_id, computed]
            for req_id, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True)
            if req_id in cached.resumed_req_ids
        ],
        "running": [request.request_id for request in scheduler.running],
        "waiting": [request.request_id for request in scheduler.waiting],
        "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
    }


def side_by_side(index: int, vllm: dict[str, Any], ours: dict[str, Any]) -> str:
    """The two versions of a step, a line for each key, the differing ones marked."""
    lines = [f"the first step that differs is number {index}:"]
    for key in vllm:
        mark = "  " if vllm[key] == ours[key] else "->"
        lines += [f"{mark} {key}", f"     vLLM     {vllm[key]}", f"     tracellm {ours[key]}"]
    return "\n".join(lines)


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: f"seed{case['seed']}")
def test_schedules_as_vllm(case):
    """Fed with the recorded tokens, it takes every decision of every step as vLLM 0.11.1 did, down to the block ids."""
    scheduler = make_scheduler(**{name: case[name] for name in SETTINGS})
    block_size = case["block_size"] if case["enable_prefix_caching"] else None
    for index, spec in enumerate(case["requests"]):
        scheduler.add_request(
            make_request(str(index), spec["prompt_token_ids"], spec["max_tokens"], block_size=block_size)
        )
    finished: dict[str, list[int]] = {}
    for index, expected in enumerate(case["steps"]):
        output = scheduler.schedule()
        ours = record(scheduler, output)
        assert ours == expected, side_by_side(index, expected, ours)
        by_client = scheduler.update_from_output(
            output,
            sample(scheduler, output, lambda r: case["outputs"][int(r.request_id)][r.num_output_tokens]),
        )
        for of_client in by_client.values():
            for out in of_client.outputs:
                finished.setdefault(out.request_id, []).extend(out.new_token_ids)
    assert not scheduler.has_unfinished_requests()
    assert [finished[str(i)] for i in range(len(case["outputs"]))] == case["outputs"]


def test_the_recording_holds_what_it_is_meant_to_test():
    """The cases cover prefix hits, exhausted blocks and resumption; otherwise equality would prove little."""
    steps = [step for case in read_cases() for step in case["steps"]]
    assert len(read_cases()) == 24
    assert any(computed for step in steps for _, computed in step["new"])
    assert sum(len(step["resumed"]) for step in steps) > 20
    assert any(step["free_blocks"] == 0 for step in steps)
