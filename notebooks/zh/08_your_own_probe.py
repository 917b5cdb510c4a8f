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
# # 8. 你自己的探针、你自己的模型、OpenTelemetry
#
# 学完之后，你能把自己的函数放进记录里，能运行自己的检查点，还能把记录作为 OpenTelemetry span 交给其他工具。

# %%
import json
import shutil
import sys
from pathlib import Path

import tracellm
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## 预测
#
# `best_answer` 对一个问题抽取四个回答，取最长的一个。它只调用一次 `LLM.generate`，带四个提示词。如果每个回答有 6 个 token，引擎要为它运行多少个 step？

# %%
llm = LLM("tiny", max_model_len=128)


@tracellm.probe(attributes=lambda args, kwargs, result: {"answer.characters": len(result)})
def best_answer(question: str) -> str:
    draws = [SamplingParams(temperature=0.9, seed=seed, max_tokens=6, ignore_eos=True) for seed in range(4)]
    answers = llm.generate([question] * 4, draws, use_tqdm=False)
    return max((answer.outputs[0].text for answer in answers), key=len)


steps = 24  # 你的预测

# %% [markdown]
# ## 运行
#
# 引擎是在记录开始之前创建的。引擎核心就在这个进程里，所以它的调用照样会被记录。

# %%
# %%explain
print(best_answer("My favorite animal is"))

# %%
run.predict("steps", steps)

# %% [markdown]
# ## 观察
#
# `@tracellm.probe` 在记录期间记录函数的每次调用，平时几乎没有开销。它的 span 带有传给装饰器的属性，引擎的调用在它下面。

# %%
(mine,) = run.trace.named("best_answer")
print(mine.attributes["answer.characters"], "个字符")
print([call.name for call in run.trace.children(mine)])

# %%
print("\n".join(run.tree(width=90).splitlines()[:14]))

# %% [markdown]
# `focus` 也可以是函数名：这里画出调用它和它发出的调用。

# %%
run.sequence(focus="best_answer")

# %% [markdown]
# ## 你自己的模型
#
# 一个文件夹，里面有 `config.json`、safetensors 格式的权重和分词器，就是一个模型。这里用 transformers 创建一个随机权重的 Llama，
# 分词器用 `tiny` 的。新的架构还需要一个文件，见 `docs/adding-a-model.md`。

# %%
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

logging.disable_progress_bar()
config = LlamaConfig(vocab_size=4096, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=128)
folder = Path("my-model").absolute()
LlamaForCausalLM(config).save_pretrained(folder)
for name in ("tokenizer.json", "tokenizer_config.json"):
    shutil.copy(Path(tracellm.__file__).parent / "tiny" / name, folder)

# %%
# %%explain --as mine_too
own = LLM(str(folder))
outputs = own.generate("Hello", SamplingParams(temperature=0, max_tokens=4, ignore_eos=True), use_tqdm=False)

# %%
print(sorted({span.name for span in mine_too.trace.spans if "Llama" in span.name}))

# %% [markdown]
# ## OpenTelemetry
#
# 记录中的 span 就是 OpenTelemetry 的 span：名称、trace id、span id、父 span、开始、结束、属性。`tracellm export --to otlp`
# 写出的就是 collector 收到的内容。

# %%
# !{sys.executable} -m tracellm export {run.folder} --to otlp --out spans.json > export.log 2>&1

# %%
exported = json.loads(Path("spans.json").read_text())
spans = [span for resource in exported["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]
span = next(span for span in spans if span["name"] == "best_answer")
print(len(spans) == len(run.trace.spans), sorted(span))

# %% [markdown]
# ## 改一个参数
#
# 级别为 `step` 的记录不含层和 kernel：同样的运行，span 更少。

# %%
# %%explain --as coarse --detail step
answer = best_answer("My favorite animal is")

# %%
print("span 更少：", len(coarse.trace.spans) < len(run.trace.spans), "| step 相同：", len(coarse.steps) == len(run.steps))

# %% [markdown]
# ## 练习
#
# 1. 第一次运行中，有多少个 span 的名称是 `EngineCore.step_fn`？

# %%
spans_of_steps = ...

run.predict("steps", spans_of_steps)

# %% [markdown]
# 2. 在一次记录中调用你自己的函数两次。`mine_twice` 已经有探针：请写出函数体，并修改它下面的单元格，使它被调用两次。

# %%
@tracellm.probe
def mine_twice():
    ...


# %%
# %%explain --as exercise
mine_twice()

# %%
calls = len(exercise.trace.named("mine_twice"))
print("正确：有两个 span。" if calls == 2 else f"还没有：记录中 mine_twice 的 span 有 {calls} 个，不是 2 个。")

# %% [markdown]
# ## 现在你能说清
#
# 一个装饰器就能把你自己的函数放进 trace，引擎的调用在它下面。只要架构已知，Hugging Face 格式的任何文件夹都能运行。
# 记录是一组 OpenTelemetry span，所以 collector、Jaeger 或 Perfetto 都能显示。下一课：[同一页面上的真实 vLLM](09_real_vllm.ipynb)
