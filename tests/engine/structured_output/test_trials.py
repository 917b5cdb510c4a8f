"""Tests of the trial of a constraint in a process with bounded time and memory."""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import HANG_GUARD
from tracellm import LLM, AsyncLLM, SamplingParams
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
    {"json": {"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "title": "A"}}}},
]
UNBOUNDED: list[dict[str, Any]] = [
    {"json": {"anyOf": [PATTERN, {"type": "integer"}]}},
    {"json": {"$ref": "#/default", "default": {"type": "integer"}}},
    {"json": {"$ref": "#/$defs/a/examples/0", "$defs": {"a": {"examples": [{"type": "integer"}]}}}},
    {"json": {"type": "integer"}, "whitespace_pattern": " "},
    {"grammar": 'start: %json {"type": "integer"}'},
    {"grammar": "start: A\nA: /a+/ & /aa/"},
    {"grammar": 'root ::= "a"'},
    {"structural_tag": '{"triggers": ["<f"], "structures": [{"begin": "<f>", "schema": {}, "end": ""}]}'},
    {"json": {"anyOf": [{"const": 1}, {"const": 2}], "oneOf": [{"const": 2}, {"const": 3}]}},
    {"json": {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}},
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
        check = validate_guidance_grammar(StructuredOutputsParams(**constraint), backend)
        assert (check is None) == is_bounded, constraint
        if check is not None:
            check()
        assert len(tried) == (0 if is_bounded else count), constraint


def test_a_grammar_that_is_long_to_convert(llm: LLM) -> None:
    """The conversion of llama.cpp's notation is within the limits too."""
    rules = "".join(f'r{number} ::= "a" r{number + 1}\n' for number in range(20_000))
    params = StructuredOutputsParams(grammar=f'root ::= r0\n{rules}r20000 ::= "b"')
    with pytest.raises(InvalidRequestError, match="takes more than 3 seconds"):
        llm.generate("Hello", SamplingParams(structured_outputs=params), use_tqdm=False)


@pytest.mark.parametrize(
    ("trigger", "begin", "message"),
    [
        ("<[0]> %json {} <[0]>", "", "not the name of a special token"),
        ("<a b>", "", "not the name"),
        ("", "x", "start"),
    ],
)
def test_a_trigger_is_no_grammar(llm: LLM, trigger: str, begin: str, message: str) -> None:
    """A trigger between angle brackets is one special token, not a piece of a grammar."""
    tag = {"triggers": [trigger], "structures": [{"begin": begin or trigger, "schema": {}, "end": ""}]}
    params = SamplingParams(structured_outputs=StructuredOutputsParams(structural_tag=json.dumps(tag)))
    with pytest.raises(InvalidRequestError, match=message):
        llm.generate("Hello", params, use_tqdm=False)


def test_many_tags_are_refused(llm: LLM) -> None:
    """The number of triggers and of structures has a limit."""
    tag = {"triggers": ["<f"] * 2000, "structures": [{"begin": "<f>", "schema": {}, "end": ""}]}
    params = SamplingParams(structured_outputs=StructuredOutputsParams(structural_tag=json.dumps(tag)))
    with pytest.raises(InvalidRequestError, match="it has 2,000 triggers or structures, and at most 1,000"):
        llm.generate("Hello", params, use_tqdm=False)


def test_slow_constraints_delay_only_their_kind(qwen2_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While any number of constraints wait for the process, others are checked."""
    may_end = threading.Event()

    def wait(process: TrialProcess, trials: Sequence[trial.Trial]) -> None:
        may_end.wait(HANG_GUARD)  # the test fails if the other one waits too

    async def run() -> None:
        engine = AsyncLLM(str(qwen2_checkpoint))
        validate = engine.processor.validate_structured_output
        num_checked = 0

        def count(params: SamplingParams) -> Callable[[], None] | None:
            nonlocal num_checked
            check = validate(params)
            num_checked += 1
            return check

        monkeypatch.setattr(engine.processor, "validate_structured_output", count)

        async def text(name: str, constraint: StructuredOutputsParams) -> str:
            params = SamplingParams(max_tokens=8, temperature=0, structured_outputs=constraint)
            async for output in engine.generate("Hello", params, name):
                found = output.outputs[0].text
            return found

        try:
            slow = [
                asyncio.create_task(
                    text(f"slow {number}", StructuredOutputsParams(json={**PATTERN, "title": f"{number}"}))
                )
                for number in range(10)
            ]
            while num_checked < len(slow) and not any(task.done() for task in slow):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # all of them are submitted to the process
            assert await text("quick", StructuredOutputsParams(choice=["yes"])) == "yes"
            assert not any(task.done() for task in slow)
            may_end.set()
            await asyncio.gather(*slow)
        finally:
            may_end.set()
            engine.shutdown()

    monkeypatch.setattr(TrialProcess, "first_error", wait)
    asyncio.run(run())


def make_process(checkpoint: Path) -> TrialProcess:
    """Return a process that is not started yet."""
    return TrialProcess(((checkpoint / "tokenizer.json").read_text(), 320, 0))


def regexes(*patterns: str) -> list[trial.Trial]:
    """Return regular expressions as trials."""
    return [("regex", pattern) for pattern in patterns]


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


def test_a_killed_process(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constraint whose trial the system has ended is tried again when it is repeated."""

    def kill(process: subprocess.Popen[str], trials: Sequence[trial.Trial]) -> str:
        process.kill()
        process.wait()
        return ""

    schema = {**PATTERN, "title": "killed"}
    with monkeypatch.context() as patch:
        patch.setattr(trial, "_exchange", kill)
        with pytest.raises(InvalidRequestError, match="the system ended the process"):
            generate(llm, schema)
    assert generate(llm, schema) == '"ab"'


def test_a_process_that_fails() -> None:
    """A failure of the process itself is not blamed on the constraint."""
    with pytest.raises(RuntimeError, match="has ended with exit code 1"):
        TrialProcess(("{", 320, 0)).first_error(regexes("a"))
