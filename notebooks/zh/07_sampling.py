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
# # 7. 采样：从 logits 到文本
#
# 学完之后，你能说清一个 token 是怎样选出来的：从 logits 到概率，temperature、top_k、top_p、惩罚和种子各改变什么，
# 以及语法怎样只允许某些 token。

# %%
from tracellm import LLM, SamplingParams, StructuredOutputsParams

# %load_ext tracellm

# %% [markdown]
# ## 预测
#
# 模型给词表中的 4,096 个 token 各打一个分数，即 *logit*。贪心采样（`temperature=0`）取最大的一个。四个请求的提示词相同，
# 所以在第一个 step 中它们的 logits 也相同。请求 1 用 `top_k=3` 采样，请求 2 用 `top_p=0.5`，请求 3 两者都不用。
# 请求 1 还剩多少个 token 可选？请求 0 选哪一个？

# %%
prompt = "My favorite color is"
common = dict(max_tokens=24, ignore_eos=True)
params = [
    SamplingParams(temperature=0, **common),
    SamplingParams(temperature=1.0, top_k=3, seed=1, **common),
    SamplingParams(temperature=1.0, top_p=0.5, seed=1, **common),
    SamplingParams(temperature=1.0, seed=1, **common),
]

left_for_request_1 = 1  # 你的预测
token_of_request_0 = " red"  # 你的预测

# %% [markdown]
# ## 运行

# %%
# %%explain
llm = LLM("tiny", max_model_len=128)
for output in llm.generate([prompt] * 4, params, use_tqdm=False):
    print(output.request_id, repr(output.outputs[0].text))

# %%
run.predict("token", token_of_request_0, request=0, step=1)

# %%
left = run.steps[0].sampled["1"].tokens_left
print(f"你的预测是 {left_for_request_1}；请求 1 剩下 {left} 个 token，因为它的 top_k 是 {params[1].top_k}。")

# %% [markdown]
# ## 观察
#
# 第一个 step 中最可能的 token，分别在各个 *处理器*（processor）之前和之后：temperature 用来除 logits；top_k 保留最可能的 k 个 token；
# top_p 从最可能的开始保留，直到概率之和达到 p。剩下的概率重新缩放到总和为 1，然后抽取一个 token。

# %%
for request, sampled in run.steps[0].sampled.items():
    print(f"请求 {request}：选中 {sampled.text!r}，模型给出的概率 {sampled.probability:.1%}")
    print("   模型：", ", ".join(f"{text!r} {probability:.1%}" for _, text, probability in sampled.candidates))
    if sampled.processors:
        drawn = [(text, probability) for _, text, probability in sampled.drawn_candidates if probability > 0]
        print(f"   经过 {', '.join(sampled.processors)}：剩下 {sampled.tokens_left:,} 个 token：",
              ", ".join(f"{text!r} {probability:.1%}" for text, probability in drawn))

# %% [markdown]
# 从第二个 token 起，文本不同，logits 也就不同：各个请求从此走各自的路。

# %%
run.steps[1]

# %% [markdown]
# ## 改一个参数
#
# 种子让随机可以重现：种子相同，得到的 token 就相同，与批次里的其他请求无关。惩罚会降低提示词和输出中已有 token 的概率。
# 这里，请求 0 就是之前的请求 1，请求 1 换了种子，请求 2 是带惩罚的贪心采样。

# %%
# %%explain --as two
llm = LLM("tiny", max_model_len=128)
again = [params[1], SamplingParams(temperature=1.0, top_p=0.5, seed=2, **common),
         SamplingParams(temperature=0, repetition_penalty=1.3, **common)]
for output in llm.generate([prompt] * 3, again, use_tqdm=False):
    print(output.request_id, repr(output.outputs[0].text))

# %%
print("top_k=3、种子 1，两次，文本相同：", run.requests[1].output == two.requests[0].output)
print("top_p=0.5、种子 1 和 2，文本相同：", run.requests[2].output == two.requests[1].output)
print("贪心，有无惩罚，文本相同：", run.requests[0].output == two.requests[2].output)

# %% [markdown]
# ## 语法
#
# 结构化输出只允许符合语法的 token。每个 step 之前，语法给出一个掩码，其他 token 的 logits 变成负无穷。`tokens_left` 是剩下的个数：
# 往往只有一个，模型其实别无选择。

# %%
# %%explain --as form
llm = LLM("tiny", max_model_len=128)
schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}}, "required": ["city"],
          "additionalProperties": False}
grammar = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
answer = llm.generate("The capital of Italy is", SamplingParams(temperature=0, max_tokens=24, structured_outputs=grammar),
                      use_tqdm=False)
print(answer[0].outputs[0].text)

# %%
for step in form.steps:
    for sampled in step.sampled.values():
        print(f"第 {step.number:2} 步：{sampled.text!r:10}，允许的 token 有 {sampled.tokens_left} 个")

# %% [markdown]
# ## 练习
#
# 1. 在第一次运行的第 1 步，请求 2 选了哪个 token？它是最可能的吗？从 `run.steps[0].sampled["2"]` 读出来，把它的文本填在这里。

# %%
token = ...

run.predict("token", token, request=2, step=1)

# %% [markdown]
# 2. 带语法的请求为什么结束？把结束原因填在这里：`"stop"` 或 `"length"`。

# %%
reason = ...

form.predict("finish", reason, request=0)

# %% [markdown]
# ## 现在你能说清
#
# 每个 step 为每个请求给出一行 logits。temperature 和惩罚改变 logits，top_k、top_p 和语法去掉一部分 token，再从剩下的里面抽取一个；
# temperature 为 0 时取最可能的。种子属于各自的请求，所以它的 token 与批次无关。下一课：[你自己的探针](08_your_own_probe.ipynb)
