"""Interrupted requests: the recording has all that the engine produced before."""

from pathlib import Path
from typing import Any

import pytest

from tests.probes.conftest import PROMPTS
from tracellm import LLM, SamplingParams
from tracellm.probes.recording import Recording
from tracellm.report.facts.requests import requests
from tracellm.trace.run_folder import RunFolder

STEPS = 4


def interrupt_after(steps: int, llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise KeyboardInterrupt after so many steps of the engine core."""
    core: Any = llm.llm_engine.engine_core
    original: Any = core.get_output
    done: list[Any] = []

    def get_output() -> Any:
        if len(done) == steps:
            raise KeyboardInterrupt
        done.append(original())
        return done[-1]

    monkeypatch.setattr(core, "get_output", get_output)


def test_tokens_that_nobody_was_given(tmp_path: Path, qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch):
    """After an interrupted `generate` each request has the tokens of its steps, although none were returned."""
    with Recording(tmp_path):
        llm = LLM(str(qwen2_checkpoint), dtype="float32", num_gpu_blocks_override=32)
        interrupt_after(STEPS, llm, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=20, ignore_eos=True), use_tqdm=False)
    actual = requests(RunFolder.open(tmp_path).trace.spans)
    assert [one.output_tokens for one in actual] == [STEPS, STEPS]
    assert [one.output for one in actual] == [None, None]
