"""Predictions: compared with what the engine did, with its reason; wrong questions are refused."""

import re

import pytest

from tests.notebook.conftest import PROMPTS, Recorded
from tracellm import open_run
from tracellm.cli.errors import CommandError
from tracellm.notebook.predict import QUESTIONS
from tracellm.report.texts import LANGUAGES


def test_each_question_has_the_value_of_the_recording(recorded: Recorded):
    """The values are those of the run's steps and requests, and of the engine's own outputs and inputs."""
    run, inputs, outputs = recorded
    busiest = max(run.steps, key=lambda step: len(step.scheduled))
    last = run.requests[-1]
    step = last.steps[-1]
    expected = {
        "client": "InprocClient",
        "processes": 1,
        "steps": len(inputs),
        "batch": len(inputs[run.steps.index(busiest)]),
        "tokens": sum(len(own[0]) for own in inputs[run.steps.index(busiest)].values()),
        "blocks": len(inputs[run.steps.index(step)][last.id][3]),
        "cached": 0,
        "waits": sum(last.id in one.waiting for one in run.steps[: run.steps.index(last.steps[0])]),
        "preemptions": sum(len(one.preempted) for one in run.steps),
        "slot": inputs[run.steps.index(step)][last.id][2][-1],
        "token": outputs[-1].outputs[0].text[-len(step.sampled[last.id].text or "") :],
        "finish": "length",
    }
    assert expected.keys() == QUESTIONS.keys()
    for what, value in expected.items():
        number = busiest.number if what in ("batch", "tokens") else step.number
        found = run.predict(what, value, request=len(PROMPTS) - 1, step=number)
        assert (found.value, found.right) == (value, True), what
        assert str(found).startswith("✓")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_wrong_prediction_has_the_reason(recorded: Recorded, lang: str):
    """A wrong prediction is shown with the right value and its reason; one not yet made is asked for."""
    run = open_run(recorded[0].folder, lang=lang)
    blocks = len(run.requests[0].blocks)
    wrong = run.predict("blocks", blocks + 7, request="0")
    assert not wrong.right
    assert str(wrong).startswith("✗")
    assert {str(blocks), str(blocks + 7), "16"} <= set(re.findall(r"\d+", str(wrong)))
    assert str(blocks) not in str(run.predict("blocks", ..., request="0"))
    html = wrong._repr_mimebundle_()["text/html"]
    assert str(wrong) in html


def test_a_question_must_exist_and_be_complete(recorded: Recorded):
    """A question that does not exist, or that lacks its request or step, is refused with a message."""
    run, *_ = recorded
    with pytest.raises(CommandError, match="no question 'colour'; questions: client"):
        run.predict("colour", 1)
    with pytest.raises(CommandError, match="'blocks' is about a request: give request="):
        run.predict("blocks", 1)
    with pytest.raises(CommandError, match="'tokens' is about a step: give step="):
        run.predict("tokens", 1)
    with pytest.raises(KeyError, match="no request 'x'"):
        run.predict("blocks", 1, request="x")
