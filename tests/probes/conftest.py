"""A recorded run of the engine, shared by several test files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import family_checkpoint, qwen2_checkpoint
from tracellm.probes.recording import Recording
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder

__all__ = ["family_checkpoint", "qwen2_checkpoint"]

PROMPTS = ["A secret prompt, 秘密 of mine", "Another one"]


@dataclass
class Run:
    """A recorded run and what it returned."""

    folder: Path
    trace: Trace
    stats: dict[str, Any]
    outputs: list[Any]
    bare: list[Any]
    line: int


@pytest.fixture(scope="session")
def engine_run(qwen2_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Record start-up and one `generate` of two prompts, then repeat the `generate` without a recording."""
    from tracellm import LLM, SamplingParams

    folder = tmp_path_factory.mktemp("run")
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, stop=["a stop string"])
    with Recording(folder, script="script.py") as recording:
        llm = LLM(str(qwen2_checkpoint), dtype="float32", num_gpu_blocks_override=32, enable_prefix_caching=False)
        outputs = llm.generate(PROMPTS, params, use_tqdm=False)
    line = recording_line()
    bare = llm.generate(PROMPTS, params, use_tqdm=False)
    return Run(folder, RunFolder.open(folder).trace, recording.stats, outputs, bare, line)


def recording_line() -> int:
    """Return the line number of the recorded `generate` call above."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.startswith("        outputs = llm.generate("))
