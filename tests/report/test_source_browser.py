"""The section "Source" in a real browser: search, selection, address, languages, and text as data."""

from pathlib import Path
from typing import Any

import pytest

from scripts.vllm_sources import our_functions
from tests.browser import Browser
from tests.report.synthetic import HOSTILE, MANIFEST
from tests.report.traces import Calls, step_facts
from tracellm import __version__
from tracellm.report.html import report_html
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder

_ENGINE = "tracellm.engine"
_CALLED = (
    ("LLM.generate", f"{_ENGINE}.entrypoints.llm.LLM.generate"),
    ("Scheduler.schedule", f"{_ENGINE}.core.sched.scheduler.Scheduler.schedule"),
    ("EngineCore._schedule", f"{_ENGINE}.core.core.EngineCore._schedule"),
    ("Processor.process_inputs", f"{_ENGINE}.frontend.processor.Processor.process_inputs"),
    ("import_libraries", f"{_ENGINE}.config.libraries.import_libraries"),
)
_ROWS = "return [...document.querySelectorAll('.source-index [data-source]')].filter(row => row.offsetParent).map("
_SHOWN = "return document.querySelector('.source-shown').innerText"


def _page(folder: Path, version: str = __version__, step: dict[str, Any] | None = None) -> Path:
    calls = Calls()
    if step is not None:
        calls.leaf("EngineCore.step_fn", **step)
    for name, function in _CALLED:
        found = our_functions()[function]
        line = min([found.node.lineno, *(one.lineno for one in found.node.decorator_list)])
        code: dict[str, Any] = {names.CODE_FUNCTION: function, names.CODE_FILE: found.file, names.CODE_LINE: line}
        calls.leaf(name, **code, line=(7, HOSTILE[0]) if name == "LLM.generate" else None)
    code = {names.CODE_FUNCTION: HOSTILE[2], names.CODE_FILE: HOSTILE[5], names.CODE_LINE: 1}
    calls.leaf(HOSTILE[1], **code)
    file = folder / "report.html"
    run = RunFolder(Path("a-run"), {**MANIFEST, "tracellm": version}, calls.trace(), [])
    file.write_text(report_html(run), encoding="utf-8")
    return file


def _open(browser: Browser, file: Path, hash: str = "", width: int = 1280) -> None:
    browser.visit("about:blank")
    browser.visit(file.resolve().as_uri() + hash, width=width)
    assert browser.wait("document.documentElement.dataset.ready")


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Path:
    """Open the page of a run of a few functions, and return its file."""
    file = _page(tmp_path)
    _open(browser, file)
    return file


def test_a_function_shows_its_lines_and_counterparts(browser: Browser, page: Path):
    """A click shows a function's lines, both counterparts as links, and what changed; a second click hides it."""
    browser.click("[data-source='Scheduler.schedule']")
    shown = browser.run(_SHOWN)
    assert "def schedule(self)" in shown
    first = our_functions()[_CALLED[1][1]].node.lineno
    assert browser.run("return document.querySelector('.code-line').dataset.line") == str(first)
    links = browser.run("return [...document.querySelectorAll('.versions a')].map(link => [link.href, link.rel])")
    assert [link.split("#")[0] for link, _ in links] == [
        f"https://github.com/vllm-project/vllm/blob/v{version}/vllm/v1/core/sched/scheduler.py"
        for version in ("0.11.1", "0.32.0")
    ]
    assert {rel for _, rel in links} == {"noreferrer"}
    assert "Parameters added: throttle_prefills." in shown
    assert browser.run("return location.hash") == "#source=Scheduler.schedule"
    browser.click("[data-source='Scheduler.schedule']")
    assert browser.run(_SHOWN) == ""
    assert browser.log() == []


def test_an_address_opens_a_function(browser: Browser, page: Path):
    """`#source=` opens a function and marks it in the index; an unknown one opens none."""
    _open(browser, page, "#source=Processor.process_inputs")
    assert "Processor.process_inputs is now InputProcessor.process_inputs." in browser.run(_SHOWN)
    pressed = "return document.querySelector('.source-index [aria-pressed=true]').textContent"
    assert browser.run(pressed) == "process_inputs"
    browser.run("location.hash = '#source=EngineCore._schedule'")
    assert browser.wait("document.querySelector('.source-shown').innerText.includes('EngineCore.step')")
    assert "It is a part of this function." in browser.run(_SHOWN)
    _open(browser, page, "#source=Nothing.at_all")
    assert browser.run(_SHOWN) == ""


def test_search_finds_functions_by_name_and_file(browser: Browser, page: Path):
    """All words must occur in the names or files, here or in vLLM; the number of matches is shown."""
    search = "const field = document.querySelector('.source-search'); field.value = '{}'; field.oninput?.(); "
    search += "field.dispatchEvent(new Event('input'))"
    everything = len(browser.run(f"{_ROWS} row => row.dataset.source)"))
    browser.run(search.format("core.py schedule"))
    assert browser.run(f"{_ROWS} row => row.dataset.source)") == ["EngineCore._schedule"]
    status = browser.run("return document.querySelector('.source-bar [role=status]').textContent")
    assert status == f"1 of {everything} functions"
    browser.run(search.format("input_processor.py"))
    assert browser.run(f"{_ROWS} row => row.dataset.source)") == ["Processor.process_inputs"]
    browser.run(search.format(""))
    assert len(browser.run(f"{_ROWS} row => row.dataset.source)")) == everything > len(_CALLED)


