"""A run whose batch mixes a greedy request, requests with penalties, and random requests with a seed each."""

from tracellm import LLM, SamplingParams

parameters = [
    SamplingParams(temperature=0, max_tokens=10, ignore_eos=True),
    SamplingParams(temperature=1.5, seed=2, repetition_penalty=2.0, max_tokens=10, ignore_eos=True),
    SamplingParams(temperature=0, frequency_penalty=1.5, presence_penalty=0.5, max_tokens=10, ignore_eos=True),
    SamplingParams(temperature=1.5, seed=1, max_tokens=10, ignore_eos=True),
    SamplingParams(temperature=1.5, top_k=20, top_p=0.8, seed=1, max_tokens=10, ignore_eos=True),
    SamplingParams(temperature=1.5, min_p=0.05, max_tokens=10, ignore_eos=True),
]
llm = LLM(seed=0)
prompts = ["Count from one to ten: one, two, three,"] * len(parameters)
for output in llm.generate(prompts, parameters, use_tqdm=False):
    print(repr(output.outputs[0].text))
