"""A run in which requests are chunked, end, and leave their rows to others; with a case's JSON file, that case."""

import json
import sys
from pathlib import Path
from typing import Any

from tracellm import LLM, SamplingParams

case: dict[str, Any] = {
    "block_size": 8,
    "num_blocks": 40,
    "budget": 12,
    "max_num_seqs": 3,
    "requests": [
        {"prompt": "The cat sat on the mat.", "max_tokens": 3},
        {"prompt": "One, two, three, four.", "max_tokens": 12},
        {"prompt": "The sun is warm today.", "max_tokens": 7},
        {"prompt": "A bird sings in the tree.", "max_tokens": 8},
    ],
}
if sys.argv[1:] and "budget" in (chosen := json.loads(Path(sys.argv[1]).read_text())):
    case = chosen

llm = LLM(
    block_size=case["block_size"],
    num_gpu_blocks_override=case["num_blocks"],
    max_num_batched_tokens=case["budget"],
    max_num_seqs=case["max_num_seqs"],
    max_model_len=128,
    enable_prefix_caching=False,
)
prompts = [one["prompt"] for one in case["requests"]]
prompts = [one if isinstance(one, str) else {"prompt_token_ids": one} for one in prompts]
params = [SamplingParams(temperature=0, max_tokens=one["max_tokens"], ignore_eos=True) for one in case["requests"]]
for output in llm.generate(prompts, params, use_tqdm=False):
    print(output.outputs[0].token_ids)
