"""Tests of the trial of a constraint in a process with bounded time and memory."""

import os
from pathlib import Path
from typing import Any

import llguidance
import pytest

from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.core.structured_output.trial import TrialProcess
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

FAST: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}
PATTERN: dict[str, Any] = {"type": "string", "pattern": "^ab$"}
SLOW: dict[str, dict[str, Any]] = {
    "multipleOf": {"type": "integer", "multipleOf": 1_000_003},
    "patternProperties": {"type": "object", "patternProperties": {f"^p{i}$": {} for i in range(2000)}},
    "allOf": {"allOf": [{"type": "string", "pattern": f".*a{i}.*"} for i in range(20)]},
}


def generate(llm: LLM, schema: dict[str, Any]) -> str:
    """Return the text under a JSON schema."""
    params = SamplingParams(
        max_tokens=64, temperature=0,
        structured_outputs=StructuredOutputsParams(json=schema, disable_any_whitespace=True),
    )  # fmt: skip
    return llm.generate("Hello", params, use_tqdm=False)[0].outputs[0].text


@pytest.mark.parametrize("name", SLOW)
def test_a_constraint_that_takes_too_long_is_refused(llm: LLM, name: str) -> None:
    """A constraint that would compile for a minute is refused with the limits, and later ones are served."""
    with pytest.raises(InvalidRequestError, match=r"takes more than 3 seconds of processor time or 512 MiB"):
        generate(llm, SLOW[name])
    assert generate(llm, PATTERN) == '"ab"'


def test_constraints_of_bounded_time_need_no_process(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema of plain keywords is tried in the same process, and one with a pattern in another."""
    tried = []
    monkeypatch.setattr(TrialProcess, "first_error", lambda self, trials: tried.append(len(trials)))
    generate(llm, {**FAST, "title": "another"})
    assert tried == []
    generate(llm, {**PATTERN, "title": "another"})
    assert tried == [1]


def test_the_process_ends_with_its_owner(qwen2_checkpoint: Path) -> None:
    """The process answers one trial after the other, and is gone when its owner is."""
    process = TrialProcess(((qwen2_checkpoint / "tokenizer.json").read_text(), 320, 0))
    assert process.first_error([(llguidance.grammar_from("regex", "a+"), True)]) is None
    found = process.first_error([(llguidance.grammar_from("regex", pattern), True) for pattern in ("a", "b", "(")])
    assert found is not None
    assert found[0] == 2
    assert process._process is not None
    pid = process._process.pid
    del process
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
