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
from tracellm.engine.core.structured_output.backend_guidance import GuidanceBackend, validate_guidance_grammar
from tracellm.engine.core.structured_output.trial import TrialProcess
from tracellm.engine.sample.sampling_params import StructuredOutputsParams

PATTERN: dict[str, Any] = {"type": "string", "pattern": "^ab$"}
SLOW: dict[str, dict[str, Any]] = {
    "multipleOf": {"type": "integer", "multipleOf": 1_000_003},
    "patternProperties": {"type": "object", "patternProperties": {f"^p{i}$": {} for i in range(2000)}},
    "allOf": {"allOf": [{"type": "string", "pattern": f".*a{i}.*"} for i in range(20)]},
}
BOUNDED: list[dict[str, Any]] = [
    {"json": {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": ["a"]}},
    {"json": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}},
    {"json_object": True},
    {"choice": ["a", "b"]},
    {"regex": "a%&"},
    {"grammar": 'start: "a"'},
]
UNBOUNDED: list[dict[str, Any]] = [
    {"json": {"anyOf": [PATTERN, {"type": "integer"}]}},
    {"json": {"$ref": "#/default", "default": {"type": "integer"}}},
    {"json": {"$ref": "#/$defs/a/examples/0", "$defs": {"a": {"examples": [{"type": "integer"}]}}}},
    {"json": {"type": "integer"}, "whitespace_pattern": " "},
    {"grammar": 'start: %json {"type": "integer"}'},
    {"grammar": "start: A\nA: /a+/ & /aa/"},
]
"""Constraints that hold, or may hold, what takes too long."""


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


@pytest.mark.parametrize(
    ("constraints", "is_bounded"), [(BOUNDED, True), (UNBOUNDED, False)], ids=["bounded", "unbounded"]
)
def test_which_constraints_need_a_process(
    llm: LLM, constraints: list[dict[str, Any]], is_bounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constraint of bounded time is tried in the same process, and one that may take long in another."""
    tried = []
    monkeypatch.setattr(TrialProcess, "first_error", lambda self, trials: tried.append(trials))
    backend = GuidanceBackend(llm.get_tokenizer(), 320)
    for count, constraint in enumerate(constraints, 1):
        validate_guidance_grammar(StructuredOutputsParams(**constraint), backend)
        assert len(tried) == (0 if is_bounded else count), constraint


def make_process(checkpoint: Path) -> TrialProcess:
    """Return a process that is not started yet."""
    return TrialProcess(((checkpoint / "tokenizer.json").read_text(), 320, 0))


def regexes(*patterns: str) -> list[tuple[str, bool]]:
    """Return regular expressions as trials."""
    return [(llguidance.grammar_from("regex", pattern), True) for pattern in patterns]


def test_the_process_ends_with_its_owner(qwen2_checkpoint: Path) -> None:
    """The process answers one trial after the other, and is gone when its owner is."""
    process = make_process(qwen2_checkpoint)
    assert process.first_error(regexes("a+")) is None
    found = process.first_error(regexes("a", "b", "("))
    assert found is not None
    assert found[0] == 2
    assert process._process is not None
    pid = process._process.pid
    del process
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_interrupted_trial(qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C the next trial has its own answer, not that of the interrupted one."""

    def interrupt(process: subprocess.Popen[str], trials: Sequence[trial.Trial]) -> str:
        trial._send(process, trials)
        raise KeyboardInterrupt

    process = make_process(qwen2_checkpoint)
    with monkeypatch.context() as patch:
        patch.setattr(trial, "_exchange", interrupt)
        with pytest.raises(KeyboardInterrupt):
            process.first_error(regexes("("))
    assert process.first_error(regexes("a")) is None


def test_a_process_that_fails() -> None:
    """A failure of the process itself is not blamed on the constraint."""
    with pytest.raises(RuntimeError, match="has ended with exit code 1"):
        TrialProcess(("{", 320, 0)).first_error(regexes("a"))
