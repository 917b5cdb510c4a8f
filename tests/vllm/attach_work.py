"""Runs of a real vLLM in one process, imported once, with several explained engines in turn.

vLLM's Python runs it: `attach_work.py FOLDER`. It writes three run folders, and FOLDER/results.json:

    in-process  examples/vllm_hello.py, word for word
    scheduled   CALLS with prompts that share a prefix, are computed in chunks, wait for a place and for blocks, and
                are preempted; a wrapper of this script writes down the scheduler's decisions
    fork        PROMPTS, and QUESTION by `LLM.chat`, by an engine in processes forked from this one

results.json also has the tokens generated without a recording, and the folder found for the example's model name.
"""

import contextlib
import importlib
import io
import json
import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK_SIZE = 32
SHARED = list(range(100, 165))  # two blocks and a token
GREEDY = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
CALLS: list[list[dict[str, Any]]] = [
    [
        {"prompt_token_ids": [*SHARED, *range(200, 210)], "params": GREEDY},
        {"prompt_token_ids": list(range(300, 330)), "params": GREEDY},
        {"prompt_token_ids": list(range(400, 425)), "params": GREEDY},
        {"prompt_token_ids": list(range(500, 520)), "params": {**GREEDY, "max_tokens": 3}},
    ],
    [
        {"prompt_token_ids": [*SHARED, 7, 8, 9], "params": {**GREEDY, "max_tokens": 4}},
        {"prompt_token_ids": [5, 6, 7], "params": {"temperature": 0.7, "top_k": 4, "seed": 3, "max_tokens": 6}},
        {"prompt_token_ids": [5, 6, 7, 8], "params": {"temperature": 1.5, "top_p": 0.6, "seed": 4, "max_tokens": 6}},
    ],
]
PROMPTS = ["Hello, my name is", "The capital of France is", "What is 3 + 4?"]
QUESTION = "What is the capital of France?"
PARAMS: list[dict[str, Any]] = [
    {"temperature": 0, "max_tokens": 8},
    {"temperature": 0.8, "seed": 7, "max_tokens": 8, "logprobs": 1, "ignore_eos": True},
    {"temperature": 0, "max_tokens": 5},
]
TEXTS = [
    "Hello, my name is",
    "The capital of France is",
    "The largest ocean is",
    "中国的首都是",
    "What is 3 + 4?",
    "The KV cache is",
]
"""Prompts of test_tiny_in_vllm.py for vLLM, transformers and this engine."""
MAX_TOKENS = 24

_ROOT = Path(__file__).parents[2]
_TINY = str(_ROOT / "tracellm" / "tiny")
_NAME = "Qwen/Qwen2.5-1.5B-Instruct"  # the example's model
_FEW_BLOCKS: Any = {"num_gpu_blocks_override": 7, "max_num_batched_tokens": 48, "max_num_seqs": 3}


def explained(folder: Path) -> Any:
    """Record into this run folder."""
    return importlib.import_module("tracellm").explain(folder, lang="en")


def example() -> str:
    """Return the output of the example."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        ran = runpy.run_path(str(_ROOT / "examples" / "vllm_hello.py"), run_name="__main__")
    client = ran["llm"].llm_engine.engine_core
    getattr(client, "_finalizer", int)()  # ends a later version's engine together with its process
    return "".join(f"{line}\n" for line in said.getvalue().splitlines() if line.startswith("Prompt: "))


def replaced() -> dict[str, Any]:
    """Return the model that vLLM loads for a name of the bundled model."""
    from vllm import EngineArgs

    config = EngineArgs(model=_NAME, enforce_eager=True).create_engine_config().model_config
    return {"model": config.model, "tokenizer": config.tokenizer, "name": config.served_model_name}


def engine(*, multiprocess: bool = False, **arguments: Any) -> Any:
    """Make a new engine with the bundled model."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(multiprocess))
    from vllm import LLM

    return LLM(model=_TINY, dtype="float32", enforce_eager=True, max_model_len=160, block_size=BLOCK_SIZE, **arguments)


