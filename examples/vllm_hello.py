"""A script for vLLM, unchanged: it runs with a real vLLM, and without one on tracellm's own engine.

    tracellm run --explain --model Qwen/Qwen2.5-1.5B-Instruct=tiny examples/vllm_hello.py
    tracellm run --explain --engine tracellm --model Qwen/Qwen2.5-1.5B-Instruct=tiny examples/vllm_hello.py

The first line takes the vLLM that is installed beside tracellm. `--model` puts the small model inside tracellm in the
place of the one that the script names, so that nothing is downloaded; leave it out where the model is at hand.
"""

from vllm import LLM, SamplingParams

# The engine core may run in a process of its own, which imports this file once more: hence the line below.
if __name__ == "__main__":
    # Eager: a compiled model has no layers to look at. Blocks of 32 tokens: both versions can have these on a CPU.
    llm = LLM(
        model="Qwen/Qwen2.5-1.5B-Instruct",
        max_model_len=1024,
        dtype="float32",
        enforce_eager=True,
        block_size=32,
    )
    prompts = ["Hello, my name is", "The capital of France is", "The largest ocean is"]
    outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=8))

    for output in outputs:
        print(f"Prompt: {output.prompt!r}, Generated text: {output.outputs[0].text!r}")
