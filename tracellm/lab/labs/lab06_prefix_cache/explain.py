"""A run in which a prompt is repeated and a conversation goes on; with a case's JSON file, its recorded workload."""

import json
import sys
from pathlib import Path
from typing import Any

from tracellm import LLM, SamplingParams

case: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text()) if sys.argv[1:] else {}
if "recording" in case:
    from tracellm.lab.labs.lab06_prefix_cache.running import recordings

    recorded = recordings()[case["recording"]]
    llm = LLM(
        block_size=recorded["block_size"],
        num_gpu_blocks_override=recorded["num_gpu_blocks"],
        max_num_batched_tokens=recorded["max_num_batched_tokens"],
        max_num_seqs=recorded["max_num_seqs"],
        max_model_len=recorded["max_model_len"],
    )
    prompts = [{"prompt_token_ids": one["prompt_token_ids"]} for one in recorded["requests"]]
    lengths = [one["max_tokens"] for one in recorded["requests"]]
    llm.generate(
        prompts, [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in lengths], use_tqdm=False
    )
    sys.exit()

llm = LLM(block_size=8, num_gpu_blocks_override=40, max_num_batched_tokens=20, max_model_len=128)
words = "The old man and the boy walked along the river, and they looked at the boats on the water and at the birds."
token_ids = llm.get_tokenizer().encode(words)
one, two, three = (token_ids[start : start + 8] for start in (0, 8, 16))
params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)


def ask(prompt: list[int]) -> list[int]:
    """Generate, and return prompt and output together."""
    (output,) = llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
    print(output.num_cached_tokens, "of", len(prompt), "prompt tokens cached; output", output.outputs[0].token_ids)
    return prompt + list(output.outputs[0].token_ids)


conversation = ask(one + two)
ask(one + two)  # repeated, and exactly two blocks long
ask(three + one)
ask(three + two + one)  # its second block has the same tokens as the first prompt's, after other tokens
ask(conversation + three)  # goes on