def test_search_finds_the_lines_that_preempt(browser: Browser, page: Path):
    """A text in the code lists its lines; a click on one shows the function, with all of them marked and counted."""
    browser.run(
        "const field = document.querySelector('.source-search'); field.value = 'preempt';"
        "field.dispatchEvent(new Event('input'))"
    )
    shown = browser.run(f"{_ROWS} row => row.dataset.source)")
    assert {"Scheduler._schedule_running", "Scheduler._preempt"} <= set(shown)
    assert "lines of code" in browser.run("return document.querySelector('.source-bar [role=status]').textContent")
    hit = "[...document.querySelectorAll('.hit')].find(line => line.textContent.includes('preempted.status') || "
    browser.run(f"{hit} line.textContent.includes('def _preempt')).click()")
    assert browser.run("return location.hash") == "#source=Scheduler._preempt"
    marked = browser.count(".code-line.found")
    assert f"{marked} lines with “preempt”" in browser.run(_SHOWN)
    assert "preempted.num_preemptions += 1" in browser.run(
        "return [...document.querySelectorAll('.code-line.found')].map(line => line.textContent.trim())"
    )
    assert browser.log() == []


def test_helpers_are_shown_with_links(browser: Browser, page: Path):
    """A helper has its own address, no calls, links from its caller's code, and its counterparts."""
    browser.click("[data-source='Scheduler.schedule']")
    browser.run("[...document.querySelectorAll('.code a')].find(a => a.textContent === '_schedule_running').click()")
    assert browser.run("return location.hash") == "#source=Scheduler._schedule_running"
    assert "Called by Scheduler.schedule, not recorded." in browser.run(_SHOWN)
    row = "document.querySelector(\"[data-source='Scheduler._schedule_running']\").closest('tr')"
    assert browser.run(f"return {row}.children[1].textContent") == "–"
    browser.run("location.hash = '#source=Scheduler._preempt'")
    assert browser.wait("document.querySelector('.source-shown h3').textContent === 'Scheduler._preempt'")
    assert "It was a part of Scheduler.schedule, and is now Scheduler._preempt_request." in browser.run(_SHOWN)
    browser.run("[...document.querySelectorAll('.source-shown p a')][0].click()")
    assert browser.run("return location.hash") == "#source=Scheduler._schedule_running"
    assert browser.log() == []


def test_a_function_of_our_own_gives_the_reason(browser: Browser, page: Path):
    """A function without a counterpart says why; one of another package shows only its place."""
    browser.click("[data-source='import_libraries']")
    assert "vLLM has no counterpart" in browser.run(_SHOWN)
    browser.run("[...document.querySelectorAll('.source-index [data-source]')].at(-1).click()")
    assert "neither to tracellm's engine nor to vLLM" in browser.run(_SHOWN)
    place = "[...document.querySelectorAll('.source-index [data-source]')].at(-1).closest('tr').children[2]"
    assert browser.run(f"return {place}.textContent") == "–"


def test_texts_of_the_run_are_data(browser: Browser, page: Path):
    """Names, files and the user's lines are shown as they are, and never run."""
    browser.click("[data-source='LLM.generate']")
    assert HOSTILE[0] in browser.run(_SHOWN)
    browser.run("[...document.querySelectorAll('.source-index [data-source]')].at(-1).click()")
    assert browser.dialog() is None
    assert browser.run("return document.title.includes('owned')") is False
    assert (
        browser.run("return document.querySelectorAll('.source-shown a, .source-shown script, svg[onload]').length")
        == 0
    )
    assert browser.log() == []


def test_another_version_shows_places_only(browser: Browser, tmp_path: Path):
    """A run of another tracellm shows no lines, and says why."""
    _open(browser, _page(tmp_path, version="0.0.1"), "#source=Scheduler.schedule")
    shown = browser.run(_SHOWN)
    assert "recorded with tracellm 0.0.1" in shown
    assert "tracellm/engine/core/sched/scheduler.py" in shown
    assert browser.count(".code") == 0


def test_the_language_switch_keeps_the_function(browser: Browser, page: Path):
    """Index and function are shown in the other language."""
    browser.click("[data-source='Scheduler.schedule']")
    browser.click("#language")
    assert browser.wait("document.documentElement.lang === 'zh-CN'")
    assert "新增参数：throttle_prefills。" in browser.run(_SHOWN)
    assert browser.run("return document.querySelector('#source').textContent") == "源代码"


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(browser: Browser, page: Path, width: int):
    """The page does not scroll sideways."""
    _open(browser, page, "#source=Scheduler.schedule", width=width)
    assert browser.run("return document.documentElement.scrollWidth") == width


def test_keys_choose_a_function(browser: Browser, page: Path):
    """A function is a button, so Enter chooses it; the focus stays."""
    browser.run("document.querySelector(\"[data-source='LLM.generate']\").focus()")
    browser.run("document.activeElement.click()")
    assert browser.run("return document.activeElement.dataset.source") == "LLM.generate"
    assert browser.run("return document.activeElement.getAttribute('aria-pressed')") == "true"


def test_a_reason_leads_to_its_lines(browser: Browser, tmp_path: Path):
    """The reason why a request waits has a link to the scheduler's loop, with a note on the loop in both versions."""
    held = {
        names.STEP_HELD: ["b"],
        names.STEP_HELD_REASONS: ["max_num_seqs"],
        names.STEP_HELD_DETAILS: ["running=1 limit=1"],
    }
    step = step_facts(1, ["a"], new=True) | held | {names.STEP_WAITING: ["b"], names.STEP_NUM_WAITING: 1}
    _open(browser, _page(tmp_path, step=step))
    browser.click("[data-shows=waiting] .why a")
    assert browser.wait("location.hash == '#step=1&source=Scheduler._schedule_waiting'")
    assert browser.wait("document.querySelector('.source-shown')")
    shown = browser.run(_SHOWN)
    assert "while self.waiting and step.token_budget > 0" in shown
    assert "max_num_active_reqs" in shown
