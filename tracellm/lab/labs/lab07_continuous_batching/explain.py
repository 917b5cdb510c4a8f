"""Six prompts of different lengths, with a budget of 20 tokens, room for three requests, and few KV cache blocks.

With the file of a case as argument, its requests instead.
"""

import json
import sys
from typing import Any

from tracellm import LLM, SamplingParams

same = [40 + 7 * position % 50 for position in range(20)]
case: dict[str, Any] = {
    "max_num_batched_tokens": 20,
    "max_num_seqs": 3,
    "num_gpu_blocks": 11,
    "enable_prefix_caching": True,
    "requests": [
        {"prompt": [20 + position for position in range(30)], "max_tokens": 6},
        {"prompt": same, "max_tokens": 4},
        {"prompt": [*same, 33, 34, 35, 36, 37, 38], "max_tokens": 8},
        {"prompt": [60 + position % 30 for position in range(30)], "max_tokens": 3},
        {"prompt": [21, 22, 23], "max_tokens": 5},
        {"prompt": [31, 32], "max_tokens": 5},
    ],
}
if sys.argv[1:]:
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)

llm = LLM(
    block_size=case.get("block_size", 8),
    max_model_len=case.get("max_model_len", 64),
    num_gpu_blocks_override=case.get("num_gpu_blocks", 64),
    max_num_batched_tokens=case.get("max_num_batched_tokens", 64),
    max_num_seqs=case.get("max_num_seqs", 8),
    enable_prefix_caching=case.get("enable_prefix_caching", False),
    enable_chunked_prefill=case.get("enable_chunked_prefill", True),
    long_prefill_token_threshold=case.get("long_prefill_token_threshold", 0),
    scheduling_policy=case.get("policy", "fcfs"),
)
engine, step, added = llm.llm_engine, 0, 0
while step < 100 and (added < len(case["requests"]) or engine.has_unfinished_requests()):
    for index, request in enumerate(case["requests"]):
        name = str(case.get("first_id", 0) + index)
        if index == added and (request.get("add_before_step", 0) <= step or not engine.has_unfinished_requests()):
            params = SamplingParams(temperature=0, max_tokens=request.get("max_tokens", 4), ignore_eos=True)
            prompt = {"prompt_token_ids": request["prompt"]}
            engine.add_request(name, prompt, params, priority=request.get("priority", 0))
            added += 1
        if request.get("abort_before_step") == step:
            engine.abort_request([name])
    for abort in case.get("aborts", []):
        if abort.get("before_step") == step:
            engine.abort_request([abort["ids"]] if isinstance(abort["ids"], str) else abort["ids"])
    for output in engine.step():
        if output.finished:
            print(f"request {output.request_id}: {output.outputs[0].token_ids}")
    step += 1
