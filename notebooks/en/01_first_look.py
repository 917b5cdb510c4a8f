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
# # 1. A first look
#
# Afterwards you can say what an engine does with three prompts: how many *steps* it takes, what a *prefill* and a
# *decode* are, and where the time goes. Ten minutes, no download: the model, `tiny`, comes with the package.

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## Predict
#
# Three prompts are served together. Each may get up to 8 tokens. An engine works in steps: in each, the model runs once,
# for all requests of the batch. How many steps will it take?

# %%
prompts = ["Hello, my name is", "The capital of France is", "The largest ocean is"]
params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

steps = 24  # your prediction: 3 prompts with 8 tokens each

# %% [markdown]
# ## Run
#
# `%%explain` records the cell: the engine's methods are wrapped while it runs, and put back afterwards. The answer appears
# below the cell, and `run` is the recorded run.

# %%
# %%explain
llm = LLM("tiny")
for output in llm.generate(prompts, params, use_tqdm=False):
    print(output.prompt, "->", output.outputs[0].text)

# %%
run.predict("steps", steps)

# %% [markdown]
# ## Look
#
# One line for each step, or for several alike. The first step computes all tokens of all prompts at once: that is a
# *prefill*, and its last position gives each request its first token. Each later step computes one token for every
# request, the newest one: a *decode*.

# %%
print(run.steps)

# %% [markdown]
# A step shows itself: its token budget, who runs and who waits, and the KV cache as a map of blocks.

# %%
run.steps[0]

# %% [markdown]
# A request shows itself too: its times, its stages and its tokens. The first token comes from the prefill.

# %%
run.requests[1]

# %% [markdown]
# The time of a decode step, part by part. The forward pass is the model itself.

# %%
for part, milliseconds in run.steps[4].parts_ms.items():
    print(f"{part:10} {milliseconds:6.2f} ms")

# %% [markdown]
# ## Change one knob
#
# The same three prompts, but at most two requests at a time. What becomes of the third one?

# %%
# %%explain --as two
llm = LLM("tiny", max_num_seqs=2)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
two.steps[0].reasons

# %%
print(f"{len(run.steps)} steps with room for all, {len(two.steps)} with room for two")
two.requests[2].timeline

# %% [markdown]
# The third request waits until the first two have ended, so the run takes twice as many steps. Each of its steps has a
# smaller batch, though the model reads all of its weights in every step.

# %% [markdown]
# ## Exercises
#
# 1. In the first run, how many tokens did step 1 compute? Count the tokens of the three prompts:
#    `run.requests[0].num_prompt_tokens`, and so on. Put the sum in place of `...`.

# %%
tokens_of_step_1 = ...

run.predict("tokens", tokens_of_step_1, step=1)

# %% [markdown]
# 2. In the second run, for how many steps did request 2 wait? Think of what the others had to do before it could join.

# %%
steps_of_waiting = ...

two.predict("waits", steps_of_waiting, request=2)

# %% [markdown]
# ## What you can say now
#
# An engine computes all prompts of a batch in a prefill, then one token per request and step. Three prompts of 8 tokens
# each take about 8 steps, not 24, because they share each run of the model. A request that does not fit waits, and the
# scheduler has a reason for it. Next: [which client am I using?](02_clients.ipynb)
