"""A run by the plain PyTorch attention, which is the student's: a prompt in chunks beside others that decode.

Given the file of a case with a prompt and a budget (`steps-continue-a-sequence`), it runs a prompt of that length in
chunks of that size. By default C++ kernels compute the attention on a CPU, and the student's functions would not run.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tracellm import LLM, SamplingParams

case = json.loads(Path(sys.argv[1]).read_text()) if sys.argv[1:] else {}
text = "The quick brown fox jumps over the lazy dog, and the dog runs after it. "
prompts: list[Any] = ["Hello!", "1 2 3 4 5 6 7", text + "Why does the dog run after the fox?"]
budget, tokens = 24, 6
if "budget" in case:
    prompts = [{"prompt_token_ids": list(range(100, 100 + case["prompt"]))}]
    budget, tokens = case["budget"], case["decodes"] + 1
llm = LLM(attention_backend="torch", block_size=8, max_model_len=96, max_num_seqs=4, max_num_batched_tokens=budget)
for output in llm.generate(prompts, SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True), use_tqdm=False):
    print(repr(output.outputs[0].text))
