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
# # 5. 连续批处理、token 预算、分块预填充与抢占
#
# 学完之后，你能说清调度器怎样组成一个 step：谁先运行，长提示词怎样切分，请求为什么等待，以及 KV 缓存用满时会发生什么。

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## 预测
#
# 一个 step 最多计算 `max_num_batched_tokens` 个 token，这就是 *token 预算*，这里是 16。运行中的请求优先：每个解码占用预算中的一个 token。
# 剩下的预算按到达顺序分给等待的请求。放不下的提示词分块计算（*分块预填充*，chunked prefill）。
#
# 请求 0 的提示词有 5 个 token，请求 1 有 25 个。第 2 步计算多少个 token，涉及多少个请求？

# %%
prompts = ["The capital of France is", "Count from one to twenty in words. " * 3, "The largest ocean is"]
params = [SamplingParams(temperature=0, max_tokens=length, ignore_eos=True) for length in (24, 16, 8)]

tokens_of_step_2 = 25  # 你的预测
requests_of_step_2 = 1  # 你的预测

# %% [markdown]
# ## 运行

# %%
# %%explain
llm = LLM("tiny", max_num_batched_tokens=16, max_num_seqs=3, max_model_len=96)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
run.predict("tokens", tokens_of_step_2, step=2)

# %%
run.predict("batch", requests_of_step_2, step=2)

# %% [markdown]
# ## 观察
#
# 最初的几个 step：只要还有提示词在等，预算就是满的。得到的 token 少于所需、或一个也没有得到的请求，都有一个原因。

# %%
for step in run.steps[:4]:
    print(f"第 {step.number} 步：{step.tokens} 个 token（预算 {step.budget}），预填充 {step.prefill} + 解码 {step.decode}，",
          f"各请求 {step.scheduled}")
    for request, reason in step.reasons.items():
        print(f"   请求 {request}：{reason}")

# %% [markdown]
# 所以解码从不等待长提示词：提示词的块填进其他请求解码的 step 里。每个请求的各个阶段，后面是 step 的编号：

# %%
for request in run.requests:
    print(request.id, " ".join(f"{stage.kind} {stage.first}-{stage.last}" for stage in request.timeline))

# %% [markdown]
# 请求可以在任何一个 step 加入或离开，批次每一步都重新组成。这就是 *连续批处理*。

# %%
run.requests

# %% [markdown]
# ## 改一个参数
#
# `run.whatif` 不运行模型，用记录下来的 token 重新调度同样的请求。预算为 64 时，所有提示词都放得进第 1 步。

# %%
print(run.whatif(max_num_batched_tokens=64))

# %% [markdown]
# 现在让 KV 缓存成为瓶颈：6 块，可用的有 5 块。两个请求最后各需要 4 块。会发生多少次抢占？

# %%
preemptions = 0  # 你的预测

# %%
# %%explain --as full
llm = LLM("tiny", num_gpu_blocks_override=6, max_num_batched_tokens=32, max_num_seqs=3, max_model_len=64)
both = [SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)] * 2
outputs = llm.generate([prompts[0], prompts[2]], both, use_tqdm=False)

# %%
full.predict("preemptions", preemptions)

# %% [markdown]
# 运行中的请求需要块而没有空闲块时，最后到达的请求被 *抢占*：它失去自己的块，回到等待队列的最前面。恢复时，它的 token 要重新计算，
# 仍在前缀缓存中的除外。

# %%
for step in full.steps:
    if step.preempted or step.resumed:
        print(f"第 {step.number} 步：被抢占 {step.preempted}，恢复 {step.resumed}，各请求 {step.scheduled}")
        print("   ", step.reasons, step.prefix_hits)

# %% [markdown]
# ## 练习
#
# 1. 在第一次运行中，请求 2 在得到第一批 token 之前，在队列里等待了多少个 step？

# %%
waited = ...

run.predict("waits", waited, request=2)

# %% [markdown]
# 2. 如果关闭分块预填充，预算设为 96，第一次运行需要多少个 step？（不分块时，比预算长的提示词永远无法运行，所以预算也要加大。）

# %%
steps_without_chunks = ...

variant = run.whatif(enable_chunked_prefill=False, max_num_batched_tokens=96)
if steps_without_chunks is ...:
    print("还没有预测。")
else:
    print(f"你的预测是 {steps_without_chunks}；实际需要 {len(variant.steps)} 个：第 1 步是 {variant.steps[0]}")

# %% [markdown]
# ## 现在你能说清
#
# 在每个 step 中，调度器先给每个运行中的请求安排下一个 token，再用提示词填满预算，整条或分块。请求等待的是三样东西之一：预算中的 token、
# 批次中的位置（`max_num_seqs`），或 KV 缓存块。块用尽时，最后到达的请求交出自己的块，以后再重新计算。
# 下一课：[跨越进程边界](06_process_boundary.ipynb)
