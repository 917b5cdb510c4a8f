"""Engine steps fold only if batch, phases, prefix hits, preemptions and token counts are equal."""

from typing import Any

import pytest

from tests.report.traces import Calls, step_facts
from tracellm.report.steps_table import step_rows
from tracellm.report.tree.folded import folded
from tracellm.report.tree.nodes import walk
from tracellm.report.wording.changes import alike
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.steps import steps

DECODE = dict[str, Any]()
"""A step that decodes for requests 0 and 1."""


def run(*changed: dict[str, Any]) -> Trace:
    """Return a run of decode steps for requests 0 and 1, each with these attributes replaced."""
    calls = Calls()
    with calls("hello.py", lifeline="hello.py"):
        for index, change in enumerate(changed, start=1):
            with calls("EngineCore.step_fn", **(step_facts(index, ["0", "1"]) | change)):
                calls.leaf("Scheduler.schedule")
    return calls.trace()


def groups(trace: Trace) -> list[list[int]]:
    """Return the step indexes of each group, checked against the table's rows."""
    rows = [[step.index for step in row.steps] for row in step_rows(trace)]
    drawn = [[step.index for step in node.steps] for node in walk(folded(trace).roots) if node.kind == "steps"]
    assert drawn == rows
    return rows


def mixed(*phases: str, sampled: list[str]) -> dict[str, Any]:
    """Return a step with some requests in chunked prefill and others in decode."""
    return {names.STEP_KIND: "mixed", names.STEP_PHASES: list(phases), names.STEP_SAMPLED: sampled}


CHUNK = {names.STEP_KIND: "prefill", names.STEP_PHASES: ["prefill"] * 2, names.STEP_SAMPLED: []}
"""One chunk of the prefill of both requests, not the last one."""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param([DECODE] * 5, [[1, 2, 3, 4, 5]], id="nothing"),
        pytest.param(
            [DECODE, DECODE, {names.STEP_REQUESTS: ["0"]}, {names.STEP_REQUESTS: ["0"]}],
            [[1, 2], [3, 4]],
            id="membership",
        ),
        pytest.param(
            [DECODE, DECODE, {names.STEP_REQUESTS: ["1", "0"]}, DECODE], [[1, 2], [3], [4]], id="order in the batch"
        ),
        pytest.param([DECODE, {names.STEP_NEW: ["1"]}, DECODE, DECODE], [[1], [2], [3, 4]], id="a request joined"),
        pytest.param([DECODE, {names.STEP_PREEMPTED: ["2"]}, DECODE, DECODE], [[1], [2], [3, 4]], id="preemption"),
        pytest.param([DECODE, {names.STEP_RESUMED: ["1"]}, DECODE, DECODE], [[1], [2], [3, 4]], id="come back"),
        pytest.param([DECODE, {names.STEP_CACHED: [0, 16]}, DECODE, DECODE], [[1], [2], [3, 4]], id="prefix hit"),
        pytest.param(
            [{names.STEP_CACHED: [0, 16]}, {names.STEP_CACHED: [0, 16]}, DECODE], [[1], [2], [3]], id="hits in both"
        ),
        pytest.param([{names.STEP_HELD: ["2"]}, {names.STEP_HELD: ["2"]}, DECODE], [[1, 2], [3]], id="held"),
        pytest.param(
            [
                mixed("decode", "prefill", sampled=["0"]),
                mixed("decode", "prefill", sampled=["0"]),
                mixed("decode", "prefill", sampled=["0", "1"]),
                DECODE,
                DECODE,
            ],
            [[1, 2], [3], [4, 5]],
            id="the last chunk beside a decode",
        ),
        pytest.param(
            [
                mixed("prefill", "decode", sampled=["0", "1"]),
                mixed("decode", "prefill", sampled=["0", "1"]),
            ],
            [[1], [2]],
            id="phases of a mixed batch",
        ),
        pytest.param(
            [CHUNK, CHUNK, CHUNK | {names.STEP_SAMPLED: ["0", "1"]}, DECODE],
            [[1, 2], [3], [4]],
            id="chunks, then decode",
        ),
    ],
)
def test_a_group_ends_where_something_changes(changed: list[dict[str, Any]], expected: list[list[int]]):
    """Equal steps are one group in tree and table, and a step with a change stands alone."""
    assert groups(run(*changed)) == expected


def test_alike_goes_both_ways():
    """Equality of two steps does not depend on their order."""
    found = [
        step.span
        for step in steps(run(DECODE, {names.STEP_CACHED: [16, 0]}, mixed("decode", "prefill", sampled=["0"]), DECODE))
    ]
    for one in found:
        for other in found:
            assert alike(one, other) == alike(other, one)
    assert alike(found[0], found[3])


def test_generations_with_other_hits_are_not_one():
    """Generations that differ in a prefix hit have separate prefills and common decode steps."""
    calls = Calls()
    prefill = {names.STEP_KIND: "prefill", names.STEP_NEW: ["0", "1"], names.STEP_PHASES: ["prefill"] * 2}
    with calls("hello.py", lifeline="hello.py"):
        for generation in range(3):
            with calls("LLM.generate", line=(7, "llm.generate()")):
                for number in range(4):
                    facts = step_facts(4 * generation + number + 1, ["0", "1"])
                    facts |= prefill if number == 0 else {}
                    facts |= {names.STEP_CACHED: [16, 16]} if number == 0 and generation else {}
                    calls.leaf("EngineCore.step_fn", **facts)
    found = [[step.index for step in node.steps] for node in walk(folded(calls.trace()).roots) if node.kind == "steps"]
    assert found == [[1], [5, 9], [2, 3, 4, 6, 7, 8, 10, 11, 12]]
