"""Tests of the comparison: it finds differences, and excuses only near-ties."""

from copy import deepcopy

import pytest

import tracellm
from tests.engine.parity import explain as explaining
from tests.engine.parity.cases import scheduler_cases
from tests.engine.parity.compare import compare_batches, count_values
from tests.engine.parity.drive import Library, run_case
from tracellm.engine.sample import sampling_params

TRACELLM = Library.of(tracellm, sampling_params)


@pytest.fixture
def case():
    """Return the shortest recording, for tests to change."""
    return deepcopy(min(scheduler_cases(), key=lambda case: len(case["recorded"][0]["steps"])))


def test_a_wrong_token_is_no_near_tie(case):
    """A different token is shown with both logits, and is a mistake if these are far apart."""
    (recorded,) = case["recorded"]
    tokens = recorded["outputs"][0][-1][0]["token_ids"]
    ours, tokens[0] = tokens[0], (tokens[0] + 1) % 4096
    verdict = explaining.explain(TRACELLM, case)
    assert not verdict.near_tie
    assert f"is {tokens[0]} in vLLM (logit " in verdict.text
    assert f"and {ours} in tracellm (logit " in verdict.text
    tally, difference = compare_batches(case, run_case(TRACELLM, case))
    assert difference is not None
    assert (difference.step, tally.tokens - tally.tokens_equal) == (None, 1)
    assert tally.decisions == tally.decisions_equal > 0


def test_a_near_tie_is_excused(case, monkeypatch):
    """A different token is excused if the logits differ by less than rounding."""
    tokens = case["recorded"][0]["outputs"][0][-1][0]["token_ids"]
    tokens[0] = (tokens[0] + 1) % 4096
    monkeypatch.setattr(explaining, "NEAR", 100.0)
    assert explaining.explain(TRACELLM, case).near_tie


def test_a_wrong_decision_is_shown_side_by_side(case, monkeypatch):
    """The first step that differs is reported with both sides, and no near-tie excuses it."""
    monkeypatch.setattr(explaining, "NEAR", 100.0)
    steps = case["recorded"][0]["steps"]
    steps[3]["free_blocks"] += 1
    steps[4]["running"].append("nobody")
    verdict = explaining.explain(TRACELLM, case)
    assert not verdict.near_tie
    assert "the first step that differs is number 3:" in verdict.text
    assert (
        f"-> free_blocks\n     vLLM     {steps[3]['free_blocks']}\n     tracellm {steps[3]['free_blocks'] - 1}"
        in verdict.text
    )
    tally, difference = compare_batches(case, run_case(TRACELLM, case))
    assert difference is not None
    assert difference.step == 3
    assert tally.decisions - tally.decisions_equal == 2


def test_a_run_that_ends_too_late_differs(case):
    """Steps that vLLM did not run count as a difference."""
    case["recorded"][0]["steps"].pop()
    _, difference = compare_batches(case, run_case(TRACELLM, case))
    assert difference is not None
    assert "tracellm went on" in difference.text


def test_values_are_counted_at_their_places():
    """Values that only one side has count as different, at any depth."""
    assert count_values({"a": [1, 2], "b": {}}, {"a": [1, 3], "b": {}}) == (2, 1)
    assert count_values([1], [1, [2, 3]]) == (3, 1)
    assert count_values({"a": [1, 2]}, {}) == (2, 0)
    assert count_values(None, None) == (1, 1)
