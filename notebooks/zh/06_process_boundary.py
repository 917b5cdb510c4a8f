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
# # 6. 跨越进程边界
#
# 学完之后，你能从 `AsyncLLM.generate` 开始，跟着一个请求经过套接字、线程和队列进入引擎核心，再回来；能说出有哪些消息，
# 以及调用方离开后请求会怎样。

# %%
import asyncio

import tracellm
from tracellm import AsyncLLM, SamplingParams

# %% [markdown]
# ## 预测
#
# 三个调用方同时提问。`alice` 和 `bob` 读完全部 32 个 token，`carol` 读到第四个就不再读了。这次运行有几个进程？carol 的请求的结束原因是什么？

# %%
async def ask(engine, name, prompt, leave_after=None):
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    seen = 0
    async for output in engine.generate(prompt, params, request_id=name):
        seen += 1
        if seen == leave_after:
            break
    return name, seen


processes = 1  # 你的预测
reason = "length"  # 你的预测

# %% [markdown]
# ## 运行
#
# notebook 的单元格里可以写 `await`。`%%explain` 做不到，所以用 `tracellm.explain` 来记录。

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
# ## 观察
#
# 前端有运行调用方的事件循环，还有一个读取输出的任务。引擎核心有执行 step 的忙循环，每个方向各有一个线程：循环本身从不读套接字。

# %%
run.processes

# %% [markdown]
# 同一条 trace 中的消息，按类型和方向计数。每条消息由一个进程发出，由另一个进程收到。

# %%
from collections import Counter

ways = Counter()
for message in run.trace.messages:
    receiver = message.receive.process.name if message.receive else "无"
    ways[message.send.attributes["tracellm.message.type"], message.send.process.name, receiver] += 1
for (kind, sender, receiver), number in ways.items():
    print(f"{number:3} {kind:8} {sender:12} -> {receiver}")

# %% [markdown]
# 请求以 ADD 跨过边界：token id 和采样参数。它的 token 以 OUTPUTS 返回，每个 step 一条消息，带着其中所有请求的新 token；
# 最后一条可能发出时前端已经停止。
# carol 的调用方离开时，`AsyncLLM.abort` 发送 ABORT，引擎核心在下一个 step 之前释放她的块。

# %%
for request in run.requests:
    print(request.id, request.finish_reason, "已交付：", request.num_output_tokens, "已采样：", len(request.tokens))

# %% [markdown]
# 为 carol 采样的 token 可能比她收到的多：在读到 ABORT 之前，引擎核心会继续。不再包含她的那个 step：

# %%
next(step for step in run.steps if step.number > run.requests["carol"].tokens[-1].step)

# %% [markdown]
# 画成时序图：从一个框到另一个框的箭头就是 ADD、OUTPUTS 和 ABORT。相同的 step 只画一次。

# %%
run.sequence()

# %% [markdown]
# ## 改一个参数
#
# 只有一个调用方。每个 step 的输出单独跨过边界：一个 token 的时间有多少花在引擎核心里，有多少在外面？

# %%
with tracellm.explain(tempfile.mkdtemp(prefix="tracellm-")) as alone:
    engine = AsyncLLM(model="tiny", max_model_len=128)
    print(await ask(engine, "alice", "The capital of France is"))
    engine.shutdown()

# %%
steps = [step.duration_ms for step in alone.steps if step.tokens]
alice = alone.requests["alice"]
whole = alice.first_token_ms + alice.decode_ms
print(f"{len(steps)} 个 step 共 {sum(steps):.1f} ms；从提交到最后一个 token 共 {whole:.1f} ms")

# %% [markdown]
# ## 练习
#
# 1. 第一次运行发送了多少条 ADD 消息？

# %%
adds = ...

sent = sum(message.send.attributes["tracellm.message.type"] == "ADD" for message in run.trace.messages)
print("还没有回答。" if adds is ... else f"你的回答是 {adds}；实际发送了 {sent} 条，每个请求一条。")

# %% [markdown]
# 2. 三个请求中，有几个的结束原因是 `length`？

# %%
finished = ...

ended = [request.id for request in run.requests if request.finish_reason == "length"]
print("还没有回答。" if finished is ... else f"你的回答是 {finished}；实际有 {len(ended)} 个：{', '.join(ended)}。")

# %% [markdown]
# ## 现在你能说清
#
# `AsyncLLM` 把调用方与引擎核心分开：请求以 ADD 经过 ROUTER 和 DEALER 套接字进入引擎核心的输入队列，输出经过 PUSH 和 PULL 套接字回到一个任务，
# 由它把 token 交给各个调用方。调用方离开会引起 ABORT。每条消息都带着发送方的上下文，所以一条 trace 就包含两个进程。
# 下一课：[采样](07_sampling.ipynb)
