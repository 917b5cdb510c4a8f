"""The displays of a run and a step in a notebook: the report's facts, static, safe, and readable in a real browser."""

import re
from pathlib import Path

import pytest

import tracellm
from tests.browser import Browser, require_browser
from tests.notebook.conftest import Recorded
from tests.report.nasty import NASTY
from tracellm import Run, SamplingParams
from tracellm.report.texts import LANGUAGES
from tracellm.report.wording.request_names import without_shared_beginning


def test_a_run_shows_its_answer(recorded: Recorded):
    """Text and HTML have the figures, the client and the preemption; the HTML has no script."""
    bundle = recorded[0]._repr_mimebundle_()
    for part in bundle.values():
        assert "InprocClient" in part
        assert "was preempted after" in part
    assert "<script" not in bundle["text/html"]


def test_a_step_shows_budget_queues_and_blocks(recorded: Recorded):
    """Each scheduled request has a part of the budget, each waiting one its reason, each block in use a cell."""
    run, *_ = recorded
    step = next(step for step in run.steps if step.preempted)
    bundle = step._repr_mimebundle_()
    assert bundle["text/plain"] == step.text()
    page = bundle["text/html"]
    assert len(re.findall(r'<rect x="', page)) == len(step.scheduled)
    assert all(why.replace("'", "&#x27;") in page for why in step.reasons.values())
    used = {block for table in step.kv_blocks.values() for block in table}
    assert (
        len(re.findall('<g transform="translate\\([0-9 ]+\\)"><title>', page))
        == max(used | set(step.cached_blocks)) + 1
    )


def test_hostile_names_stay_text(tmp_path: Path):
    """A request's id is text in the display, whatever characters it has."""
    with tracellm.explain(tmp_path / "run", lang="en") as run:
        engine = tracellm.LLM(dtype="float32", max_model_len=64).llm_engine
        engine.add_request(" ".join(NASTY), "a", SamplingParams(max_tokens=1))
        while engine.has_unfinished_requests():
            engine.step()
    for shown in (run, run.steps[0]):
        page = shown._repr_mimebundle_()["text/html"]
        assert "<script" not in page
        assert "<img" not in page


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_displays_fit_a_cell(recorded: Recorded, tmp_path: Path, lang: str):
    """In a browser, both displays are as wide as a narrow cell at most, and nothing in them is cut off unseen."""
    require_browser()
    run = tracellm.open_run(recorded[0].folder, lang=lang)
    shown: tuple[Run, object] = (run, run.steps[0])
    pages = [one._repr_mimebundle_()["text/html"] for one in shown]  # type: ignore[attr-defined]
    (tmp_path / "cell.html").write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{''.join(pages)}", encoding="utf-8")
    with Browser() as browser:
        browser.open(tmp_path / "cell.html", width=600, height=900)
        assert browser.run("return document.documentElement.scrollWidth") <= 600
        assert browser.run("return document.querySelectorAll('svg').length") == 2


def test_names_lose_what_all_begin_with():
    """Names are cut after the last separator that all share; one name, or equal ones, stay whole."""
    assert without_shared_beginning(["user-12", "user-1", "user-7"]) == ["12", "1", "7"]
    assert without_shared_beginning(["a-b", "a-c-d", "x"]) == ["a-b", "a-c-d", "x"]
    assert without_shared_beginning(["a-1"]) == ["a-1"]
    assert without_shared_beginning(["a-", "a-1"]) == ["a-", "1"]
    assert without_shared_beginning([]) == []
