"""A run with one step in flight: one request that ends by its length, and one that is noticed to end a step late."""

from tracellm import LLM, SamplingParams

llm = LLM(dtype="float32", block_size=16, max_model_len=96, num_gpu_blocks_override=16, async_scheduling=True)
prompts = ["Hello, my name is", "The capital of France is"]
params = [SamplingParams(temperature=0, max_tokens=6, ignore_eos=True), SamplingParams(temperature=0, max_tokens=10)]
for output in llm.generate(prompts, params, use_tqdm=False):
    print(repr(output.outputs[0].text))
