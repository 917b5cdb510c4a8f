"""A script for vLLM, unchanged: it runs with a real vLLM, or without one on tracellm's own engine.

    tracellm run --explain --model Qwen/Qwen2.5-1.5B-Instruct=tiny examples/vllm_hello.py
    tracellm run --explain --engine tracellm --model Qwen/Qwen2.5-1.5B-Instruct=tiny examples/vllm_hello.py

The first line uses the installed vLLM. `--model` replaces the model named in the script by the bundled one,
so nothing is downloaded; omit it if the named model is at hand.
"""

from vllm import LLM, SamplingParams

# The engine core may run in its own process, which imports this file again, so it needs the next line.
if __name__ == "__main__":
    # Eager, since a compiled model has no layers to probe. Blocks of 32 tokens work on a CPU in both versions.
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
