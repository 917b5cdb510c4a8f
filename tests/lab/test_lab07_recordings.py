"""The recorded workloads of labs 7 and 8: the engine decides as vLLM did, and each group shows its subject."""

import pytest

from tracellm.lab.labs.lab07_continuous_batching.checks import CHECKS as LAB7
from tracellm.lab.labs.lab07_continuous_batching.checks import Recorded
from tracellm.lab.labs.lab07_continuous_batching.workload import Workload, recorded
from tracellm.lab.labs.lab08_chunks_and_preemption.checks import CHECKS as LAB8

CHECKS = [check for check in (*LAB7, *LAB8) if isinstance(check, Recorded)]


def workloads(check: Recorded) -> list[Workload]:
    """Return all recorded workloads of a check's group."""
    return [one for name, one in recorded(check.folder).items() if name.rpartition("-")[0] == check.group]


def preempts(workload: Workload) -> bool:
    """Return whether a running request returns to the waiting queue."""
    running: set[str] = set()
    for step in workload["steps"]:
        if running & set(step["waiting"]):
            return True
        running = set(step["running"])
    return False


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.group)
def test_the_engine_decides_as_vllm(check: Recorded) -> None:
    """In every step of every recorded workload, the engine's decisions equal vLLM's, down to the block ids."""
    assert len(workloads(check)) == 14
    for workload in workloads(check):
        case = {key: value for key, value in workload.items() if key not in ("steps", "engine")}
        assert check.judge(case, check.run(case), None) is None, workload["name"]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.group)
def test_preemptions_are_where_they_belong(check: Recorded) -> None:
    """No workload of lab 7 preempts; in lab 8 all of the last three groups do."""
    expected = check.group in ("preempt", "resume", "priority")
    assert {preempts(workload) for workload in workloads(check)} == {expected}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.group)
def test_a_changed_workload_is_compared_with_the_engine(check: Recorded) -> None:
    """A workload that a student has changed has no recording, and the engine's decisions are the right ones."""
    workload = workloads(check)[0]
    case = {key: value for key, value in workload.items() if key not in ("steps", "engine")}
    case["requests"] = case["requests"][:1]
    assert check.judge(case, check.run(case), None) is None
