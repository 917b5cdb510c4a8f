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
# # 2. 我用的是哪个客户端？换一个要付出什么？
#
# 学完之后，你能说出引擎核心的三种客户端、决定选哪一种的两个设置，以及让引擎核心在单独的进程中运行的代价。

# %%
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## 预测
#
# `LLM` 通过 *客户端*（client）与引擎核心通信。`InprocClient` 把引擎核心当作同一进程中的对象来调用。`SyncMPClient` 和 `AsyncMPClient`
# 为它启动一个进程，通过套接字收发消息；异步的那个属于 `AsyncLLM`，因而也属于服务器。这里的 `LLM("tiny")` 用的是哪一个？一共有几个进程？

# %%
prompts = ["Hello, my name is", "The capital of France is", "The largest ocean is"]
params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)

client = "SyncMPClient"  # 你的预测
processes = 2  # 你的预测

# %% [markdown]
# ## 运行

# %%
# %%explain --as inproc
llm = LLM("tiny", max_model_len=128)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
inproc.predict("client", client)

# %%
inproc.predict("processes", processes)

# %% [markdown]
# ## 观察
#
# 与 vLLM 的 `EngineCoreClient.make_client` 一样，由两个设置决定：`multiprocess_mode` 和 `asyncio_mode`。`LLM` 从不是异步的。
# 它的 `multiprocess_mode` 来自参数，否则来自环境变量 `VLLM_ENABLE_V1_MULTIPROCESSING`；两者都没有时，tracellm 留在一个进程里，
# 而 vLLM 会启动第二个。

# %%
inproc.client

# %% [markdown]
# 从客户端往下到一个 step 的调用：在同一进程中，`get_output` 就 *是* 这个 step。

# %%
inproc.sequence(focus="InprocClient")

# %% [markdown]
# ## 改一个参数
#
# 同样的工作，但引擎核心有自己的进程。

# %%
# %%explain --as sync
llm = LLM("tiny", multiprocess_mode=True, max_model_len=128)
outputs = llm.generate(prompts, params, use_tqdm=False)

# %%
sync.predict("client", "SyncMPClient")

# %%
for process in sync.processes:
    print(process.name, "step 数：", process.steps, "线程：", ", ".join(process.threads))

# %% [markdown]
# 现在 `get_output` 等待消息。请求以 ADD 消息跨过边界，token 以 OUTPUTS 消息返回，每个 step 一条。

# %%
sync.sequence(focus="SyncMPClient")

# %% [markdown]
# 跨越边界的代价是什么？两次运行中，每个 step 在引擎核心里的时间差不多；请求的时间里还有传输。另一方面，前端的工作
# （文本变 token、token 变文本）不再占用引擎核心的循环。

# %%
from statistics import median

for name, one in (("InprocClient", inproc), ("SyncMPClient", sync)):
    step = median(step.duration_ms for step in one.steps if step.kind == "decode")
    request = one.requests[0]
    print(f"{name}：解码 step 的中位数 {step:.2f} ms，首 token {request.first_token_ms:.1f} ms")

del llm  # 结束引擎核心的进程

# %% [markdown]
# ## 练习
#
# 1. 使用 `SyncMPClient` 时，引擎核心运行了多少个 step？可能多于 16 个：请求一个接一个跨过边界，引擎核心不会等到最后一个才开始。

# %%
steps = ...

sync.predict("steps", steps)

# %% [markdown]
# 2. `AsyncLLM` 用的是哪个客户端？把类名填在这里，下面的单元格会创建一个并比较。

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
# ## 现在你能说清
#
# 每个引擎有一个客户端：同一进程中是 `InprocClient`；引擎核心有自己的进程时，`LLM` 用 `SyncMPClient`，`AsyncLLM` 和服务器用 `AsyncMPClient`。
# 由 `multiprocess_mode` 和 `asyncio_mode` 决定。第二个进程的代价是启动时间、每个请求一条消息、每个 step 一条消息；好处是引擎核心不再受前端工作的拖累。
# 下一课：[显微镜下的一个 step](03_one_step.ipynb)
