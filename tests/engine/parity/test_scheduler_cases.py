"""Test of the first recordings of vLLM 0.11.1 with the scheduler alone: without a model, no number can differ."""

import pytest

from tests.engine.parity.cases import scheduler_cases
from tests.engine.parity.compare import side_by_side
from tests.engine.parity.drive import record_step
from tests.engine.sched.harness import make_request, make_scheduler, sample


@pytest.mark.parametrize("case", scheduler_cases(), ids=lambda case: case["name"])
def test_schedules_as_vllm(case):
    """With the recorded tokens, every decision of every step equals vLLM's, down to the block ids."""
    settings = dict(case["settings"])
    scheduler = make_scheduler(num_gpu_blocks=settings.pop("num_gpu_blocks_override"), **settings)
    block_size = settings["block_size"] if settings["enable_prefix_caching"] else None
    (batch,), (recorded,) = case["batches"], case["recorded"]
    for index, spec in enumerate(batch["requests"]):
        scheduler.add_request(
            make_request(str(index), spec["prompt_token_ids"], spec["params"]["max_tokens"], block_size=block_size)
        )
    tokens = [completion["token_ids"] for *_, (completion,) in recorded["outputs"]]
    finished: dict[str, list[int]] = {}
    for index, expected in enumerate(recorded["steps"]):
        output = scheduler.schedule()
        step = record_step(scheduler, output)
        ours = {key: step[key] for key in expected}
        assert ours == expected, side_by_side(index, expected, ours)
        by_client = scheduler.update_from_output(
            output, sample(scheduler, output, lambda r: tokens[int(r.request_id)][r.num_output_tokens])
        )
        for of_client in by_client.values():
            for out in of_client.outputs:
                finished.setdefault(out.request_id, []).extend(out.new_token_ids)
    assert not scheduler.has_unfinished_requests()
    assert [finished[str(index)] for index in range(len(tokens))] == tokens
