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
# # 3. 显微镜下的一个 step
#
# 学完之后，你能从调度器的决定一直跟到新的 token：哪些 token id 进入模型，位于哪些位置，K 和 V 写入哪些槽位，logits 怎样变成一个 token。

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## 预测
#
# 有两个请求。请求 0 的提示词有 5 个 token，请求 1 有 21 个。KV 缓存的一块存放 16 个 token。块从 1 号开始依次分配，
# 每个请求用自己的块。在第 3 步，两个请求都在解码。
# 请求 1 此时计算的是哪个位置，它的 K 和 V 写入哪个槽位？

# %%
prompts = ["The capital of France is", "one two three four five six seven eight nine ten " * 2]
params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

slot_of_request_1 = 22  # 你的预测

# %% [markdown]
# ## 运行

# %%
# %%explain
llm = LLM("tiny", num_gpu_blocks_override=16, max_model_len=64)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
run.predict("slot", slot_of_request_1, request=1, step=3)

# %% [markdown]
# ## 观察：调度器的决定
#
# 第 3 步是解码：每个请求一个 token。送进模型计算的是第 2 步采样出来的 token；这一步采样的 token 要到下一步才送进模型。

# %%
step = run.steps.number(3)
print(step)
print("token 数：", step.scheduled)
print("位置：", step.positions)

# %% [markdown]
# ## 观察：批次
#
# model runner 把所有请求摊平成一行 token。`query_start_loc` 是每个请求在这一行中的起点，`seq_lens` 是每个请求的 token 数，
# 块表指出它之前的 K 和 V 在哪里。

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
# 槽位等于位置所在的块号乘以 16，再加上块内偏移。

# %%
for row, request in enumerate(batch.requests):
    position = batch.positions[row]
    block, offset = batch.block_table[row][position // 16], position % 16
    print(f"请求 {request}：位置 {position} 在块 {block} 的偏移 {offset} 处：槽位 {block * 16 + offset}")
    assert block * 16 + offset == batch.slot_mapping[row]

# %% [markdown]
# ## 观察：从 logits 到 token
#
# 模型为每个请求返回一行 logits。温度为 0，所以取最可能的 token。

# %%
for request, sampled in step.sampled.items():
    likeliest = ", ".join(f"{text!r} {probability:.1%}" for _, text, probability in sampled.candidates)
    print(f"请求 {request}：{sampled.text!r}；最可能的：{likeliest}")
print("到此为止的文本：", step.outputs)

# %% [markdown]
# 整个 step 的画面，以及它由哪些调用组成。

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
# ## 改一个参数
#
# 第 1 步是预填充：一次计算 26 个 token，比解码 step 花的时间长。比较各个部分。

# %%
print(f"{'':10} {'prefill':>9} {'decode':>9}")
for part, milliseconds in run.steps[0].parts_ms.items():
    print(f"{part:10} {milliseconds:6.2f} ms {step.parts_ms.get(part, 0):6.2f} ms")

# %% [markdown]
# 如果每块 32 个 token，同样的位置就有不同的槽位。

# %%
# %%explain --as large
llm = LLM("tiny", num_gpu_blocks_override=16, max_model_len=64, block_size=32)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
print("每块 16 个：", step.batch.block_table, step.slot_mapping)
print("每块 32 个：", large.steps.number(3).batch.block_table, large.steps.number(3).slot_mapping)

# %% [markdown]
# ## 练习
#
# 1. 在第一次运行的第 4 步，请求 0 写入哪个槽位？

# %%
slot = ...

run.predict("slot", slot, request=0, step=4)

# %% [markdown]
# 2. 请求 1 在第 5 步得到哪个 token？先看到此为止的文本：`run.steps.number(4).outputs["1"]`。

# %%
token = ...

run.predict("token", token, request=1, step=5)

# %% [markdown]
# ## 现在你能说清
#
# 一个 step 把所有请求中被调度的 token 摊平成一个批次：id、位置和槽位，每个 token 各一项。注意力 kernel 通过块表找到每个请求之前的 K 和 V。
# 请求最后一个位置的那行 logits 给出它的下一个 token，也就是下一个 step 的输入。下一课：[分页 KV 缓存](04_paged_kv_cache.ipynb)
