"""Problems of a run folder: data with a sentence in every language."""

import pytest

from tracellm.report.texts import LANGUAGES
from tracellm.report.wording.problems import problem_text
from tracellm.trace.problems import PROBLEMS, Problem

VALUES = {name: f"<{name}>" for name in ("path", "reason", "schema", "known", "file", "count", "lines", "version")}


def test_a_problem_is_its_english_sentence():
    """A problem is a str in English, with its code and values."""
    problem = Problem("trace_empty", file="trace/a.jsonl")
    assert problem == "trace/a.jsonl is empty: its part of the recording is lost"
    assert (problem.code, problem.values) == ("trace_empty", {"file": "trace/a.jsonl"})
    with pytest.raises(KeyError):
        Problem("no such code")


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("code", PROBLEMS)
def test_every_problem_can_be_told_in_every_language(code: str, lang: str):
    """Each code has a sentence in each language, with the same values as the English one."""
    problem = Problem(code, **VALUES)
    actual = problem_text(problem, lang)
    assert (actual == problem) is (lang == "en")
    english = {name for name in VALUES.values() if name in problem}
    assert {name for name in VALUES.values() if name in actual} | {"<count>"} >= english


def test_what_has_no_code_is_told_as_it_is():
    """A problem that is plain text has no translation."""
    assert problem_text("anything", "zh") == "anything"
