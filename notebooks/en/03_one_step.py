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
# # 3. One step under the microscope
#
# Afterwards you can follow one decode step from the scheduler's decision to the new token: which token ids go into the
# model, at which positions, into which slots their keys and values are written, and how the logits become a token.

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## Predict
#
# Two requests run. Request 0 has a prompt of 5 tokens, request 1 one of 21. A block of the KV cache holds 16 tokens.
# Blocks are given out in order, from block 1 on, and each request has blocks of its own. In step 3 both decode. Which
# position does request 1 compute then, and in which slot are its keys and values written?

# %%
prompts = ["The capital of France is", "one two three four five six seven eight nine ten " * 2]
params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

slot_of_request_1 = 22  # your prediction

# %% [markdown]
# ## Run

# %%
# %%explain
llm = LLM("tiny", num_gpu_blocks_override=16, max_model_len=64)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
run.predict("slot", slot_of_request_1, request=1, step=3)

# %% [markdown]
# ## Look: the scheduler's decision
#
# Step 3 is a decode: one token for each request. The token that goes through the model is the one that step 2 sampled;
# the token that this step samples goes through it in the next one.

# %%
step = run.steps.number(3)
print(step)
print("tokens:", step.scheduled)
print("positions:", step.positions)

# %% [markdown]
# ## Look: the batch
#
# The model runner flattens all requests into one row of tokens. `query_start_loc` says where each request begins in that
# row, `seq_lens` how many tokens each request has, and the block table where its earlier keys and values are.

# %%
batch = step.batch
print("requests:       ", batch.requests)
print("input_ids:      ", batch.input_ids)
print("positions:      ", batch.positions)
print("query_start_loc:", batch.query_start_loc)
print("seq_lens:       ", batch.seq_lens)
print("block_table:    ", batch.block_table)
print("slot_mapping:   ", batch.slot_mapping)

# %% [markdown]
# A slot is the block of the position times 16, plus the offset in the block.

# %%
for row, request in enumerate(batch.requests):
    position = batch.positions[row]
    block, offset = batch.block_table[row][position // 16], position % 16
    print(f"request {request}: position {position} is in block {block}, offset {offset}: slot {block * 16 + offset}")
    assert block * 16 + offset == batch.slot_mapping[row]

# %% [markdown]
# ## Look: from logits to the token
#
# The model returns one row of logits for each request. The likeliest token is chosen, since the temperature is 0.

# %%
for request, sampled in step.sampled.items():
    likeliest = ", ".join(f"{text!r} {probability:.1%}" for _, text, probability in sampled.candidates)
    print(f"request {request}: {sampled.text!r}; likeliest: {likeliest}")
print("text so far:", step.outputs)

# %% [markdown]
# The whole step as one picture, and the calls that it consists of.

# %%
step

# %%
def show(span, depth=0):
    print(f"{'  ' * depth}{span.name} {span.duration_ns / 1e6:.2f} ms")
    if depth < 2:
        for call in run.trace.children(span):
            show(call, depth + 1)


show(run.trace.by_id[step.span_id])

# %% [markdown]
# ## Change one knob
#
# Step 1 is a prefill: it computes 26 tokens at once, and takes longer than a decode step. Compare the parts.

# %%
print(f"{'':10} {'prefill':>9} {'decode':>9}")
for part, milliseconds in run.steps[0].parts_ms.items():
    print(f"{part:10} {milliseconds:6.2f} ms {step.parts_ms.get(part, 0):6.2f} ms")

# %% [markdown]
# With blocks of 32 tokens, the same positions have other slots.

# %%
# %%explain --as large
llm = LLM("tiny", num_gpu_blocks_override=16, max_model_len=64, block_size=32)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
print("blocks of 16:", step.batch.block_table, step.slot_mapping)
print("blocks of 32:", large.steps.number(3).batch.block_table, large.steps.number(3).slot_mapping)

# %% [markdown]
# ## Exercises
#
# 1. Which slot does request 0 write in step 4 of the first run?

# %%
slot = ...

run.predict("slot", slot, request=0, step=4)

# %% [markdown]
# 2. Which token does request 1 get in step 5? Read the text so far: `run.steps.number(4).outputs["1"]`.

# %%
token = ...

run.predict("token", token, request=1, step=5)

# %% [markdown]
# ## What you can say now
#
# A step flattens the scheduled tokens of all requests into one batch: ids, positions and slots, one entry for each token.
# The attention kernel finds each request's earlier keys and values by its block table. The row of logits at a request's
# last position gives its next token, the input of the next step. Next: [the paged KV cache](04_paged_kv_cache.ipynb)
