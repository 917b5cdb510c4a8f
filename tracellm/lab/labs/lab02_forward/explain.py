"""A run of the bundled model by the plain PyTorch operations, which are the student's: three prompts, a few tokens.

By default C++ kernels compute the layers on a CPU, and the student's functions would not run.
"""

from tracellm import LLM, SamplingParams

llm = LLM(attention_backend="torch", max_model_len=96)
prompts = ["Hello!", "1 2 3 4 5 6 7", "Question: What is red? Answer:"]
for output in llm.generate(prompts, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True), use_tqdm=False):
    print(repr(output.outputs[0].text))
