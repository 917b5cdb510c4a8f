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
# # 2. Which client am I using, and what would another cost?
#
# Afterwards you can name the three clients of the engine core, the two settings that choose between them, and what it
# costs to run the engine core in a process of its own.

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## Predict
#
# An `LLM` talks to the engine core through a *client*. `InprocClient` calls the engine core as an object of the same
# process. `SyncMPClient` and `AsyncMPClient` start a process for it and send messages over sockets; the asynchronous one
# belongs to `AsyncLLM`, and so to the server. Which one does `LLM("tiny")` use here, and how many processes are there?

# %%
prompts = ["Hello, my name is", "The capital of France is", "The largest ocean is"]
params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)

client = "SyncMPClient"  # your prediction
processes = 2  # your prediction

# %% [markdown]
# ## Run

# %%
# %%explain --as inproc
llm = LLM("tiny", max_model_len=128)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
inproc.predict("client", client)

# %%
inproc.predict("processes", processes)

# %% [markdown]
# ## Look
#
# Two settings decide, as in vLLM's `EngineCoreClient.make_client`: `multiprocess_mode` and `asyncio_mode`. An `LLM` is
# never asynchronous. Its `multiprocess_mode` comes from the argument, or else from the environment variable
# `VLLM_ENABLE_V1_MULTIPROCESSING`; without both, tracellm stays in one process, where vLLM starts a second one.

# %%
inproc.client

# %% [markdown]
# The calls from the client down to a step: in one process, `get_output` *is* the step.

# %%
inproc.sequence(focus="InprocClient")

# %% [markdown]
# ## Change one knob
#
# The same work with the engine core in a process of its own.

# %%
# %%explain --as sync
llm = LLM("tiny", multiprocess_mode=True, max_model_len=128)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
sync.predict("client", "SyncMPClient")

# %%
for process in sync.processes:
    print(process.name, "steps:", process.steps, "threads:", ", ".join(process.threads))

# %% [markdown]
# Now `get_output` waits for a message. Requests cross the boundary as ADD messages, tokens come back as OUTPUTS, one
# message for each step.

# %%
sync.sequence(focus="SyncMPClient")

# %% [markdown]
# What does the boundary cost? Each step's time in the engine core is about the same in both runs; a request's time
# also includes the transport. In return, the front end's work (text to tokens, tokens to text) no longer holds up
# the engine core's loop.

# %%
from statistics import median

for name, one in (("InprocClient", inproc), ("SyncMPClient", sync)):
    step = median(step.duration_ms for step in one.steps if step.kind == "decode")
    request = one.requests[0]
    print(f"{name}: median decode step {step:.2f} ms, first token after {request.first_token_ms:.1f} ms")

del llm  # ends the engine core's process

# %% [markdown]
# ## Exercises
#
# 1. How many steps did the engine core run with `SyncMPClient`? It may be more than 16: the requests cross the boundary
#    one after the other, and the engine core does not wait for the last one.

# %%
steps = ...

sync.predict("steps", steps)

# %% [markdown]
# 2. Which client does `AsyncLLM` use? Put the class name here; the cell makes one and compares.

# %%
name_of_the_client = ...

# %%
# %%explain --as served
from tracellm import AsyncLLM

engine = AsyncLLM(model="tiny", max_model_len=128)
engine.shutdown()

# %%
served.predict("client", name_of_the_client)

# %% [markdown]
# ## What you can say now
#
# Every engine has one client: `InprocClient` in one process, `SyncMPClient` for an `LLM` with a process for its engine
# core, `AsyncMPClient` for `AsyncLLM` and the server. `multiprocess_mode` and `asyncio_mode` choose. A second process costs
# start-up time, one message for each request and one for each step, and frees the engine core from the front end's work.
# Next: [one step under the microscope](03_one_step.ipynb)
