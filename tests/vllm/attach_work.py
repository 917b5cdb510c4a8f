"""What test_attach.py has a real vLLM do: the same requests, plain and explained, in one process and in several.

It is run by vLLM's Python: `attach_work.py MODEL FOLDER`. The tokens of each time go to FOLDER/tokens.json.
"""

import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

PROMPTS = ["Hello, my name is", "The capital of France is", "What is 3 + 4?"]


def tokens(model: str, multiprocess: bool) -> list[list[int]]:
    """What a new engine generates: greedily, and drawn with a seed."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(multiprocess))
    import vllm
    from vllm import LLM, SamplingParams

    block_size = 16 if vllm.__version__.startswith("0.11") else 32  # what the CPU's attention of each can do
    llm = LLM(model=model, dtype="float32", enforce_eager=True, max_model_len=128, block_size=block_size)
    params = [
        SamplingParams(temperature=0, max_tokens=8),
        SamplingParams(temperature=0.8, seed=7, max_tokens=8, logprobs=1, ignore_eos=True),
        SamplingParams(temperature=0, max_tokens=5),
    ]
    outputs = llm.generate(PROMPTS, params, use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in outputs]


def start_processes_by(method: str) -> None:
    """Have vLLM start its processes so; for the CPU it insists on spawn."""
    import vllm.v1.engine.utils
    import vllm.v1.executor.multiproc_executor

    def get_context() -> Any:
        return multiprocessing.get_context(method)

    vllm.v1.engine.utils.get_mp_context = get_context
    vllm.v1.executor.multiproc_executor.get_mp_context = get_context


def main() -> None:
    """All of it."""
    import tracellm

    model, folder = sys.argv[1], Path(sys.argv[2])
    told = {"plain": tokens(model, multiprocess=False)}
    with tracellm.explain(folder / "in_process"):
        told["in_process"] = tokens(model, multiprocess=False)
    with tracellm.explain(folder / "spawn"):
        told["spawn"] = tokens(model, multiprocess=True)
    start_processes_by("fork")
    with tracellm.explain(folder / "fork"):
        told["fork"] = tokens(model, multiprocess=True)
    (folder / "tokens.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
