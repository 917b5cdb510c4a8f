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
# # 9. A real vLLM on the same page
#
# Afterwards you can record an unmodified vLLM with the same probes, read its run with the same objects, and say where
# tracellm's engine and vLLM do the same.

# %%
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import tracellm

# %% [markdown]
# ## A script for vLLM
#
# The script imports `vllm`. The first run uses tracellm's own engine in its place (`--engine tracellm`); the second one, the
# real vLLM. `--model` replaces the model by the bundled one, so nothing is downloaded.

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
# ## Find a vLLM
#
# It may be installed in this kernel's environment, or in one of its own: `scripts/install-vllm.sh` makes `.venv-vllm`, with a
# build that runs on a CPU. The variable `TRACELLM_VLLM_PYTHON` names another interpreter.

# %%
usual = Path(tracellm.__file__).parents[1] / ".venv-vllm" / "bin" / "python"
python = sys.executable if find_spec("vllm") else os.environ.get("TRACELLM_VLLM_PYTHON", usual)
has_vllm = Path(python).exists()
print("A vLLM is there." if has_vllm else "No vLLM is installed: make one with scripts/install-vllm.sh, and run this again.")

# %% [markdown]
# ## Predict
#
# Three prompts, at most two at a time, 8 tokens each. tracellm's engine takes 16 steps: two requests, then the third one.
# How many does vLLM take? And which client does it use, if nothing else is set?

# %%
steps = 24  # your prediction
client = "InprocClient"  # your prediction

# %% [markdown]
# ## Run

# %%
ours = record(sys.executable, "ours", "--engine", "tracellm")
theirs = record(python, "theirs") if has_vllm else ours
print(theirs.manifest["versions"].get("vllm", "no vLLM"))

# %%
theirs.predict("steps", steps)

# %%
theirs.predict("client", client)

# %% [markdown]
# vLLM starts a process for its engine core unless `VLLM_ENABLE_V1_MULTIPROCESSING=0` is set, and newer versions schedule one
# step ahead, so the number of steps may differ by a few. (The line above the predictions is the version that ran; without
# a vLLM it is tracellm's own run again.)
#
# ## Look
#
# The same objects, whatever ran: steps, queues, reasons, blocks.

# %%
for name, run in (("tracellm", ours), ("vLLM", theirs)):
    first = run.steps[0]
    print(f"{name}: scheduled {first.scheduled}, waiting {first.waiting}, blocks {first.kv_blocks}")

# %% [markdown]
# The outputs are the same tokens: same weights, same arithmetic in float32.

# %%
print([request.output for request in ours.requests])
print("same outputs:", [request.output for request in ours.requests] == [request.output for request in theirs.requests])

# %% [markdown]
# The classes have the same names; tracellm's are shaped after vLLM's.

# %%
shared = {span.name for span in ours.trace.spans} & {span.name for span in theirs.trace.spans}
print("in both:", sorted(name for name in shared if name.startswith(("EngineCore.", "Scheduler.", "KVCacheManager."))))

# %% [markdown]
# What the two runs do differently, as `tracellm diff` sees it:

# %%
print("\n".join(ours.diff(theirs).splitlines()[:30]))

# %% [markdown]
# ## Change one knob
#
# What would room for all three requests change? `whatif` schedules a run again without its model. It does so for runs of
# tracellm's engine only, whose scheduler decides as vLLM's does.

# %%
print("\n".join(str(ours.whatif(max_num_seqs=3)).splitlines()[:14]))

# %% [markdown]
# ## Exercises
#
# 1. How many processes has vLLM's run?

# %%
processes = ...

theirs.predict("processes", processes)

# %% [markdown]
# 2. How many prompt tokens has the third request in both runs?

# %%
tokens = ...

numbers = {run.requests[2].num_prompt_tokens for run in (ours, theirs)}
print("No answer yet." if tokens is ... else f"You said {tokens}; the runs have {numbers}.")

# %% [markdown]
# ## What you can say now
#
# The probes attach to vLLM's own classes, so a real vLLM's run is read with the same objects and shown on the same report
# page. Schedule and outputs of both engines are the same; processes and the number of steps in flight may differ. The report
# of each run is `report.html` in its folder.
