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
# # 5. Continuous batching, the token budget, chunked prefill and preemption
#
# Afterwards you can say how the scheduler composes a step: who runs first, how a long prompt is cut, why a request waits,
# and what happens when the KV cache is full.

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## Predict
#
# A step computes at most `max_num_batched_tokens` tokens: the *token budget*, here 16. Running requests come first; each
# decode takes one token of the budget. What is left goes to waiting requests, in order of arrival. A prompt that does not
# fit is computed in chunks (*chunked prefill*).
#
# Request 0 has a prompt of 5 tokens, request 1 one of 25. How many tokens does step 2 compute, and of how many requests?

# %%
prompts = ["The capital of France is", "Count from one to twenty in words. " * 3, "The largest ocean is"]
params = [SamplingParams(temperature=0, max_tokens=length, ignore_eos=True) for length in (24, 16, 8)]

tokens_of_step_2 = 25  # your prediction
requests_of_step_2 = 1  # your prediction

# %% [markdown]
# ## Run

# %%
# %%explain
llm = LLM("tiny", max_num_batched_tokens=16, max_num_seqs=3, max_model_len=96)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
run.predict("tokens", tokens_of_step_2, step=2)

# %%
run.predict("batch", requests_of_step_2, step=2)

# %% [markdown]
# ## Look
#
# The first steps: the budget is full as long as prompts wait. A request that got fewer tokens than it needed, or none, has
# a reason.

# %%
for step in run.steps[:4]:
    print(f"step {step.number}: {step.tokens} of {step.budget} tokens, {step.prefill} prefill + {step.decode} decode,",
          f"scheduled {step.scheduled}")
    for request, reason in step.reasons.items():
        print(f"   request {request}: {reason}")

# %% [markdown]
# So a decode never waits for a long prompt: chunks of the prompt fill the steps in which others decode. Each request's
# stages, with the numbers of their steps:

# %%
for request in run.requests:
    print(request.id, " ".join(f"{stage.kind} {stage.first}-{stage.last}" for stage in request.timeline))

# %% [markdown]
# Requests join and leave in any step; the batch is put together anew each time. That is *continuous batching*.

# %%
run.requests

# %% [markdown]
# ## Change one knob
#
# `run.whatif` schedules the same requests again, without the model: the recorded tokens are replayed. With a budget of 64
# all prompts fit into step 1.

# %%
print(run.whatif(max_num_batched_tokens=64))

# %% [markdown]
# Now the KV cache is the limit: 6 blocks, of which 5 can be used. Each of two requests needs 4 in the end. How many
# preemptions will there be?

# %%
preemptions = 0  # your prediction

# %%
# %%explain --as full
llm = LLM("tiny", num_gpu_blocks_override=6, max_num_batched_tokens=32, max_num_seqs=3, max_model_len=64)
both = [SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)] * 2
outputs = llm.generate([prompts[0], prompts[2]], both, use_tqdm=False)

# %%
full.predict("preemptions", preemptions)

# %% [markdown]
# When a running request needs a block and none is free, the request that arrived last is *preempted*: it loses its blocks
# and goes back to the front of the waiting queue. When it resumes, its tokens are computed again, except those that are
# still in the prefix cache.

# %%
for step in full.steps:
    if step.preempted or step.resumed:
        print(f"step {step.number}: preempted {step.preempted}, resumed {step.resumed}, scheduled {step.scheduled}")
        print("   ", step.reasons, step.prefix_hits)

# %% [markdown]
# ## Exercises
#
# 1. In the first run, for how many steps did request 2 wait in the queue before it got its first tokens?

# %%
waited = ...

run.predict("waits", waited, request=2)

# %% [markdown]
# 2. How many steps does the first run need without chunked prefill, and with a budget of 96? (Without chunks, a prompt
#    longer than the budget could never run, so the budget must grow too.)

# %%
steps_without_chunks = ...

variant = run.whatif(enable_chunked_prefill=False, max_num_batched_tokens=96)
if steps_without_chunks is ...:
    print("No prediction yet.")
else:
    print(f"You said {steps_without_chunks}; it takes {len(variant.steps)}: step 1 is {variant.steps[0]}")

# %% [markdown]
# ## What you can say now
#
# In each step the scheduler first gives every running request its next token, then fills the budget with prompts, whole or
# in chunks. A request waits for one of three things: tokens of the budget, a place in the batch (`max_num_seqs`), or KV
# cache blocks. If blocks run out, the request that came last gives up its own and computes them again later.
# Next: [across the process boundary](06_process_boundary.ipynb)
