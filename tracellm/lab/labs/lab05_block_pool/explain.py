"""A run that allocates, shares, frees and evicts blocks: prompts with the same beginning in a cache of eight blocks."""

from tracellm import LLM, SamplingParams

llm = LLM(block_size=16, num_gpu_blocks_override=9, max_model_len=96)
same = "The quick brown fox jumps over the lazy dog. The dog sleeps in the sun, and the fox runs away from it. "
count = "Count from one to ten, then back."
for prompts in ([same + "Why?"], [same + "Where?", same + "Who?"], [count], [same + "Why?"]):
    for output in llm.generate(prompts, SamplingParams(temperature=0, max_tokens=12, ignore_eos=True), use_tqdm=False):
        print(repr(output.outputs[0].text))