def tokens(llm: Any, prompts: list[Any], params: list[dict[str, Any]]) -> list[list[int]]:
    """Return the generated tokens."""
    from vllm import SamplingParams

    outputs = llm.generate(prompts, [SamplingParams(**one) for one in params], use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def tokens_of_prompts(llm: Any) -> list[list[int]]:
    """Return the tokens for PROMPTS, one at a time: on a CPU, 0.11.1 ignores seeds within a batch."""
    return [tokens(llm, [prompt], [params])[0] for prompt, params in zip(PROMPTS, PARAMS, strict=True)]


def answer(llm: Any) -> dict[str, Any]:
    """Return the prompt tokens and the answer of QUESTION."""
    from vllm import SamplingParams

    [output] = llm.chat([{"role": "user", "content": QUESTION}], SamplingParams(**PARAMS[0]), use_tqdm=False)
    return {"prompt": list(output.prompt_token_ids), "text": output.outputs[0].text}


def tokens_of_calls(llm: Any) -> list[list[int]]:
    """Return the tokens for CALLS, one call after the other."""
    calls = []
    for requests in CALLS:
        prompts = [{"prompt_token_ids": one["prompt_token_ids"]} for one in requests]
        calls += tokens(llm, prompts, [one["params"] for one in requests])
    return calls


def forked() -> dict[str, Any]:
    """Return the tokens of PROMPTS, and the answer, of an engine in several processes."""
    llm = engine(multiprocess=True)
    return {"fork": tokens_of_prompts(llm), "chat": answer(llm)}


def write_down(schedule: Callable[..., Any], log: list[dict[str, Any]]) -> Callable[..., Any]:
    """Write down each result of `Scheduler.schedule`, in the form of shared/reference for vLLM 0.11.1."""

    def logged(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        output = schedule(scheduler, *args, **kwargs)
        cached = output.scheduled_cached_reqs
        new_blocks = {new.req_id: new.block_ids for new in output.scheduled_new_reqs}
        new_blocks |= {id: blocks for id, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True) if blocks}
        log.append(
            {
                "scheduled": dict(output.num_scheduled_tokens),
                "new": [[new.req_id, new.num_computed_tokens] for new in output.scheduled_new_reqs],
                "resumed": [
                    [id, cached.num_computed_tokens[i]]
                    for i, id in enumerate(cached.req_ids)
                    if id in cached.resumed_req_ids
                ],
                "blocks": {id: list(blocks[0]) for id, blocks in new_blocks.items()},
                "running": [request.request_id for request in scheduler.running],
                "waiting": [request.request_id for request in scheduler.waiting],
                "free_blocks": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            }
        )
        return output

    return logged


def scheduled(llm: Any) -> dict[str, Any]:
    """Return the tokens for CALLS, and the scheduler's decisions in each step."""
    from vllm.v1.core.sched.scheduler import Scheduler

    log: list[dict[str, Any]] = []
    schedule = Scheduler.schedule
    Scheduler.schedule = write_down(schedule, log)
    try:
        return {"outputs": tokens_of_calls(llm), "steps": log}
    finally:
        Scheduler.schedule = schedule


def start_processes_by(method: str) -> None:
    """Make vLLM start its processes by this method; for the CPU it insists on spawn."""
    import vllm.v1.engine.utils
    import vllm.v1.executor.multiproc_executor

    def get_context() -> Any:
        return multiprocessing.get_context(method)

    vllm.v1.engine.utils.get_mp_context = get_context
    vllm.v1.executor.multiproc_executor.get_mp_context = get_context


def main() -> None:
    """Make all runs."""
    folder = Path(sys.argv[1])
    importlib.import_module("tracellm.cli.commands.run").overrides_of(None, [f"{_NAME}=tiny"]).take_effect()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    results: dict[str, Any] = {}
    with explained(folder / "in-process"):
        results["printed"] = example()
    # First, before a random draw for which 0.11.1 compiles a kernel: a fork loses that kernel's threads.
    start_processes_by("fork")
    with explained(folder / "fork"):
        results |= forked()
    with explained(folder / "scheduled"):
        results["scheduled"] = scheduled(engine(**_FEW_BLOCKS))
    results["replaced"] = replaced()
    plain = engine(**_FEW_BLOCKS)
    results["calls"] = tokens_of_calls(plain)
    results["prompts"] = tokens_of_prompts(plain)
    results["texts"] = tokens(plain, TEXTS, [{"temperature": 0, "max_tokens": MAX_TOKENS}] * len(TEXTS))
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
