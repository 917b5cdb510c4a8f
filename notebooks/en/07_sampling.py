# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7. Sampling: from logits to text
#
# Afterwards you can say how a token is chosen: from logits to probabilities, what temperature, top_k, top_p, penalties and
# a seed change, and how a grammar allows only certain tokens.

# %%
from tracellm import LLM, SamplingParams, StructuredOutputsParams

# %load_ext tracellm

# %% [markdown]
# ## Predict
#
# The model gives each of the 4,096 tokens of its vocabulary a number, a *logit*. Greedy sampling (`temperature=0`) takes
# the largest one. Four requests share one prompt, so in the first step all have the same logits. Request 1 samples with
# `top_k=3`, request 2 with `top_p=0.5`, request 3 with neither. How many tokens are left to choose from for request 1?
# And what does request 0 choose?

# %%
prompt = "My favorite color is"
common = dict(max_tokens=24, ignore_eos=True)
params = [
    SamplingParams(temperature=0, **common),
    SamplingParams(temperature=1.0, top_k=3, seed=1, **common),
    SamplingParams(temperature=1.0, top_p=0.5, seed=1, **common),
    SamplingParams(temperature=1.0, seed=1, **common),
]

left_for_request_1 = 1  # your prediction
token_of_request_0 = " red"  # your prediction

# %% [markdown]
# ## Run

# %%
# %%explain
llm = LLM("tiny", max_model_len=128)
for output in llm.generate([prompt] * 4, params, use_tqdm=False):
    print(output.request_id, repr(output.outputs[0].text))

# %%
run.predict("token", token_of_request_0, request=0, step=1)

# %%
left = run.steps[0].sampled["1"].tokens_left
print(f"You said {left_for_request_1}; {left} tokens were left for request 1, as its top_k is {params[1].top_k}.")

# %% [markdown]
# ## Look
#
# The likeliest tokens of the first step, before and after the *processors*: temperature divides the logits, top_k keeps
# the k likeliest tokens, top_p keeps the likeliest ones until their probabilities add up to p. What is left is scaled up
# to a sum of 1, and one token is drawn.

# %%
for request, sampled in run.steps[0].sampled.items():
    print(f"request {request}: {sampled.text!r} was chosen, probability {sampled.probability:.1%} in the model")
    print("   model:", ", ".join(f"{text!r} {probability:.1%}" for _, text, probability in sampled.candidates))
    if sampled.processors:
        drawn = [(text, probability) for _, text, probability in sampled.drawn_candidates if probability > 0]
        print(f"   after {', '.join(sampled.processors)}: {sampled.tokens_left:,} tokens left:",
              ", ".join(f"{text!r} {probability:.1%}" for text, probability in drawn))

# %% [markdown]
# From the second token on, the texts differ, so the logits differ too: each request goes its own way.

# %%
run.steps[1]

# %% [markdown]
# ## Change one knob
#
# A seed makes chance repeatable: the same seed gives the same tokens, whichever requests are in the batch. A penalty makes
# tokens less likely that the prompt or the output already has. Here request 0 is the earlier request 1 again, request 1 has
# another seed, and request 2 is greedy with a penalty.

# %%
# %%explain --as two
llm = LLM("tiny", max_model_len=128)
again = [params[1], SamplingParams(temperature=1.0, top_p=0.5, seed=2, **common),
         SamplingParams(temperature=0, repetition_penalty=1.3, **common)]
for output in llm.generate([prompt] * 3, again, use_tqdm=False):
    print(output.request_id, repr(output.outputs[0].text))

# %%
print("same text, top_k=3 and seed 1 twice:", run.requests[1].output == two.requests[0].output)
print("same text, top_p=0.5 and seeds 1, 2:", run.requests[2].output == two.requests[1].output)
print("same text, without and with a penalty:", run.requests[0].output == two.requests[2].output)

# %% [markdown]
# ## A grammar
#
# Structured output allows only tokens that fit. Before each step the grammar gives a mask; the logits of all other tokens
# become minus infinity. `tokens_left` is how many remain: often one, so that the model has no choice at all.

# %%
# %%explain --as form
llm = LLM("tiny", max_model_len=128)
schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}}, "required": ["city"],
          "additionalProperties": False}
grammar = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
answer = llm.generate("The capital of Italy is", SamplingParams(temperature=0, max_tokens=24, structured_outputs=grammar),
                      use_tqdm=False)
print(answer[0].outputs[0].text)

# %%
for step in form.steps:
    for sampled in step.sampled.values():
        print(f"step {step.number:2}: {sampled.text!r:10} of {sampled.tokens_left} allowed tokens")

# %% [markdown]
# ## Exercises
#
# 1. Which token did request 2 choose in step 1 of the first run, and was it the likeliest? Read it from
#    `run.steps[0].sampled["2"]`, then put its text here.

# %%
token = ...

run.predict("token", token, request=2, step=1)

# %% [markdown]
# 2. Why did the request with the grammar end? Put the finish reason here: `"stop"` or `"length"`.

# %%
reason = ...

form.predict("finish", reason, request=0)

# %% [markdown]
# ## What you can say now
#
# Each step gives every request a row of logits. Temperature and penalties change the logits, top_k, top_p and a grammar
# leave out tokens, and one of the others is drawn; at temperature 0 the likeliest one is taken. A seed belongs to its
# request, so its tokens do not depend on the batch. Next: [your own probe](08_your_own_probe.ipynb)
