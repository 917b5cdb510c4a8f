"""Predict mode of the page in a real browser: a whole quiz, its score, keys, address, languages, and no leaks."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser
from tests.report.synthetic import HOSTILE, a_run, a_run_folder
from tracellm.report.html import report_html
from tracellm.report.texts import Language
from tracellm.trace import names
from tracellm.trace.model import Span

_STEPS = 17
_STEP = "return document.querySelector('#step h3').firstChild.textContent"
_ASKED = "return document.querySelector('.ask').textContent"
_CHOICES = "return [...document.querySelectorAll('.choice')].map(one => one.children[1].textContent)"
_RIGHT = "return [...document.querySelectorAll('.choice')].findIndex(one => one.classList.contains('right'))"
_SHOWN = "return ['.gantt', '.step-list', '#step'].map(part => document.querySelector(part).outerHTML)"


def _spans(last: int = _STEPS) -> list[Span]:
    """Return a run's spans with its steps up to `last`: request 2 waits, and request 0 gets another block."""
    spans = []
    for span in a_run(text=True):
        index = span.attributes.get(names.STEP_INDEX, 0)
        if span.name == "EngineCore.step_fn":
            if index > last:
                continue
            held = {names.STEP_HELD: ["2"], names.STEP_HELD_REASONS: ["max_num_seqs"]}
            span.attributes |= {names.STEP_WAITING: ["2"], names.STEP_HELD_DETAILS: ["running=2 limit=2"], **held}
            if index == 12:
                span.attributes |= {names.STEP_NEW_BLOCKS: ["9"], names.STEP_BLOCKS_FREE: 4093}
        spans.append(span)
    return spans


def _open(browser: Browser, file: Path, spans: list[Span], hash: str, lang: Language = "en", **window: Any) -> None:
    file.write_text(report_html(a_run_folder(spans), lang), encoding="utf-8")
    browser.visit("about:blank")
    browser.visit(file.resolve().as_uri() + hash, **window)
    assert browser.wait("document.documentElement.dataset.ready")


