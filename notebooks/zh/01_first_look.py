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
# # 1. 初识引擎
#
# 学完之后，你能说清引擎如何处理三个提示词：要用多少个 *step*，什么是 *预填充*（prefill），什么是 *解码*（decode），时间花在了哪里。
# 大约十分钟，不需要下载：模型 `tiny` 随软件包提供。

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## 预测
#
# 三个提示词一起处理，每个最多生成 8 个 token。引擎按 step 工作：在每个 step 中，模型为批次里的所有请求运行一次。一共需要多少个 step？

# %%
prompts = ["Hello, my name is", "The capital of France is", "The largest ocean is"]
params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

steps = 24  # 你的预测：3 个提示词，每个 8 个 token

# %% [markdown]
# ## 运行
#
# `%%explain` 记录这个单元格：运行期间引擎的方法被包装，结束后恢复原样。结果显示在单元格下方，`run` 就是记录下来的这次运行。

# %%
# %%explain
llm = LLM("tiny")
for output in llm.generate(prompts, params, use_tqdm=False):
    print(output.prompt, "->", output.outputs[0].text)

# %%
run.predict("steps", steps)

# %% [markdown]
# ## 观察
#
# 每行是一个 step，或多个相同的 step。第一个 step 一次算完所有提示词的全部 token，这就是 *预填充*，每个请求最后一个位置给出它的第一个
# 输出 token。之后的每个 step 只为每个请求计算一个 token，也就是最新的那个：这就是 *解码*。

# %%
print(run.steps)

# %% [markdown]
# 一个 step 可以直接显示：token 预算、运行和等待的请求，以及画成块图的 KV 缓存。

# %%
run.steps[0]

# %% [markdown]
# 请求也可以直接显示：时间、阶段和 token。第一个 token 来自预填充。

# %%
run.requests[1]

# %% [markdown]
# 一个解码 step 的时间，按部分列出。前向计算（forward）就是模型本身。

# %%
for part, milliseconds in run.steps[4].parts_ms.items():
    print(f"{part:10} {milliseconds:6.2f} ms")

# %% [markdown]
# ## 改一个参数
#
# 还是这三个提示词，但最多同时运行两个请求。第三个会怎样？

# %%
# %%explain --as two
llm = LLM("tiny", max_num_seqs=2)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
two.steps[0].reasons

# %%
print(f"全部同时运行：{len(run.steps)} 个 step；最多两个：{len(two.steps)} 个 step")
two.requests[2].timeline

# %% [markdown]
# 第三个请求要等前两个结束，所以 step 数翻倍。每个 step 的批次变小了，而模型在每个 step 中仍要读取全部权重。

# %% [markdown]
# ## 练习
#
# 1. 在第一次运行中，第 1 步计算了多少个 token？数一数三个提示词的 token：`run.requests[0].num_prompt_tokens`，依此类推。
#    把总和填在 `...` 处。

# %%
tokens_of_step_1 = ...

run.predict("tokens", tokens_of_step_1, step=1)

# %% [markdown]
# 2. 在第二次运行中，请求 2 等待了多少个 step？想一想，在它加入之前，其他请求要完成什么。

# %%
steps_of_waiting = ...

two.predict("waits", steps_of_waiting, request=2)

# %% [markdown]
# ## 现在你能说清
#
# 引擎先在预填充中算完批次里的所有提示词，然后每个 step 为每个请求计算一个 token。三个请求各生成 8 个 token，只要大约 8 个 step，
# 而不是 24 个，因为它们共用模型的每次运行。放不下的请求会等待，调度器给出原因。下一课：[我用的是哪个客户端？](02_clients.ipynb)
