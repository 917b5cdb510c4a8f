"""Eight requests that grow in a KV cache of 11 usable blocks: they fit at the start, and preempt each other later."""

from tracellm import LLM, SamplingParams

prompts = [
    "Hello, my name is",
    "The capital of France is",
    "The largest ocean is",
    "What is 3 + 4?",
    "Count from 1 to 5:",
    "The KV cache is",
    "The capital of Japan is",
    "A scheduler decides",
]
params = [SamplingParams(temperature=0, max_tokens=30 + 2 * index, ignore_eos=True) for index in range(len(prompts))]
llm = LLM(dtype="float32", max_model_len=64, num_gpu_blocks_override=12)
for output in llm.generate(prompts, params, use_tqdm=False):
    print(f"{output.prompt!r} -> {output.outputs[0].text!r}")
