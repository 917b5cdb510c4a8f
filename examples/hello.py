"""The smallest run: three prompts, one answer each.

Run it with or without --explain:

    python examples/hello.py
    tracellm run --explain examples/hello.py

The same lines run in vLLM, with `from vllm import LLM, SamplingParams` and the name of a model.
"""

from tracellm import LLM, SamplingParams

prompts = [
    "Hello, my name is",
    "The capital of France is",
    "The largest ocean is",
]
# temperature=0 always takes the likeliest token, so every run gives the same text. Try temperature=0.8, top_p=0.95.
sampling_params = SamplingParams(temperature=0, max_tokens=32)

# The default model is `tiny`, inside the package. In float32 its text is the same on every CPU.
llm = LLM(dtype="float32")
outputs = llm.generate(prompts, sampling_params)

for output in outputs:
    print(f"Prompt: {output.prompt!r}, Generated text: {output.outputs[0].text!r}")
