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
# # 4. 分页 KV 缓存与前缀缓存
#
# 学完之后，你能说清一个 token 的 K 和 V 存在哪里：哪个块、块内哪个偏移、哪个槽位；一个请求需要多少块，两个请求共享哪些块，
# 以及共享的块什么时候会丢失。

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## 预测
#
# 注意力需要之前所有 token 的 K 和 V。它们存放在缓存里，缓存被切成每块 16 个 token 的 *块*（block）。请求需要块时，从任意空闲处得到一块，
# 它的 *块表*（block table）按顺序列出这些块。
#
# 请求 0 的提示词有 30 个 token，再生成 20 个。它最后有多少个块？请求 1 的第一句话与它相同：请求 1 开始时，有多少个提示词 token 已经在缓存里？

# %%
rules = "You are a helpful assistant. You answer in one sentence. You never make up facts. "
prompts = [rules + "What is the capital of Spain?", rules + "What is the capital of Germany?"]
params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)

blocks = 2  # 你的预测
cached = 0  # 你的预测

# %% [markdown]
# ## 运行
#
# 请求一个接一个运行：`max_num_seqs=1`。缓存有 12 块，其中一块永远不用：块 0 是占位块（null block）。

# %%
# %%explain
llm = LLM("tiny", num_gpu_blocks_override=12, max_num_seqs=1, max_model_len=128)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
run.predict("blocks", blocks, request=0)

# %%
run.predict("cached", cached, request=1)

# %% [markdown]
# 最后采样的 token 不会再送进模型，所以请求 0 存有 K 和 V 的 token 比提示词与输出的总数少一个。
#
# ## 观察
#
# 第 1 步计算请求 0 的整个提示词，并为它分配块。每个 token 都有一个 *槽位*（slot）：块号乘以 16，再加上块内偏移。位置 17 在第二块的偏移 1 处。

# %%
first = run.steps[0]
print("块表：", first.kv_blocks["0"])
for position in (0, 15, 16, 17):
    print(f"位置 {position:2} -> 槽位 {first.slot_mapping['0'][position]}")

# %% [markdown]
# 写满的块得到一个哈希，由它的 token 和前一块的哈希算出。所以只有前面的全部内容都相同，才能找到这个块。请求 0 结束后，它的块空闲了，
# 但内容会保留，直到有人需要这些块。请求 1 开头的 16 个 token 与它相同，直接使用第一块。

# %%
joined = run.requests[1].steps[0]
print("请求 1 加入的 step：", joined.number, "块：", joined.kv_blocks["1"])
print("缓存命中：", joined.prefix_hits)
print("计算的位置：", joined.positions["1"])

# %% [markdown]
# 块图上可以看到：请求 0 的块已经空闲，内容仍在缓存中；第一块又归请求 1 使用。

# %%
joined

# %% [markdown]
# 两个提示词相同的部分不止 16 个 token，但只有 token 全部相同的满块才能共享。第二块里有国家的名字，所以是另一个块。

# %%
alike = 0
for one, other in zip(run.requests[0].prompt_token_ids, run.requests[1].prompt_token_ids):
    if one != other:
        break
    alike += 1
print(f"两个提示词开头有 {alike} 个相同的 token：{alike // 16} 个满块，另有 {alike % 16} 个 token")

# %% [markdown]
# ## 改一个参数
#
# 还是这两个提示词，中间插入另一个，输出更长，缓存只有 5 块，其中 4 块可用。每个请求最后都需要全部四块。
# 最后一个请求开始时，第一块的内容还在吗？

# %%
# %%explain --as small
llm = LLM("tiny", num_gpu_blocks_override=5, max_num_seqs=1, max_model_len=64)
long = SamplingParams(temperature=0, max_tokens=34, ignore_eos=True)
outputs = llm.generate([prompts[0], "Count from one to twenty in words. " * 3, prompts[1]], long, use_tqdm=False)

# %%
for request in small.requests:
    print(request.id, "块：", request.blocks, "缓存命中的 token：", request.num_cached_tokens)
for step in small.steps:
    if step.new_blocks:
        print(f"第 {step.number:2} 步：新块 {step.new_blocks}，空闲 {step.free_blocks}，有缓存的块 {step.cached_blocks}")

# %% [markdown]
# 空闲块从队列头部取用：空闲时间最长的块先分配，它缓存的内容随之丢失（*驱逐*，evicted）。请求按相反的顺序归还块，所以最后一块
# （别人最不可能共享的）比第一块先被驱逐。这里，中间的请求占用了所有的块，所以最后一个请求什么也找不到。

# %% [markdown]
# ## 练习
#
# 1. 在第一次运行的第 25 步，请求 1 最新的 token 写入哪个槽位？用它的位置、块表和块大小来算：
#    `run.steps.number(25).positions["1"]`、`.kv_blocks["1"]`。
#    `run.steps.number(25).positions["1"]`、`.kv_blocks["1"]`。

# %%
slot = ...

run.predict("slot", slot, step=25, request=1)

# %% [markdown]
# 2. 如果请求 1 问的问题与请求 0 完全相同，它能在缓存中找到多少个提示词 token？先预测，再运行，并解释为什么不是整个提示词。

# %%
cached_if_equal = ...

# %%
# %%explain --as equal
llm = LLM("tiny", num_gpu_blocks_override=12, max_num_seqs=1, max_model_len=128)
outputs = llm.generate([prompts[0]] * 2, params, use_tqdm=False)

# %%
equal.predict("cached", cached_if_equal, request=1)

# %% [markdown]
# ## 现在你能说清
#
# KV 缓存是由 16 个 token 的块组成的池；请求的块表把位置映射到槽位，每计算 16 个 token 就需要一块。满块可以通过到块尾为止全部 token 的哈希找到，
# 所以开头相同的提示词可以共享它们，而提示词的最后一个 token 总要计算。空闲块会保留内容，直到其他请求需要它。
# 下一课：[连续批处理](05_continuous_batching.ipynb)
