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
# # 6. Across the process boundary
#
# Afterwards you can follow a request from `AsyncLLM.generate` through sockets, threads and queues into the engine core and
# back, name the messages, and say what happens to a request whose caller leaves.

# %%
import asyncio

import tracellm
from tracellm import AsyncLLM, SamplingParams

# %% [markdown]
# ## Predict
#
# Three callers ask at the same time. `alice` and `bob` read all of their 32 tokens; `carol` stops reading after the fourth.
# How many processes does the run have? And what is the finish reason of carol's request?

# %%
async def ask(engine, name, prompt, leave_after=None):
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    seen = 0
    async for output in engine.generate(prompt, params, request_id=name):
        seen += 1
        if seen == leave_after:
            break
    return name, seen


processes = 1  # your prediction
reason = "length"  # your prediction

# %% [markdown]
# ## Run
#
# A notebook's cell may `await`. `%%explain` cannot, so the block is recorded with `tracellm.explain`.

# %%
import tempfile

with tracellm.explain(tempfile.mkdtemp(prefix="tracellm-")) as run:
    engine = AsyncLLM(model="tiny", max_model_len=128)
    callers = [ask(engine, "alice", "The capital of France is"), ask(engine, "bob", "The largest ocean is"),
               ask(engine, "carol", "Count from one to ten.", leave_after=4)]
    print(await asyncio.gather(*callers))
    engine.shutdown()

# %%
run.predict("processes", processes)

# %%
run.predict("finish", reason, request="carol")

# %% [markdown]
# ## Look
#
# The front end has the event loop with the callers, and a task that reads outputs. The engine core has the busy loop with
# the steps, and a thread for each direction: sockets are never read in the loop itself.

# %%
run.processes

# %% [markdown]
# The messages of one trace, counted by type and direction. A message was sent in one process and received in another.

# %%
from collections import Counter

ways = Counter()
for message in run.trace.messages:
    receiver = message.receive.process.name if message.receive else "nobody"
    ways[message.send.attributes["tracellm.message.type"], message.send.process.name, receiver] += 1
for (kind, sender, receiver), number in ways.items():
    print(f"{number:3} {kind:8} {sender:12} -> {receiver}")

# %% [markdown]
# A request crosses as ADD: token ids and sampling parameters. Its tokens come back as OUTPUTS, one message for each
# step, with the new tokens of all its requests; the last one may find the front end already stopped. When carol's
# caller leaves, `AsyncLLM.abort` sends ABORT, and the engine core frees her blocks before its next step.

# %%
for request in run.requests:
    print(request.id, request.finish_reason, "delivered:", request.num_output_tokens, "sampled:", len(request.tokens))

# %% [markdown]
# More tokens may have been sampled for carol than she got: the engine core goes on until it has read the ABORT. The step
# that leaves her out:

# %%
next(step for step in run.steps if step.number > run.requests["carol"].tokens[-1].step)

# %% [markdown]
# The same as a sequence diagram: ADD, OUTPUTS and ABORT are the arrows from box to box. Steps that are alike are drawn once.

# %%
run.sequence()

# %% [markdown]
# ## Change one knob
#
# One caller alone. Each step's outputs cross the boundary by themselves: how much of a token's time is spent in the engine
# core, and how much outside?

# %%
with tracellm.explain(tempfile.mkdtemp(prefix="tracellm-")) as alone:
    engine = AsyncLLM(model="tiny", max_model_len=128)
    print(await ask(engine, "alice", "The capital of France is"))
    engine.shutdown()

# %%
steps = [step.duration_ms for step in alone.steps if step.tokens]
alice = alone.requests["alice"]
whole = alice.first_token_ms + alice.decode_ms
print(f"{len(steps)} steps took {sum(steps):.1f} ms of the {whole:.1f} ms from submission to the last token")

# %% [markdown]
# ## Exercises
#
# 1. How many ADD messages were sent in the first run?

# %%
adds = ...

sent = sum(message.send.attributes["tracellm.message.type"] == "ADD" for message in run.trace.messages)
print("No answer yet." if adds is ... else f"You said {adds}; {sent} were sent, one for each request.")

# %% [markdown]
# 2. For how many of the three requests is the finish reason `length`?

# %%
finished = ...

ended = [request.id for request in run.requests if request.finish_reason == "length"]
print("No answer yet." if finished is ... else f"You said {finished}; {len(ended)} ended so: {', '.join(ended)}.")

# %% [markdown]
# ## What you can say now
#
# `AsyncLLM` keeps callers and engine core apart: requests go as ADD through a ROUTER and a DEALER socket into the input
# queue of the engine core, outputs return through a PUSH and a PULL socket to one task that gives each caller its tokens. A
# caller that leaves causes ABORT. One trace holds both processes, since each message carries the context of its sender.
# Next: [sampling](07_sampling.ipynb)
