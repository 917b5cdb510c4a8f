"""Test of `async_scheduling=True` on a GPU: the host never waits for the device within a step.

test_async_scheduling.py checks that outputs are the same there.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.engine.ops.implementations import need_triton
from tracellm import LLM, SamplingParams

SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 96,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 16,
    "num_gpu_blocks_override": 99,
    "gpu_memory_utilization": 0.1,  # other tests may use the same GPU
}


def unsynchronized(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it fails if the host waits for the GPU."""

    def watched(*args: Any) -> Any:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return function(*args)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return watched


@pytest.mark.gpu
@pytest.mark.parametrize("eager", [False, True], ids=["replayed", "eager"])
def test_on_a_gpu_no_step_waits(eager: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sampling parameter and no arrival or end of a request makes the host wait before the step's end."""
    need_triton("cuda")
    asked: list[dict[str, Any]] = [
        {"temperature": 0},
        {"seed": 3, "top_k": 20, "top_p": 0.9},
        {"min_p": 0.1},
        {"logit_bias": {7: 3.0}, "allowed_token_ids": list(range(900))},
        {"temperature": 0, "min_tokens": 4, "stop_token_ids": list(range(700))},
        {"temperature": 0, "logprobs": 2},
    ]
    params = [SamplingParams(max_tokens=3 + index, ignore_eos=True, **more) for index, more in enumerate(asked)]
    prompts = [{"prompt_token_ids": [5 + 3 * index + i for i in range(1 + 2 * index)]} for index in range(len(asked))]
    llm = LLM(enforce_eager=eager, async_scheduling=True, **SETTINGS)
    once = llm.generate(prompts, params, use_tqdm=False)  # compiling and tuning may wait
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner  # type: ignore[attr-defined]
    for name in ("execute_model", "sample_tokens"):
        monkeypatch.setattr(runner, name, unsynchronized(getattr(runner, name)))
    assert [len(one.outputs[0].token_ids) for one in llm.generate(prompts, params, use_tqdm=False)] == [
        len(one.outputs[0].token_ids) for one in once
    ]
