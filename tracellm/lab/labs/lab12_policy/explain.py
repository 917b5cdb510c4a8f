"""A run of the engine with the queue of this lab: three long requests, then five short ones; two can run at once."""

from typing import Any

from tracellm import LLM, SamplingParams
from tracellm.lab.labs.lab12_policy.policy import PolicyRequestQueue

llm = LLM(block_size=16, max_model_len=160, num_gpu_blocks_override=14, max_num_seqs=2)
client: Any = llm.llm_engine.engine_core
client.engine_core.scheduler.waiting = PolicyRequestQueue()
story = "The quick brown fox jumps over the lazy dog. The dog sleeps in the sun, and the fox runs away from it. "
prompts = [2 * story + end for end in ("Who?", "Why?", "Where?")] + ["One", "Two", "Three", "Four", "Five"]
lengths = [40, 40, 40, 4, 4, 4, 4, 4]
params = [SamplingParams(temperature=0, max_tokens=length, ignore_eos=True) for length in lengths]
for output in llm.generate(prompts, params, use_tqdm=False):
    print(repr(output.outputs[0].text))
