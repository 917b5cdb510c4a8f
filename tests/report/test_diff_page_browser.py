"""The page of two runs in a real browser: one slider for both, first difference, languages, and text as data."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import Browser
from tests.report.synthetic import HOSTILE, a_run, a_run_folder
from tests.report.two_runs import folder_of, run_of
from tracellm.report.diff.page import diff_html
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder

_SCRIPT = """
import sys
from tracellm import LLM, SamplingParams

prompts = ["Hello, my name is", "The capital of France is", "The largest ocean is"]
llm = LLM(dtype="float32", max_num_batched_tokens=int(sys.argv[1]), max_num_seqs=8)
llm.generate(prompts, SamplingParams(temperature=0, max_tokens=3), use_tqdm=False)
"""

_STEPS = "return [...document.querySelectorAll('#pair .step-title')].map(one => one.innerText.replaceAll(/\\s+/g, ' '))"
_CHIPS = "return [...document.querySelectorAll('#pair .request-chip.unequal')].map(one => one.textContent)"


@pytest.fixture(scope="module")
def real_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of one script, run with budgets of 8 and of 64 tokens."""
    folder = tmp_path_factory.mktemp("pair")
    (folder / "hello.py").write_text(_SCRIPT, encoding="utf-8")
    for name, budget in (("small", "8"), ("large", "64")):
        run = ["run", "--explain", "--out", name, "hello.py", budget]
        subprocess.run([sys.executable, "-m", "tracellm", *run], cwd=folder, capture_output=True, check=True)
    diff = ["diff", "small", "large", "--html", "pair.html"]
    subprocess.run([sys.executable, "-m", "tracellm", *diff], cwd=folder, capture_output=True, check=True)
    return folder / "pair.html"


def _open(browser: Browser, file: Path, hash: str = "", width: int = 1280) -> None:
    browser.visit("about:blank")
    browser.visit(file.resolve().as_uri() + hash, width=width)
    assert browser.wait("document.documentElement.dataset.ready")


def _write(folder: Path, a: RunFolder, b: RunFolder) -> Path:
    page = folder / "diff.html"
    page.write_text(diff_html(a, b), encoding="utf-8")
    return page


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Return the page of two runs of 5 and 3 steps, of which the third of B samples another token."""
    a = folder_of(run_of(steps=5), "A-run")
    return _write(tmp_path, a, folder_of(run_of(steps=3, tokens=[100, 101, 7]), "B-run"))


def test_a_real_pair_shows_the_first_step_that_differs(browser: Browser, real_page: Path):
    """With a smaller budget, the first step schedules fewer tokens: marks name the requests in both runs."""
    _open(browser, real_page)
    assert browser.run("return document.querySelector('.first a').hash") == "#step=1"
    assert browser.run(_STEPS) == ["A Step 1 prefill Joined: 0, 1.", "B Step 1 prefill Joined: 0, 1, 2."]
    sums = "return [...document.querySelectorAll('[data-shows=tokens] .sum')].map(one => one.textContent)"
    assert browser.run(sums) == ["8 of 8: 8 prefill + 0 decode", "14 of 64: 14 prefill + 0 decode"]
    marks = "return [...document.querySelectorAll('[data-shows={}] small.unequal')].map(one => one.textContent)"
    for shows, requests in (("running", "≠ 1, 2"), ("waiting", "≠ 2"), ("blocks", "≠ 2"), ("sampled", "≠ 1, 2")):
        assert browser.run(marks.format(shows)) == [requests, requests], shows
    assert "2" in browser.run(_CHIPS)
    assert browser.run("return [tracellm.a.step(1).scheduled, tracellm.b.step(1).scheduled]") == [
        {"0": 5, "1": 3}, {"0": 5, "1": 5, "2": 4}
    ]  # fmt: skip
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.log() == []


def test_the_page_opens_at_the_first_difference_and_the_link_returns(browser: Browser, page: Path):
    """The page opens at the first pair that differs, and its link goes there again from elsewhere."""
    _open(browser, page)
    assert browser.run(_STEPS)[0].startswith("A Step 3")
    browser.run("tracellm.goto(1)")
    assert browser.run("return location.hash") == "#step=1"
    assert "Both did the same in this step." in browser.run("return document.querySelector('.pair-title').innerText")
    assert browser.run(_CHIPS) == []
    browser.click(".first a")
    assert browser.run(_STEPS)[1].startswith("B Step 3")
    assert browser.run("return location.hash") == "#step=3"


def test_one_slider_moves_both(browser: Browser, page: Path):
    """The slider, keys and the buttons between differences move both runs; a step of one run alone has no other."""
    _open(browser, page, "#step=1")
    browser.run(
        """const slider = document.querySelector('[type=range]');
        slider.value = 1;
        slider.dispatchEvent(new Event('input'))"""
    )
    assert [title[:8] for title in browser.run(_STEPS)] == ["A Step 2", "B Step 2"]
    browser.click("[aria-label='Next difference']")
    assert [title[:8] for title in browser.run(_STEPS)] == ["A Step 3", "B Step 3"]
    browser.run("document.getElementById('replay').scrollIntoView()")
    browser.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))")
    assert browser.run(_STEPS) == ["A Step 4 decode The same requests as in the previous step.", "B No step 4."]
    assert browser.run("return document.querySelector('.pair-title p').textContent") == "≠ only A has this step"
    assert browser.run("return document.querySelector('output').textContent") == "4 of 5"


def test_a_click_in_one_run_moves_both(browser: Browser, page: Path):
    """A request chosen in A is chosen in B, and a token of B leads both to its step; a block stays in its run."""
    _open(browser, page)
    browser.click("#pair .request-chip[data-request='1']")
    pressed = "return document.querySelectorAll('.request-chip[data-request=\"1\"]:not([aria-pressed=true])').length"
    assert browser.run(pressed) == 0
    browser.run("[...document.querySelectorAll('.so-far')].at(-1).querySelector('.piece').click()")
    assert [title[:8] for title in browser.run(_STEPS)] == ["A Step 1", "B Step 1"]
    assert browser.run("return location.hash") == "#step=1&request=0"
    browser.click("#pair [data-block='1']")
    assert browser.run("return document.querySelectorAll('.cell[aria-pressed=true]').length") == 1
    assert browser.log() == []


def test_the_pictures_are_aligned(browser: Browser, page: Path):
    """Both pictures have one width, the cursor in one column, and marks at the steps that differ."""
    _open(browser, page)
    places = """return [...document.querySelectorAll('.gantt')].map(one => [one.getAttribute('width'),
        one.querySelector('.cursor').getAttribute('x'), one.querySelector('line').getAttribute('x1'),
        one.querySelector('rect.differs').getAttribute('width')])"""
    a, b = browser.run(places)
    assert a == b
    assert a[1:] == ["140", "140", "84"]
    browser.run(
        """const svg = document.querySelector('.gantt');
        const box = svg.getBoundingClientRect();
        svg.dispatchEvent(new MouseEvent('click', {bubbles: true, clientX: box.left + 85, clientY: box.top + 5}))"""
    )
    assert browser.run("return location.hash") == "#step=1"


def test_the_language_switch_keeps_the_step(browser: Browser, page: Path):
    """The button changes every text, there and back, and nothing else."""
    _open(browser, page, "#step=2")
    english = browser.run("return document.getElementById('page').innerText")
    browser.click("#language")
    assert browser.wait("document.documentElement.lang === 'zh-CN'")
    assert [title[:7] for title in browser.run(_STEPS)] == ["A 第 2 步", "B 第 2 步"]
    assert browser.run("return document.querySelector('#times').textContent") == "时间"
    browser.click("#language")
    assert browser.wait("document.documentElement.lang === 'en'")
    assert browser.run("return document.getElementById('page').innerText") == english


def test_one_run_without_steps_leaves_the_other(browser: Browser, tmp_path: Path):
    """If B has no step, A's steps are shown alone; if neither has one, the page has no script errors."""
    a, empty = folder_of(run_of()), folder_of(run_of(steps=0))
    _open(browser, _write(tmp_path, a, empty))
    assert [title[:8] for title in browser.run(_STEPS)] == ["A Step 1", "B No ste"]
    assert browser.run("try { tracellm.b.step(1) } catch (error) { return error.message }") == "no step 1"
    assert browser.count(".gantt") == 1
    _open(browser, _write(tmp_path, empty, empty))
    assert browser.count("#pair") == 0
    assert browser.log() == []


