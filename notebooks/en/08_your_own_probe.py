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
# # 8. Your own probe, your own model, OpenTelemetry
#
# Afterwards you can put functions of yours into the recording, run a checkpoint of yours, and hand the recording over to
# other tools as OpenTelemetry spans.

# %%
import json
import shutil
import sys
from pathlib import Path

import tracellm
from tracellm import LLM, SamplingParams

# %load_ext tracellm

# %% [markdown]
# ## Predict
#
# `best_answer` draws four answers to a question and takes the longest. It calls `LLM.generate` once, with four prompts. How
# many steps does the engine run for it, if each answer has 6 tokens?

# %%
llm = LLM("tiny", max_model_len=128)


@tracellm.probe(attributes=lambda args, kwargs, result: {"answer.characters": len(result)})
def best_answer(question: str) -> str:
    draws = [SamplingParams(temperature=0.9, seed=seed, max_tokens=6, ignore_eos=True) for seed in range(4)]
    answers = llm.generate([question] * 4, draws, use_tqdm=False)
    return max((answer.outputs[0].text for answer in answers), key=len)


steps = 24  # your prediction

# %% [markdown]
# ## Run
#
# The engine was made before the recording. Its calls are recorded all the same, since the engine core is in this process.

# %%
# %%explain
print(best_answer("My favorite animal is"))

# %%
run.predict("steps", steps)

# %% [markdown]
# ## Look
#
# `@tracellm.probe` records every call of a function while a recording runs, and costs next to nothing otherwise. Its span
# has the attributes that the decorator was given; the engine's calls are below it.

# %%
(mine,) = run.trace.named("best_answer")
print(mine.attributes["answer.characters"], "characters")
print([call.name for call in run.trace.children(mine)])

# %%
print("\n".join(run.tree(width=90).splitlines()[:14]))

# %% [markdown]
# `focus` takes the name of a function, too: here are the calls into and out of it.

# %%
run.sequence(focus="best_answer")

# %% [markdown]
# ## Your own model
#
# A folder with `config.json`, weights in safetensors and a tokenizer is a model. Here transformers makes a Llama with
# random weights, and the tokenizer is that of `tiny`. A new architecture takes one more file: see `docs/adding-a-model.md`.

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
# A span of the recording is an OpenTelemetry span: name, trace id, span id, parent, start, end, attributes. `tracellm
# export --to otlp` writes what a collector receives.

# %%
# !{sys.executable} -m tracellm export {run.folder} --to otlp --out spans.json > export.log 2>&1

# %%
exported = json.loads(Path("spans.json").read_text())
spans = [span for resource in exported["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]
span = next(span for span in spans if span["name"] == "best_answer")
print(len(spans) == len(run.trace.spans), sorted(span))

# %% [markdown]
# ## Change one knob
#
# A recording at level `step` leaves out layers and kernels: the same run with fewer spans.

# %%
# %%explain --as coarse --detail step
answer = best_answer("My favorite animal is")

# %%
print("fewer spans:", len(coarse.trace.spans) < len(run.trace.spans), "| same steps:", len(coarse.steps) == len(run.steps))

# %% [markdown]
# ## Exercises
#
# 1. How many spans of the first run are named `EngineCore.step_fn`?

# %%
spans_of_steps = ...

run.predict("steps", spans_of_steps)

# %% [markdown]
# 2. Call a function of yours twice in one recording. `mine_twice` has a probe: give it a body, and change the cell below it
#    so that it is called twice.

# %%
@tracellm.probe
def mine_twice():
    ...


# %%
# %%explain --as exercise
mine_twice()

# %%
calls = len(exercise.trace.named("mine_twice"))
print("Right: two spans." if calls == 2 else f"Not yet: recorded calls of mine_twice: {calls}, not 2.")

# %% [markdown]
# ## What you can say now
#
# One decorator puts your own functions into the trace, with the engine's calls below them. Any folder in the format of
# Hugging Face with a known architecture runs. The recording is a set of OpenTelemetry spans, so a collector, Jaeger or
# Perfetto can show it. Next: [a real vLLM on the same page](09_real_vllm.ipynb)
