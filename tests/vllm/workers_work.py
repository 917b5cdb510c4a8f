"""Script for a real vLLM with two workers, for test_workers.py.

Its arguments are the name of the size that is 2, and a file for the tokens.
"""

import json
import sys
from pathlib import Path
from typing import Any

MODEL = str(Path(__file__).parents[2] / "tracellm" / "tiny")
PROMPTS = ["Hello, my name is", "The capital of France is", "The largest ocean is"]
PARAMS: dict[str, Any] = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}

if __name__ == "__main__":
    from vllm import LLM, SamplingParams

    size, file = sys.argv[1:]
    llm = LLM(MODEL, max_model_len=256, dtype="float32", enforce_eager=True, block_size=32, **{size: 2})
    outputs = llm.generate(PROMPTS, SamplingParams(**PARAMS), use_tqdm=False)
    Path(file).write_text(json.dumps([output.outputs[0].token_ids for output in outputs]), encoding="utf-8")
