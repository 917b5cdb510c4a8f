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
# # 4. The paged KV cache and prefix caching
#
# Afterwards you can say where the keys and values of a token are stored: in which block, at which offset, in which slot.
# You can say how many blocks a request needs, which blocks two requests share, and when a shared block is lost.

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## Predict
#
# Attention needs the keys and values of all earlier tokens. They are kept in a cache that is cut into *blocks* of 16
# tokens. A request gets a block when it needs one, wherever one is free, and its *block table* lists them in order.
#
# Request 0 has a prompt of 30 tokens and generates 20. How many blocks does it have in the end? Request 1 has the same
# first sentence: how many of its prompt tokens are already in the cache when it starts?

# %%
rules = "You are a helpful assistant. You answer in one sentence. You never make up facts. "
prompts = [rules + "What is the capital of Spain?", rules + "What is the capital of Germany?"]
params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)

blocks = 2  # your prediction
cached = 0  # your prediction

# %% [markdown]
# ## Run
#
# The requests run one after the other: `max_num_seqs=1`. The cache has 12 blocks, and one of them is never used: block 0,
# the null block, is a placeholder.

# %%
# %%explain
llm = LLM("tiny", num_gpu_blocks_override=12, max_num_seqs=1, max_model_len=128)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
run.predict("blocks", blocks, request=0)

# %%
run.predict("cached", cached, request=1)

# %% [markdown]
# The last sampled token never goes through the model, so request 0 has keys and values for one token fewer than prompt
# and output together.
#
# ## Look
#
# Step 1 computes the whole prompt of request 0, and allocates blocks for it. Each token has a *slot*: its block times 16,
# plus its offset in the block. Position 17 is at offset 1 of the second block.

# %%
first = run.steps[0]
print("block table:", first.kv_blocks["0"])
for position in (0, 15, 16, 17):
    print(f"position {position:2} -> slot {first.slot_mapping['0'][position]}")

# %% [markdown]
# A block that is full gets a hash of its tokens and of the hash of the block before it. So a block can be found only by
# a request whose tokens are the same from the beginning to the end of the block. When request 0 ends, its blocks are
# free, but their contents stay until a block is needed. Request 1 begins with the same 16 tokens and takes the first
# block as it is.

# %%
joined = run.requests[1].steps[0]
print("request 1 joins in step", joined.number, "with blocks", joined.kv_blocks["1"])
print("found in the cache:", joined.prefix_hits)
print("computed positions:", joined.positions["1"])

# %% [markdown]
# The map shows it: the blocks of request 0 are free with their content cached, and request 1 has the first of them again.

# %%
joined

# %% [markdown]
# Both prompts are alike for more than 16 tokens, but only full blocks of equal tokens are shared. The second block
# has the name of the country in it, so it is another one.

# %%
alike = 0
for one, other in zip(run.requests[0].prompt_token_ids, run.requests[1].prompt_token_ids):
    if one != other:
        break
    alike += 1
print(f"the prompts have {alike} equal tokens at the beginning: {alike // 16} full block, {alike % 16} tokens more")

# %% [markdown]
# ## Change one knob
#
# The same two prompts with another one between them, longer outputs, and a cache of 5 blocks, of which 4 can be used. Each
# request needs all four in the end. What is left of the first block when the last request starts?

# %%
# %%explain --as small
llm = LLM("tiny", num_gpu_blocks_override=5, max_num_seqs=1, max_model_len=64)
long = SamplingParams(temperature=0, max_tokens=34, ignore_eos=True)
outputs = llm.generate([prompts[0], "Count from one to twenty in words. " * 3, prompts[1]], long, use_tqdm=False)

# %%
for request in small.requests:
    print(request.id, "blocks:", request.blocks, "cached tokens:", request.num_cached_tokens)
for step in small.steps:
    if step.new_blocks:
        print(f"step {step.number:2}: new blocks {step.new_blocks}, free {step.free_blocks}, cached {step.cached_blocks}")

# %% [markdown]
# Free blocks are taken from the front of a queue: the block that has been free for the longest time is used first, and
# its cached content is lost (*evicted*). A request gives its blocks back in reverse order, so its last block, which
# others are least likely to share, is evicted before its first. Here the request between the two took all blocks, so
# the last one finds nothing.

# %% [markdown]
# ## Exercises
#
# 1. In the first run, in which slot is the newest token of request 1 written in step 25? Take its position, its block
#    table and the block size: `run.steps.number(25).positions["1"]`, `.kv_blocks["1"]`.

# %%
slot = ...

run.predict("slot", slot, step=25, request=1)

# %% [markdown]
# 2. How many prompt tokens would request 1 find in the cache if it asked the very same question as request 0? Predict,
#    run the cell, and explain why it is not the whole prompt.

# %%
cached_if_equal = ...

# %%
# %%explain --as equal
llm = LLM("tiny", num_gpu_blocks_override=12, max_num_seqs=1, max_model_len=128)
outputs = llm.generate([prompts[0]] * 2, params, use_tqdm=False)

# %%
equal.predict("cached", cached_if_equal, request=1)

# %% [markdown]
# ## What you can say now
#
# The KV cache is a pool of blocks of 16 tokens; a request's block table maps its positions to slots, and it needs a block
# for every 16 computed tokens. Full blocks are found again by the hash of all tokens up to their end, so prompts that begin
# alike share them, and the last token of a prompt is always computed. A free block keeps its content until another
# request needs the block. Next: [continuous batching](05_continuous_batching.ipynb)
