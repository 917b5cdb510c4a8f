"""A script for a real vLLM: requests that share a prefix, are cut into chunks, wait and are preempted.

What its scheduler decides is written down by a wrapper of this script's own, for test_core.py to hold a recording
against. `python core_work.py '{...}'`: see the keys that are read here.
"""

import json
import sys
from collections.abc import Callable
from typing import Any


def write_down(schedule: Callable[..., Any], log: list[dict[str, Any]]) -> Callable[..., Any]:
    """`Scheduler.schedule`, and what it returned, as shared/reference has it of vLLM 0.11.1."""

    def logged(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        output = schedule(scheduler, *args, **kwargs)
        cached = output.scheduled_cached_reqs
        new_blocks = {new.req_id: new.block_ids for new in output.scheduled_new_reqs}
        new_blocks |= {id: blocks for id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True) if blocks}
        log.append(
            {
                "scheduled": dict(output.num_scheduled_tokens),
                "new": [[new.req_id, new.num_computed_tokens] for new in output.scheduled_new_reqs],
                "resumed": [
                    [id, cached.num_computed_tokens[i]]
                    for i, id in enumerate(cached.req_ids)
                    if id in cached.resumed_req_ids
                ],
                "blocks": {id: list(blocks[0]) for id, blocks in new_blocks.items()},
                "running": [request.request_id for request in scheduler.running],
                "waiting": [request.request_id for request in scheduler.waiting],
                "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            }
        )
        return output

    return logged


def main() -> None:
    """Serve the requests, and write the decisions and the tokens into a file."""
    from vllm import LLM, SamplingParams
    from vllm.v1.core.sched.scheduler import Scheduler

    asked = json.loads(sys.argv[1])
    llm = LLM(dtype="float32", enforce_eager=True, **asked["llm"])
    log: list[dict[str, Any]] = []
    Scheduler.schedule = write_down(Scheduler.schedule, log)
    outputs = []
    for requests in asked["calls"]:
        prompts = [{"prompt_token_ids": one["prompt_token_ids"]} for one in requests]
        params = [SamplingParams(**one["params"]) for one in requests]
        outputs += [list(one.outputs[0].token_ids) for one in llm.generate(prompts, params, use_tqdm=False)]
    with open(asked["result"], "w") as file:
        json.dump({"steps": log, "outputs": outputs}, file)


if __name__ == "__main__":
    main()