def _press(browser: Browser, key: str) -> None:
    browser.run(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")


@pytest.mark.parametrize(("lang", "score"), [("en", "16 of 16"), ("zh", "16 / 16")])
def test_a_whole_quiz_by_keys(browser: Browser, tmp_path: Path, lang: Language, score: str):
    """Every step is asked about; the second time, the learned answers are all right, and the score says so."""
    _open(browser, tmp_path / "report.html", _spans(), "#step=1&predict=1", lang)
    browser.run("document.getElementById('replay').scrollIntoView()")
    learned: list[int] = []
    asked: list[str] = []
    for step in range(1, _STEPS):
        asked.append(browser.run(_ASKED))
        assert str(step + 1) in asked[-1]
        assert browser.run(_RIGHT) == -1
        assert browser.run("return document.querySelector('.verdict').textContent") == ""
        _press(browser, "1")
        learned.append(browser.run(_RIGHT))
        assert browser.run("return document.querySelector('.verdict').textContent") != ""
        _press(browser, "Enter")
        assert browser.run("return tracellm.score().asked") == step
    first = browser.run("return tracellm.score()")
    assert first["right"] == learned.count(0) < 16
    assert len({answer["kind"] for answer in first["answers"]}) >= 6
    assert not any("page." in text for text in asked)
    browser.click(".restart")
    assert browser.run("return tracellm.score().asked") == 0
    for answer in learned:
        _press(browser, str(answer + 1))
        _press(browser, "Enter")
    assert browser.run("return document.querySelector('.score').textContent") == score
    assert browser.run("return document.querySelector('.quiz').textContent").count("16") == 2
    assert browser.log() == []


def test_right_answers_are_those_of_the_step(browser: Browser, tmp_path: Path):
    """Right answers equal the data of the console: tokens, free blocks, kinds and requests."""
    _open(browser, tmp_path / "report.html", _spans(), "#step=1&predict=1")
    browser.run("document.getElementById('replay').scrollIntoView()")
    checked = set()
    for index in range(2, _STEPS + 1):
        _press(browser, "1")
        step, right = browser.run(f"return tracellm.step({index})"), browser.run(_CHOICES)[browser.run(_RIGHT)]
        kind = browser.run("return tracellm.score().answers.at(-1).kind")
        expected = {
            "phase": step["kind"],
            "tokens": f"{step['prefill'] + step['decode']} token",
            "free": f"{step['free']:,} blocks",
            "wait": "2 requests are already running, max_num_seqs is 2",
            "joins": "none",
        }
        if kind in expected:
            assert right.startswith(expected[kind]), kind
            checked.add(kind)
        _press(browser, "Enter")
    assert len(checked) >= 3


@pytest.mark.parametrize("last", [1, 8, 11])
def test_the_views_show_nothing_of_later_steps(browser: Browser, tmp_path: Path, last: int):
    """Picture, list and panels are those of a run that ends with the step, with a block and a request selected."""
    shown = []
    for steps in (_STEPS, last):
        _open(browser, tmp_path / "report.html", _spans(steps), f"#step={last}&request=0&block=1&predict=1")
        shown.append([re.sub(r"tracellm-\S+", "", part) for part in browser.run(_SHOWN)])
        assert browser.run("return document.querySelector('.step-bar output').textContent") == f"Step {last}"
        assert browser.run("return document.querySelector('[type=range]').max") == str(last - 1)
    assert shown[0] == shown[1]


def test_only_an_answer_or_skipping_leads_on(browser: Browser, tmp_path: Path):
    """Keys, buttons and the slider end at the last step that was reached, and an answer opens the next one."""
    _open(browser, tmp_path / "report.html", _spans(), "#step=5&predict=1")
    browser.run("document.getElementById('replay').scrollIntoView()")
    for key in ("ArrowRight", "PageDown", "End", " ", "Enter"):
        _press(browser, key)
        assert browser.run(_STEP) == "Step 5"
    assert browser.run("return document.querySelector('[aria-label=Play]').disabled")
    browser.click("[aria-label='Last step']")
    assert browser.run(_STEP) == "Step 5"
    _press(browser, "9")
    assert browser.run("return tracellm.score().asked") == 0
    browser.click(".choice")
    assert browser.run("return document.activeElement.className") == "go-on"
    assert browser.count(".choice:disabled") == browser.count(".choice")
    browser.click(".go-on")
    assert browser.run(_STEP) == "Step 6"
    assert "ask" in browser.run("return document.activeElement.className")
    browser.click(".skip")
    assert browser.run(_STEP) == "Step 7"
    _press(browser, "Home")
    _press(browser, "End")
    assert browser.run(_STEP) == "Step 7"
    assert browser.run("return tracellm.score().asked") == 1


def test_parts_of_the_page_that_show_later_steps_are_hidden(browser: Browser, tmp_path: Path):
    """While a question is open, findings, requests, diagram and calls are hidden; the switch shows them again."""
    _open(browser, tmp_path / "report.html", _spans(), "#step=3&predict=1")
    views = ("#answer", "#requests", "#sequence", "#timeline", "#calls")
    assert not any(browser.displayed(view) for view in views)
    assert browser.displayed("#inside")
    browser.click(".predict-switch")
    assert all(browser.displayed(view) for view in views)


def test_the_switch_is_part_of_the_address(browser: Browser, tmp_path: Path):
    """The switch shows and hides the question, keeps the score, and the address has it."""
    _open(browser, tmp_path / "report.html", _spans(), "#step=3")
    assert not browser.displayed(".quiz")
    browser.click(".predict-switch")
    assert browser.run("return location.hash") == "#step=3&predict=1"
    question = browser.run(_ASKED)
    browser.click(".choice")
    browser.click(".predict-switch")
    assert browser.run("return location.hash") == "#step=3"
    assert not browser.displayed(".quiz")
    assert browser.run("return document.querySelector('.step-bar output').textContent") == "3 of 17"
    assert browser.run("return document.querySelector('.score').textContent").endswith(" of 1")
    _open(browser, tmp_path / "report.html", _spans(), "#step=3&predict=1")
    assert browser.run(_ASKED) == question


def test_the_language_switch_keeps_question_and_answer(browser: Browser, tmp_path: Path):
    """The question, its choices and its verdict change their language, and the answer stays."""
    _open(browser, tmp_path / "report.html", _spans(), "#step=4&predict=1")
    browser.click(".choice")
    right, question = browser.run(_RIGHT), browser.run(_ASKED)
    browser.click("#language")
    assert browser.wait("document.documentElement.lang === 'zh-CN'")
    assert browser.run(_ASKED) != question
    assert "第 5 步" in browser.run(_ASKED)
    assert browser.run(_RIGHT) == right
    assert browser.run("return tracellm.score().asked") == 1


@pytest.mark.parametrize("bad", HOSTILE)
def test_a_questions_text_is_data(browser: Browser, tmp_path: Path, bad: str):
    """Ids, token texts and reasons with markup are shown literally in questions, choices and explanations."""
    spans = a_run(decode_steps=12)
    for span in spans:
        for name in (names.STEP_REQUESTS, names.STEP_RUNNING, names.STEP_SAMPLED, names.STEP_NEW, names.STEP_FINISHED):
            if name in span.attributes:
                span.attributes[name] = [bad for _ in span.attributes[name][:1]]
        if span.name == "EngineCore.step_fn":
            texts = span.attributes[names.STEP_SAMPLED_TEXTS]
            span.attributes |= {
                names.STEP_SAMPLED_TEXTS: [bad for _ in texts],
                names.STEP_WAITING: [bad + "2"],
                names.STEP_HELD: [bad + "2"],
                names.STEP_HELD_REASONS: ["behind"],
                names.STEP_HELD_DETAILS: [f"request={bad} cause={bad}"],
            }
    _open(browser, tmp_path / "report.html", spans, "#step=1&predict=1")
    browser.run("document.getElementById('replay').scrollIntoView()")
    for step in range(2, 14):
        _press(browser, "1")
        _press(browser, "Enter")
        assert browser.dialog() is None
        assert browser.run(_STEP) == f"Step {step}"
    assert browser.run("return tracellm.score().asked") > 8
    assert browser.run("return document.title") == "capital.py · tracellm"
    assert browser.run("return document.querySelectorAll('img, iframe, textarea, b, #replay script').length") == 0
    assert browser.log() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_no_question_scrolls_sideways(browser: Browser, tmp_path: Path, width: int):
    """Questions and answers stay within their window."""
    _open(browser, tmp_path / "report.html", _spans(), "#step=1&predict=1", width=width)
    browser.run("document.getElementById('replay').scrollIntoView()")
    for _ in range(1, _STEPS):
        for key in ("1", "Enter"):
            _press(browser, key)
            assert browser.run("return document.documentElement.scrollWidth") <= width
