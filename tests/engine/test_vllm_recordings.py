"""The recorded workloads of a real vLLM 0.11.1, run through `LLM.generate` with the model they were recorded on."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.sched.test_vllm_parity import SETTINGS, read_cases, record, side_by_side
from tracellm import LLM, SamplingParams

MODEL = Path(__file__).parents[1] / "fixtures" / "tiny-random-qwen2"


def make_llm(case: dict[str, Any]) -> LLM:
    """An LLM with the settings of the recording."""
    settings = {name: case[name] for name in SETTINGS}
    return LLM(str(MODEL), dtype="float32", num_gpu_blocks_override=settings.pop("num_gpu_blocks"), **settings)


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: f"seed{case['seed']}")
def test_generates_as_vllm(case, monkeypatch):
    """Every step is scheduled as vLLM scheduled it, and every token is the one that vLLM generated."""
    llm = make_llm(case)
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler  # type: ignore[attr-defined]
    schedule, steps = scheduler.schedule, []

    def observed():
        output = schedule()
        steps.append(record(scheduler, output))
        return output

    monkeypatch.setattr(scheduler, "schedule", observed)
    outputs = llm.generate(
        [{"prompt_token_ids": request["prompt_token_ids"]} for request in case["requests"]],
        [SamplingParams(temperature=0, max_tokens=r["max_tokens"], ignore_eos=True) for r in case["requests"]],
    )
    for index, (ours, expected) in enumerate(zip(steps, case["steps"], strict=True)):
        assert ours == expected, side_by_side(index, expected, ours)
    assert [output.outputs[0].token_ids for output in outputs] == case["outputs"]
