"""The displays of a run and a step in a notebook: the report's facts, static, safe, and readable in a real browser."""

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tracellm
from tests.browser import Browser, require_browser
from tests.notebook.conftest import Recorded
from tests.report.nasty import NASTY
from tracellm import Run, SamplingParams
from tracellm.report.html import cell
from tracellm.report.html.cell import cell_frame
from tracellm.report.texts import LANGUAGES, text
from tracellm.report.wording.request_names import without_shared_beginning


def test_a_run_shows_its_answer(recorded: Recorded):
    """Text and HTML have the figures, the client and the preemption; the HTML has no script."""
    bundle = recorded[0]._repr_mimebundle_()
    for part in bundle.values():
        assert "InprocClient" in part
        assert "was preempted after" in part
    assert "<script" not in bundle["text/html"]  # that of the frame is in an attribute


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
def test_requests_and_steps_are_tables(recorded: Recorded, lang: str):
    """Requests are shown with the report's columns, a row each, in text and HTML; steps as the command shows them."""
    run = tracellm.open_run(recorded[0].folder, lang=lang)
    lines = str(run.requests).splitlines()
    assert text(lang, "page.requests.preemptions") in lines[0]
    assert len(lines) == 1 + len(run.requests)
    for request, line in zip(run.requests, lines[1:], strict=True):
        numbers = [request.num_prompt_tokens, request.num_cached_tokens, request.num_output_tokens]
        assert line.split()[:4] == [request.id, *map(str, numbers)]
    bundle = run.requests._repr_mimebundle_()
    assert bundle["text/plain"] == str(run.requests)
    assert bundle["text/html"].count("<tr") == 1 + len(run.requests)
    assert run.steps._repr_mimebundle_()["text/plain"] == str(run.steps)


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


@pytest.fixture
def browser() -> Iterator[Browser]:
    """A browser."""
    require_browser()
    with Browser() as opened:
        yield opened


def a_cell(run: Run, tmp_path: Path) -> Path:
    """Return a page with the display of a run."""
    page = tmp_path / "cell.html"
    page.write_text(f"<!DOCTYPE html><meta charset=utf-8>{run._repr_mimebundle_()['text/html']}", encoding="utf-8")
    return page


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_run_has_a_frame_with_its_steps(recorded: Recorded, browser: Browser, tmp_path: Path, lang: str):
    """In a sandboxed frame, the steps of the page's own script can be walked through, and requests selected."""
    run = tracellm.open_run(recorded[0].folder, lang=lang)
    browser.open(a_cell(run, tmp_path), width=700)
    browser.click("details summary")
    browser.enter("iframe[sandbox='allow-scripts']")
    assert browser.wait("document.documentElement.dataset.ready")
    number = "return document.querySelector('#step h3').firstChild.data.match(/[0-9]+/)[0]"
    assert browser.run(number) == "1"
    browser.click(".step-bar button:nth-of-type(4)")
    assert browser.run(number) == "2"
    browser.click("#request-table [data-request='2']")
    assert browser.run("return document.querySelector('.request-details h4').textContent").endswith("2")
    assert browser.run("return document.documentElement.scrollWidth - innerWidth") <= 0
    assert browser.log() == []


def test_the_frame_works_under_the_policies_of_other_front_ends(recorded: Recorded, browser: Browser, tmp_path: Path):
    """The frame runs under the policy of VS Code's outputs, and in a sandboxed frame such as Colab's."""
    shown = tracellm.open_run(recorded[0].folder, lang="en")._repr_mimebundle_()["text/html"]
    page = "<!DOCTYPE html><meta charset=utf-8>"
    allowed = "script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; child-src https: data:"
    code = f"default-src 'none'; {allowed}"
    (tmp_path / "code.html").write_text(f'{page}<meta http-equiv="Content-Security-Policy" content="{code}">{shown}')
    (tmp_path / "colab.html").write_text(
        f'{page}<iframe id="output" style="width:900px;height:900px" sandbox="allow-scripts allow-forms" '
        f'srcdoc="{html.escape(page + shown)}"></iframe>'
    )
    for name in ("code", "colab"):
        browser.open(tmp_path / f"{name}.html")
        if name == "colab":
            browser.enter("#output")
        browser.click("details summary")
        browser.enter("iframe[sandbox='allow-scripts']")
        assert browser.wait("document.documentElement.dataset.ready"), name
        assert browser.log() == []


def test_a_long_run_has_its_first_steps_in_the_frame(recorded: Recorded, browser: Browser, tmp_path: Path):
    """A frame is not larger than its limit; the steps that it leaves out are counted, and their display has none."""
    run, *_ = recorded
    whole = cell_frame(run.trace, "en")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell, "MOST_CHARACTERS", len(whole) - 1)
        cut = cell_frame(run.trace, "en")
        assert len(cut) < len(whole)
        kept = len(run.steps) // 2
        assert f"The first {kept} of {len(run.steps)} steps" in cut
        assert cell_frame(run.trace, "en", (0, kept)) == ""
        browser.open(a_cell(tracellm.open_run(run.folder, lang="en"), tmp_path))
    browser.click("details summary")
    browser.enter("iframe")
    assert browser.wait("document.documentElement.dataset.ready")
    assert browser.run("return document.querySelector('.step-bar output').textContent") == f"1 of {kept}"


def test_names_lose_what_all_begin_with():
    """Names lose the kind of a server's request, and what all begin with; one name, or equal ones, stay whole."""
    assert without_shared_beginning(["user-12", "user-1", "user-7"]) == ["12", "1", "7"]
    assert without_shared_beginning(["a-b", "a-c-d", "x"]) == ["a-b", "a-c-d", "x"]
    assert without_shared_beginning(["a-1"]) == ["a-1"]
    assert without_shared_beginning(["chatcmpl-5f0c", "0_cmpl-7e1a", "resp_12"]) == ["5f0c", "0_7e1a", "12"]
    assert without_shared_beginning(["cmpl-12", "resp-12", "my-request"]) == ["cmpl-12", "resp-12", "my-request"]
    assert without_shared_beginning(["my-cafe-3", "my-face-4", "x"]) == ["my-cafe-3", "my-face-4", "x"]
    assert without_shared_beginning(["a-", "a-1"]) == ["a-", "1"]
    assert without_shared_beginning([]) == []
