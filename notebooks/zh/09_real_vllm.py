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
# # 9. 同一页面上的真实 vLLM
#
# 学完之后，你能用同样的探针记录未经修改的 vLLM，用同样的对象读取它的运行，并说出 tracellm 的引擎与 vLLM 在哪些地方一致。

# %%
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import tracellm

# %% [markdown]
# ## 一个 vLLM 脚本
#
# 脚本导入的是 `vllm`。第一次运行用 tracellm 自己的引擎代替它（`--engine tracellm`），第二次用真实的 vLLM。`--model` 用内置模型替换脚本里的模型，
# 所以不需要下载。

# %%
folder = Path(tempfile.mkdtemp(prefix="tracellm-"))
script = folder / "hello.py"
script.write_text('''
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    llm = LLM("some/model", max_model_len=256, max_num_seqs=2, dtype="float32", enforce_eager=True, block_size=32)
    prompts = ["Hello, my name is", "The capital of France is", "The largest ocean is"]
    for output in llm.generate(prompts, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)):
        print(output.outputs[0].text)
''')


def record(python, name, *options):
    """Run the script under `tracellm run --explain`, and return the run."""
    settings = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | settings
    command = [python, "-m", "tracellm", "run", "--explain", "--quiet", "--model", "some/model=tiny",
               "--out", folder / name, *options, script]
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return tracellm.open_run(folder / name)

# %% [markdown]
# ## 找到 vLLM
#
# 它可能装在这个 kernel 的环境里，也可能有自己的环境：`scripts/install-vllm.sh` 会创建 `.venv-vllm`，里面是可以在 CPU 上运行的版本。
# 变量 `TRACELLM_VLLM_PYTHON` 可以指定另一个解释器。

# %%
usual = Path(tracellm.__file__).parents[1] / ".venv-vllm" / "bin" / "python"
python = sys.executable if find_spec("vllm") else os.environ.get("TRACELLM_VLLM_PYTHON", usual)
has_vllm = Path(python).exists()
print("找到了 vLLM。" if has_vllm else "没有安装 vLLM：用 scripts/install-vllm.sh 创建一个，再运行一次。")

# %% [markdown]
# ## 预测
#
# 三个提示词，最多同时运行两个，每个 8 个 token。tracellm 的引擎需要 16 个 step：先是两个请求，然后是第三个。vLLM 需要多少个？
# 如果没有其他设置，它用的是哪个客户端？

# %%
steps = 24  # 你的预测
client = "InprocClient"  # 你的预测

# %% [markdown]
# ## 运行

# %%
ours = record(sys.executable, "ours", "--engine", "tracellm")
theirs = record(python, "theirs") if has_vllm else ours
print(theirs.manifest["versions"].get("vllm", "没有 vLLM"))

# %%
theirs.predict("steps", steps)

# %%
theirs.predict("client", client)

# %% [markdown]
# 除非设置了 `VLLM_ENABLE_V1_MULTIPROCESSING=0`，vLLM 会为引擎核心启动一个进程；较新的版本会提前调度一个 step，所以 step 的个数可能相差几个。
# （预测上方的那一行是实际运行的版本；没有 vLLM 时，就是 tracellm 自己的那次运行。）
#
# ## 观察
#
# 无论运行的是谁，对象都一样：step、队列、原因、块。

# %%
for name, run in (("tracellm", ours), ("vLLM", theirs)):
    first = run.steps[0]
    print(f"{name}：各请求 {first.scheduled}，等待 {first.waiting}，块 {first.kv_blocks}")

# %% [markdown]
# 输出是同样的 token：同样的权重，同样的 float32 运算。

# %%
print([request.output for request in ours.requests])
print("输出相同：", [request.output for request in ours.requests] == [request.output for request in theirs.requests])

# %% [markdown]
# 类的名称相同：tracellm 的类是照着 vLLM 的样子写的。

# %%
shared = {span.name for span in ours.trace.spans} & {span.name for span in theirs.trace.spans}
print("两者都有：", sorted(name for name in shared if name.startswith(("EngineCore.", "Scheduler.", "KVCacheManager."))))

# %% [markdown]
# 两次运行的不同之处，由 `tracellm diff` 给出：

# %%
print("\n".join(ours.diff(theirs).splitlines()[:30]))

# %% [markdown]
# ## 改一个参数
#
# 如果三个请求可以同时运行，会有什么变化？`whatif` 不运行模型，重新调度一次运行。它只支持 tracellm 引擎的运行，
# 而 tracellm 的调度器与 vLLM 的决定相同。

# %%
print("\n".join(str(ours.whatif(max_num_seqs=3)).splitlines()[:14]))

# %% [markdown]
# ## 练习
#
# 1. vLLM 的这次运行有几个进程？

# %%
processes = ...

theirs.predict("processes", processes)

# %% [markdown]
# 2. 在两次运行中，第三个请求的提示词有多少个 token？

# %%
tokens = ...

numbers = {run.requests[2].num_prompt_tokens for run in (ours, theirs)}
print("还没有回答。" if tokens is ... else f"你的回答是 {tokens}；两次运行中是 {numbers}。")

# %% [markdown]
# ## 现在你能说清
#
# 探针装在 vLLM 自己的类上，所以真实 vLLM 的运行可以用同样的对象读取，也显示在同样的报告页面上。两个引擎的调度和输出相同，
# 进程数和同时进行的 step 数可能不同。每次运行的报告是它的文件夹里的 `report.html`。
