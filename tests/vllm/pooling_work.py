"""Embeddings of a real vLLM: `pooling_work.py FILE` writes those of each of TEXTS, and some scores, as JSON."""

import json
import sys
from pathlib import Path
from typing import Any

TEXTS = ["Hello, my name is", "The capital of France is", "The KV cache is", "中国的首都是"] * 2
_TINY = str(Path(__file__).parents[2] / "tracellm" / "tiny")


def main(file: str) -> None:
    """Write the file."""
    vllm: Any = __import__("vllm")
    settings = {"dtype": "float32", "enforce_eager": True, "max_model_len": 256, "max_num_seqs": 4}
    llm = vllm.LLM(_TINY, runner="pooling", block_size=32, max_num_batched_tokens=256, **settings)
    embeddings = [output.outputs.embedding for output in llm.embed(TEXTS)]
    scores = [output.outputs.score for output in llm.score(TEXTS[0], TEXTS[:4])]
    Path(file).write_text(json.dumps([embeddings, scores]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
