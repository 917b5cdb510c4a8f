"""Choosing the next token: several outputs of one prompt, log probabilities, penalties, and a JSON schema.

Run it plain, then with --explain, to see the effect of each parameter in every step:

    python examples/sampling.py
    tracellm run --explain examples/sampling.py
"""

from tracellm import LLM, SamplingParams, StructuredOutputsParams

llm = LLM(max_model_len=256)

# Three outputs of one prompt, each sampled from the five likeliest tokens with its own seed.
params = SamplingParams(n=3, temperature=0.8, top_k=5, seed=7, max_tokens=8)
[output] = llm.generate(["My favorite color is"], params)
for completion in output.outputs:
    print(f"output {completion.index}: {completion.text!r}")

# The two likeliest tokens at each position, whichever was sampled.
params = SamplingParams(temperature=0, max_tokens=3, logprobs=2)
[output] = llm.generate(["The capital of France is"], params)
for candidates in output.outputs[0].logprobs or []:
    print("likeliest:", ", ".join(f"{one.decoded_token!r} {one.logprob:.2f}" for one in candidates.values()))

# A penalty on repeated tokens: the second output continues differently where the first one ends.
for penalty in (0.0, 2.0):
    params = SamplingParams(temperature=0, max_tokens=16, frequency_penalty=penalty)
    [output] = llm.generate(["Hello, my name is"], params)
    print(f"frequency_penalty={penalty}: {output.outputs[0].text!r}")

# A grammar allows only tokens that fit the schema: the form is always valid, the facts may be wrong.
schema = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}, "old": {"type": "boolean"}},
    "required": ["city", "old"],
    "additionalProperties": False,
}
form = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
[output] = llm.generate(
    ["The capital of Italy is"], SamplingParams(temperature=0, max_tokens=40, structured_outputs=form)
)
print("JSON:", output.outputs[0].text)
