"""Tests of recorded workloads of whole vLLM 0.11.1 engines, run through the public `LLM`."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import tracellm
from tests.engine.parity.cases import engine_cases, scheduler_cases
from tests.engine.parity.compare import compare_batches
from tests.engine.parity.drive import Library, run_case
from tests.engine.parity.explain import explain
from tracellm.engine.sample import sampling_params

TRACELLM = Library.of(tracellm, sampling_params)


def hold(case: dict[str, Any], record_property: Callable[[str, object], None]) -> None:
    """Run a case; fail with the first step that differs, side by side, unless a near-tie came before it."""
    ours = json.loads(json.dumps(run_case(TRACELLM, case)))  # tuples become lists, as in the recording
    _, difference = compare_batches(case, ours)
    if difference is not None:
        verdict = explain(TRACELLM, case)
        if not verdict.near_tie:
            pytest.fail(f"batch {difference.batch}: {difference.text}\n{verdict.text}", pytrace=False)
        record_property("near-tie", verdict.text)


@pytest.mark.parametrize("case", scheduler_cases(), ids=lambda case: case["name"])
def test_generates_as_vllm(case, record_property):
    """Every step's schedule and every token equal vLLM's."""
    hold(case, record_property)


@pytest.mark.parametrize("case", engine_cases(), ids=lambda case: case["name"])
def test_serves_as_vllm(case, record_property):
    """Decisions, tokens and outputs equal those of vLLM's engine for every setting and any order of arrival."""
    hold(case, record_property)


def test_the_first_recordings_hold_what_they_are_meant_to_test():
    """The recordings cover prefix hits, exhausted blocks and resumption."""
    steps = [step for case in scheduler_cases() for step in case["recorded"][0]["steps"]]
    assert len(scheduler_cases()) == 24
    assert any(computed for step in steps for _, computed in step["new"])
    assert sum(len(step["resumed"]) for step in steps) > 20
    assert any(step["free_blocks"] == 0 for step in steps)


def test_the_engine_recordings_hold_what_they_are_meant_to_test():
    """Every group of recordings covers its feature."""
    seen: Counter[str] = Counter()
    for case in engine_cases():
        for batch, recorded in zip(case["batches"], case["recorded"], strict=True):
            steps, group = recorded["steps"], case["group"]
            seen[f"{group} steps"] += len(steps)
            seen["resumed"] += sum(len(step["resumed"]) for step in steps)
            seen["hits"] += sum(computed > 0 for step in steps for _, computed in step["new"])
            seen["resets"] += bool(batch.get("reset_prefix_cache"))
            seen["late"] += sum(request.get("add_before_step", 0) > 0 for request in batch["requests"])
            seen["aborts"] += sum(request.get("abort_before_step") is not None for request in batch["requests"])
            for reason in ("stop", "length"):
                seen[reason] += json.dumps(recorded["outputs"]).count(f'"finish_reason": "{reason}"')
    few = {name: count for name, count in seen.items() if count < 5}
    assert not few, few