@pytest.mark.parametrize("bad", HOSTILE)
def test_a_runs_text_is_data(browser: Browser, tmp_path: Path, bad: str):
    """Ids, token texts and reasons with markup are shown literally."""
    spans = a_run(decode_steps=2)
    for span in spans:
        for name in (names.STEP_REQUESTS, names.STEP_RUNNING, names.STEP_SAMPLED, names.STEP_NEW):
            if name in span.attributes:
                span.attributes[name] = [bad for _ in span.attributes[name][:1]]
        if names.STEP_SAMPLED_TEXTS in span.attributes:
            span.attributes[names.STEP_SAMPLED_TEXTS] = [bad for _ in span.attributes[names.STEP_SAMPLED_TEXTS]]
        if span.name == "EngineCore.step_fn":
            span.attributes |= {names.STEP_HELD: [bad], names.STEP_HELD_REASONS: [bad], names.STEP_HELD_DETAILS: [bad]}
    _open(browser, _write(tmp_path, folder_of(run_of(), "A"), a_run_folder(spans, Path("B"), script=bad)))
    assert browser.dialog() is None
    assert browser.run("return document.title") == "A ↔ B · tracellm"
    assert browser.run("return document.querySelectorAll('img, iframe, textarea, b, #page script').length") == 0
    assert browser.count("#pair .request-chip") > 0
    assert browser.log() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_no_step_scrolls_sideways(browser: Browser, real_page: Path, width: int):
    """The page stays within its window; on a narrow one, a panel of B is below that of A."""
    for step in (1, 4):
        _open(browser, real_page, f"#step={step}&request=1", width=width)
        assert browser.run("return document.documentElement.scrollWidth") <= width
    tables = (
        "return [...document.querySelectorAll('.scroll:has(.diff)')].filter(one => one.scrollWidth > one.clientWidth)"
    )
    assert browser.run(f"{tables}.length") == 0
    boxes = """return [...document.querySelectorAll('[data-shows=running]')].map(one => one.getBoundingClientRect())
        .map(box => [box.left, box.top])"""
    _open(browser, real_page, "#step=1", width=width)
    (left, top), (other_left, other_top) = browser.run(boxes)
    assert (left == other_left, top == other_top) == ((True, False) if width == 390 else (False, True))
