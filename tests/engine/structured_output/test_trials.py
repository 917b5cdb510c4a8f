"""Tests of the trial of a constraint in a process with bounded time and memory."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llguidance
import pytest

from tracellm import LLM, SamplingParams
from tracellm.engine.config.errors import InvalidRequestError
from tracellm.engine.core.structured_output import trial
from tracellm.engine.core.structured_output.trial import TrialProcess
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

FAST: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}
PATTERN: dict[str, Any] = {"type": "string", "pattern": "^ab$"}
SLOW: dict[str, dict[str, Any]] = {
    "multipleOf": {"type": "integer", "multipleOf": 1_000_003},
    "patternProperties": {"type": "object", "patternProperties": {f"^p{i}$": {} for i in range(2000)}},
    "allOf": {"allOf": [{"type": "string", "pattern": f".*a{i}.*"} for i in range(20)]},
    "default": {"$ref": "#/default", "default": {"type": "integer", "multipleOf": 1_000_003}},
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
    """A constraint that would compile for a minute is refused with the limits, at once when repeated."""
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=r"takes more than 3 seconds of processor time or 512 MiB"):
            generate(llm, SLOW[name])
    assert generate(llm, {**PATTERN, "title": name}) == '"ab"'


def test_a_schema_in_a_grammar(llm: LLM) -> None:
    """The schema that a grammar embeds has the limits too."""
    grammar = 'start: %json {"type": "integer", "multipleOf": 1000003}'
    params = SamplingParams(structured_outputs=StructuredOutputsParams(grammar=grammar))
    with pytest.raises(InvalidRequestError, match="takes more than 3 seconds"):
        llm.generate("Hello", params, use_tqdm=False)


def test_constraints_of_bounded_time_need_no_process(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema of plain keywords is tried in the same process, and one with a pattern in another."""
    tried = []
    monkeypatch.setattr(TrialProcess, "first_error", lambda self, trials: tried.append(len(trials)))
    generate(llm, {**FAST, "title": "another"})
    assert tried == []
    generate(llm, {**PATTERN, "title": "another"})
    assert tried == [1]


@pytest.fixture
def trial_process(qwen2_checkpoint: Path) -> TrialProcess:
    """A process that was not started yet."""
    return TrialProcess(((qwen2_checkpoint / "tokenizer.json").read_text(), 320, 0))


def regexes(*patterns: str) -> list[tuple[str, bool]]:
    """Return regular expressions as trials."""
    return [(llguidance.grammar_from("regex", pattern), True) for pattern in patterns]


def test_the_process_ends_with_its_owner(trial_process: TrialProcess) -> None:
    """The process answers one trial after the other, and can be ended."""
    assert trial_process.first_error(regexes("a+")) is None
    found = trial_process.first_error(regexes("a", "b", "("))
    assert found is not None
    assert found[0] == 2
    assert trial_process._process is not None
    pid = trial_process._process.pid
    trial_process._finalizer()  # as when the owner is collected
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_interrupted_trial(trial_process: TrialProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C the next trial has its own answer, not that of the interrupted one."""

    def interrupt(process: subprocess.Popen[str], trials: Sequence[trial.Trial]) -> str:
        trial._send(process, trials)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trial, "_exchange", interrupt)
        with pytest.raises(KeyboardInterrupt):
            trial_process.first_error(regexes("("))
    assert trial_process.first_error(regexes("a")) is None


def test_a_process_that_fails(trial_process: TrialProcess) -> None:
    """A failure of the process itself is not blamed on the constraint."""
    trial_process._tokenizer = ("{", 320, 0)
    with pytest.raises(RuntimeError, match="has ended with exit code 1"):
        trial_process.first_error(regexes("a"))
