"""Questions below one long instruction: the first computes the prefix, the others find its blocks in the cache."""

from tracellm import LLM, SamplingParams

instruction = (
    "You are a helpful assistant. You answer every question in one short sentence. You never use lists, you never use "
    "tables, and you say so when you do not know the answer. "
)
questions = ["What is the capital of France?", "What is the largest ocean?", "What is 3 + 4?", "What is a KV cache?"]
params = SamplingParams(temperature=0, max_tokens=12)

llm = LLM(dtype="float32", max_model_len=256, num_gpu_blocks_override=24)
llm.generate(instruction + questions[0], params, use_tqdm=False)  # computes and caches the blocks of the instruction
for output in llm.generate([instruction + question for question in questions], params, use_tqdm=False):
    print(f"{output.prompt[len(instruction) :]} -> {output.outputs[0].text!r}")

# The blocks of finished requests stay cached until another request needs them.
others = [f"{index} {instruction[: 90 + 9 * index]}" for index in range(8)]
llm.generate(others, params, use_tqdm=False)
for output in llm.generate([instruction + question for question in questions], params, use_tqdm=False):
    print(f"{output.prompt[len(instruction) :]} -> {output.outputs[0].text!r}")
