"""The scripts of the documents, and a helper to run one under `--engine tracellm`."""

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["CLIENT_SELECTION", "MODELS", "SOURCE_READING", "run"]

CLIENT_SELECTION = """\
from vllm import LLM, SamplingParams

prompts = ["Hello, my name is", "The capital of France is"]
sampling_params = SamplingParams(temperature=0, max_tokens=4)

llm = LLM(
    model="Qwen/Qwen2.5-1.5B-Instruct",
    gpu_memory_utilization=0.7,
    max_model_len=1024,
    dtype="float16"
)

outputs = llm.generate(prompts, sampling_params)

client_type = type(llm.llm_engine.engine_core).__name__
print(f"Using client: {client_type}")
"""
"""Script of engine_core_client_selection.md, completed with prompts and sampling."""

SOURCE_READING = """\
from vllm import LLM, SamplingParams

# Define a list of input prompts
prompts = [
    "Hello, my name is",
    "The capital of France is",
    "The largest ocean is",
]

# Define sampling parameters
sampling_params = SamplingParams(temperature=0.8, top_p=0.95)

# Initialize the LLM engine with the OPT-125M model
llm = LLM(model="facebook/opt-125m")

# Generate outputs for the input prompts
outputs = llm.generate(prompts, sampling_params)

# Print the generated outputs
for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs[0].text
    print(f"Prompt: {prompt!r}, Generated text: {generated_text!r}")
"""
"""Script of vllm_source_reading_1.md, word for word."""

MODELS = ("--model", "Qwen/Qwen2.5-1.5B-Instruct=tiny", "--model", "facebook/opt-125m=tiny")


def run(
    folder: Path, script: str, *options: str, python: Path | str = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Return the result of `tracellm run OPTIONS script.py` in `folder`."""
    (folder / "script.py").write_text(script, encoding="utf-8")
    return subprocess.run(
        [python, "-m", "tracellm", "run", *options, "script.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
