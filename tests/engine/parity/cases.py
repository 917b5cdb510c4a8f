"""Recorded workloads in the form that `drive.run_case` runs; tests/fixtures/README.md describes each file."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["engine_cases", "mm_cases", "policy_cases", "scheduler_cases", "window_cases", "worker_cases"]

FIXTURES = Path(__file__).parents[2] / "fixtures"
Json = dict[str, Any]


@cache
def engine_cases() -> list[Json]:
    """Return the cases of whole engines; `recorded` is the expected result of `drive.run_case`."""
    with gzip.open(FIXTURES / "engine-cases.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def worker_cases() -> list[Json]:
    """Return the cases of engines with several workers, in the form of `engine_cases`."""
    with gzip.open(FIXTURES / "worker-cases.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def scheduler_cases() -> list[Json]:
    """Return the first 24 recordings in the form of `engine_cases`; `...` stands for unrecorded values."""
    return [_as_engine_case(json.loads(line)) for line in (FIXTURES / "scheduler-cases.jsonl").read_text().splitlines()]


@cache
def policy_cases() -> list[Json]:
    """Return the cases of the scheduler without a model, in a form of their own."""
    return [json.loads(line) for line in (FIXTURES / "scheduler-policies.jsonl").read_text().splitlines()]


@cache
def window_cases() -> list[Json]:
    """Return the cases of the scheduler with sliding windows and several KV cache groups, in a form of their own."""
    return [json.loads(line) for line in (FIXTURES / "scheduler-windows.jsonl").read_text().splitlines()]


@cache
def mm_cases() -> list[Json]:
    """Return the cases of the scheduler with images in the prompts, in a form of their own."""
    return [json.loads(line) for line in (FIXTURES / "scheduler-mm.jsonl").read_text().splitlines()]


def _as_engine_case(case: Json) -> Json:
    names = ("block_size", "max_model_len", "max_num_batched_tokens", "max_num_seqs", "enable_prefix_caching")
    return {
        "name": f"seed{case['seed']}",
        "group": "scheduler",
        "settings": {name: case[name] for name in names} | {"num_gpu_blocks_override": case["num_gpu_blocks"]},
        "batches": [
            {
                "how": "generate",
                "requests": [
                    {
                        "prompt_token_ids": request["prompt_token_ids"],
                        "params": {"temperature": 0, "max_tokens": request["max_tokens"], "ignore_eos": True},
                    }
                    for request in case["requests"]
                ],
            }
        ],
        "recorded": [
            {
                "steps": case["steps"],
                "outputs": [_output(str(index), token_ids) for index, token_ids in enumerate(case["outputs"])],
            }
        ],
    }


def _output(request_id: str, token_ids: list[int]) -> list[Any]:
    completion = {"index": 0, "text": ..., "token_ids": token_ids, "finish_reason": "length", "stop_reason": None}
    return [request_id, True, ..., None, [completion | {"logprobs": None, "cumulative_logprob": None}]]
