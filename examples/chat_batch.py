"""A chat in English and Chinese, then a batch that is too large to run at once: requests wait, join and leave.

Run it with --explain and look at the steps:

    tracellm run --explain examples/chat_batch.py
    tracellm show steps

`max_num_seqs=4` limits a step to four requests and `max_num_batched_tokens=32` to 32 tokens, so the
report shows waiting requests and the reasons.
"""

from tracellm import LLM, SamplingParams

llm = LLM(max_num_seqs=4, max_num_batched_tokens=32, max_model_len=256, num_gpu_blocks_override=64)

# A chat: the model's template turns the messages into one prompt.
conversations = [
    [{"role": "user", "content": "What is the capital of Japan?"}],
    [{"role": "user", "content": "法国的首都是哪里？"}],
]
for conversation, output in zip(
    conversations, llm.chat(conversations, SamplingParams(temperature=0, max_tokens=48)), strict=True
):
    print(f"{conversation[-1]['content']} -> {output.outputs[0].text.strip()}")

# A batch: eight prompts, at most four at a time, each with its own parameters.
prompts = [
    "Hello, my name is",
    "The capital of Italy is",
    "The largest ocean is",
    "What is 3 + 4?",
    "Count from 1 to 5:",
    "中国的首都是",
    "世界上最大的海洋是",
    "The KV cache is",
]
params = [SamplingParams(temperature=0, max_tokens=8 + 4 * index) for index in range(len(prompts))]
for output in llm.generate(prompts, params):
    completion = output.outputs[0]
    print(f"{output.prompt!r} -> {completion.text!r} ({completion.finish_reason})")
