"""The page's step-by-step view in a real browser: clicks, keys, address, languages, and text as data."""

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.report.synthetic import HOSTILE, a_run, a_run_folder
from tests.report.traces import Calls, step_facts
from tracellm.report.html import report_html
from tracellm.trace import names
from tracellm.trace.model import Process

_STEP = "return document.querySelector('#step h3').firstChild.textContent"


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Path:
    """Open the page of a run of 17 steps, and return its file."""
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder(a_run())), encoding="utf-8")
    _open(browser, file)
    return file


def _open(browser: Browser, file: Path, hash: str = "", width: int = 1280) -> None:
    browser.visit("about:blank")
    browser.visit(file.resolve().as_uri() + hash, width=width)
    assert browser.wait("document.documentElement.dataset.ready")


def test_buttons_keys_and_slider_move_through_all_steps(browser: Browser, page: Path):
    """Buttons, keys and the slider go forwards and backwards, and stop at both ends."""
    assert browser.run(_STEP) == "Step 1"
    browser.click("[aria-label='Next step']")
    assert browser.run(_STEP) == "Step 2"
    browser.click("[aria-label='Last step']")
    browser.click("[aria-label='Next step']")
    assert browser.run(_STEP) == "Step 17"
    browser.run("document.getElementById('replay').scrollIntoView()")
    for key, step in (("ArrowLeft", 16), ("PageUp", 6), ("Home", 1), ("ArrowLeft", 1), ("End", 17)):
        browser.run(f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")
        assert browser.run(_STEP) == f"Step {step}"
    browser.run(
        """const slider = document.querySelector('[type=range]');
        slider.value = 4;
        slider.dispatchEvent(new Event('input'))"""
    )
    assert browser.run(_STEP) == "Step 5"
    assert browser.log() == []


def test_play_goes_on_to_the_last_step_and_stops(browser: Browser, page: Path):
    """Playing moves by itself until the last step."""
    browser.run("tracellm.goto(15)")
    browser.click("[aria-label='Play']")
    assert browser.wait("document.querySelector('#step h3').textContent.startsWith('Step 17')")
    assert browser.wait("document.querySelector('[aria-label=Play]') !== null")


def test_the_address_holds_the_selection(browser: Browser, page: Path):
    """An address opens its step, request and block, and a click changes the address."""
    _open(browser, page, "#step=9&request=1&block=1")
    assert browser.run(_STEP) == "Step 9"
    assert browser.run("return document.querySelector('.cell[aria-pressed=true]').dataset.block") == "1"
    chips = "return [...document.querySelectorAll('.request-chip[aria-pressed=true]')].map(chip => chip.textContent)"
    assert set(browser.run(chips)) == {"1"}
    browser.click("[aria-label='Next step']")
    assert browser.run("return location.hash") == "#step=10&request=1&block=1"
    browser.run("location.hash = '#step=3'")
    assert browser.wait("document.querySelector('#step h3').textContent.startsWith('Step 3')")


def test_an_address_of_nothing_opens_the_first_step(browser: Browser, page: Path):
    """Unknown steps, requests and blocks in an address are ignored."""
    _open(browser, page, "#step=999&request=nobody&block=-1&engine=4")
    assert browser.run(_STEP) == "Step 1"
    assert browser.log() == []


def test_the_picture_selects_request_and_step(browser: Browser, page: Path):
    """A click on the picture of requests and steps selects both."""
    browser.run(
        """const bar = document.querySelector('.gantt [data-request="1"] .decode').getBoundingClientRect();
        const svg = document.querySelector('.gantt [data-request="1"] .decode');
        svg.dispatchEvent(new MouseEvent('click', {bubbles: true, clientX: bar.right - 2, clientY: bar.top + 2}))"""
    )
    assert browser.run("return location.hash") == "#step=17&request=1"


def test_the_language_switch_keeps_the_selection(browser: Browser, page: Path):
    """The button changes every text of the page, there and back, and nothing else."""
    browser.run("tracellm.goto(7)")
    english = browser.run("return document.getElementById('page').innerText")
    browser.click("#language")
    assert browser.wait("document.documentElement.lang === 'zh-CN'")
    assert browser.run(_STEP) == "第 7 步"
    assert browser.run("return document.querySelector('#client').textContent") == "为什么是这个客户端"
    browser.click("#language")
    assert browser.wait("document.documentElement.lang === 'en'")
    assert browser.run("return document.getElementById('page').innerText") == english
    browser.click("[aria-label='Next step']")
    assert browser.run(_STEP) == "Step 8"


def test_the_console_has_the_steps_as_data(browser: Browser, page: Path):
    """`tracellm.step(n)` returns the step's facts without changing the page, and unknown steps are errors."""
    step = browser.run("return tracellm.step(2)")
    assert (step["step"], step["kind"], step["running"], step["scheduled"]) == (
        2,
        "decode",
        ["0", "1"],
        {"0": 1, "1": 1},
    )
    assert (step["prefill"], step["decode"]) == (0, 2)
    assert browser.run(_STEP) == "Step 1"
    assert browser.run("try { tracellm.step(99) } catch (error) { return error.message }") == "no step 99"


def test_a_token_that_a_grammar_forced_is_marked(browser: Browser, tmp_path: Path):
    """A step shows the allowed tokens and the forbidden one; in the request's output the chosen token is underlined."""
    calls = Calls()
    forced = '[[60, "Sure", 0.6], [5, "{", 0.001], [6, "\\n", 0.0005]]'
    preferred = '[[7, "}", 0.9], [7, "}", 0.9]]'
    for index, token, text, allowed, tokens in [(1, 5, "{", 2, forced), (2, 7, "}", 1, preferred)]:
        sampled = {
            names.STEP_SAMPLED: ["0"],
            names.STEP_SAMPLED_IDS: [token],
            names.STEP_SAMPLED_TEXTS: [text],
            names.STEP_GRAMMAR_ALLOWED: [allowed],
            names.STEP_GRAMMAR_SHARES: [0.0015],
            names.STEP_GRAMMAR_TOKENS: [tokens],
        }
        calls.leaf("EngineCore.step_fn", **step_facts(index, ["0"], new=index == 1) | sampled)
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder(calls.spans)), encoding="utf-8")
    _open(browser, file, "#step=1&request=0")
    shown = "return document.querySelector('.sample .grammar').innerText.replace(/\\s+/g, ' ')"
    assert browser.run(shown) == (
        "The grammar allowed 2 tokens, 0.1% of the model's probability { ↵ "
        "It forbade the model's likeliest token: Sure 60.0%"
    )
    marked = "return [...document.querySelectorAll('.request-details .forced')].map(piece => piece.title)"
    assert browser.run(marked) == ["Step 1: the grammar forbade “Sure” (60.0%), the model's likeliest; chosen “{”"]
    browser.click("[aria-label='Next step']")
    assert "forbade" not in browser.run(shown)
    assert browser.log() == []


def test_the_list_has_every_step_and_selects_it(browser: Browser, page: Path):
    """The list shows tokens, queues, blocks and changes of each step, follows the selection, and a click selects."""
    row = "return document.querySelector('.step-row.chosen').innerText.replaceAll(/\\s+/g, ' ')"
    for fact in ("12 of 2,048: 12 prefill + 0 decode", "2: 0, 1", "2 / 4,095", "Joined: 0, 1."):
        assert fact in browser.run(row), fact
    browser.run("tracellm.goto(17)")
    assert "Finished: 1." in browser.run(row)
    browser.run("[...document.querySelectorAll('.step-row[aria-selected]')].at(-2).click()")
    assert browser.run(_STEP) == "Step 16"


def test_a_list_of_many_steps_has_few_rows(browser: Browser, tmp_path: Path):
    """Only the rows in sight are elements, in a run of two thousand steps."""
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder(a_run(decode_steps=2000, layers=0))), encoding="utf-8")
    _open(browser, file, "#step=1500")
    assert browser.count(".step-row") < 40
    assert browser.run("return document.querySelector('.step-row.chosen strong').textContent") == "1,500"


@pytest.mark.parametrize("width", [1280, 390])
def test_the_selected_step_is_in_sight_in_the_list(browser: Browser, tmp_path: Path, width: int):
    """The list scrolls to the selected row, whatever height rows have in a window of this width; no row is cut."""
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder(a_run(decode_steps=200, layers=0))), encoding="utf-8")
    _open(browser, file, width=width)
    browser.run("tracellm.goto(150)")
    row = "document.querySelector('.step-row.chosen').getBoundingClientRect()"
    frame = "document.querySelector('.step-list').getBoundingClientRect()"
    assert browser.run(f"return {row}.top >= {frame}.top && {row}.bottom <= {frame}.bottom")
    assert browser.run(
        "return [...document.querySelectorAll('.step-row')].every(row => row.scrollHeight <= row.clientHeight)"
    )
    browser.run("document.querySelector('.step-list').scrollTop = 1e9")
    assert browser.wait("[...document.querySelectorAll('.step-row strong')].at(-1).textContent === '201'")


def test_the_list_does_not_scroll_sideways_in_a_narrow_window(browser: Browser, page: Path):
    """A row of the list is a small card in a narrow window."""
    _open(browser, page, width=390)
    assert browser.run("const list = document.querySelector('.step-list'); return list.scrollWidth <= list.clientWidth")


def test_every_view_numbers_a_step_as_it_was_recorded(browser: Browser, tmp_path: Path):
    """Titles, rows and tokens give a step its own number, with a separator, in a recording that begins later."""
    spans = a_run(decode_steps=3)
    for span in spans:
        if names.STEP_INDEX in span.attributes:
            span.attributes[names.STEP_INDEX] += 1000
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder(spans)), encoding="utf-8")
    _open(browser, file, "#step=1004&request=1")
    assert browser.run(_STEP) == "Step 1,004"
    titles = "return [...document.querySelectorAll('{} .so-far button')].map(piece => piece.title)"
    for place in ("#step .sample:first-child", ".request-details"):
        assert browser.run(titles.format(place)) == ["Step 1,001", "Step 1,002", "Step 1,003", "Step 1,004"]
    assert "steps 1,002 to 1,004" in browser.run("return document.querySelector('.gantt .chosen').textContent")


def test_blocks_show_owner_sharing_and_history(browser: Browser, tmp_path: Path):
    """The block map marks owners and shared blocks; a clicked block shows its tokens and its history."""
    spans = a_run()
    first = next(span for span in spans if span.name == "EngineCore.step_fn")
    first.attributes |= {
        names.STEP_NEW_BLOCKS: ["7-9", "12"],
        names.STEP_CACHED_BLOCKS: ["", "7"],
        names.STEP_CACHED: [0, 16],
    }
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder(spans)), encoding="utf-8")
    _open(browser, file)
    assert browser.run("return tracellm.step(1).blocks") == {"0": [7, 8, 9], "1": [7, 12]}
    cell = "return document.querySelector('[data-block=\"{}\"]').{}"
    assert browser.run(cell.format(7, "textContent")) == "×2"
    assert "Block 12: request 1." in browser.run(cell.format(12, "title"))
    browser.click("[data-block='7']")
    history = "return [...document.querySelectorAll('.history li')].map(item => item.textContent)"
    assert browser.run(history)[:2] == [
        "Step 1 allocated to request 0",
        "Step 1 prefix cache hit of request 1",
    ]


def test_terms_lead_to_their_definitions(browser: Browser, page: Path):
    """A term in a heading links to its entry in the glossary, in both languages and after a change of the step."""
    for definition, other in (("maximum number of tokens in one step", "zh-CN"), ("合计最多计算的 token 数", "en")):
        assert browser.run("return document.querySelector('#step h4 a.term, #step h3 a.term') !== null")
        link = "document.querySelector('#step a.term[href=\"#word-token_budget\"]')"
        assert definition in browser.run(f"return {link}.title")
        browser.run(f"{link}.click()")
        assert definition in browser.run("return document.querySelector(':target').nextElementSibling.textContent")
        browser.run("tracellm.goto(5)")
        browser.click("#language")
        assert browser.wait(f"document.documentElement.lang === '{other}'")


def test_the_section_in_sight_is_marked(browser: Browser, page: Path):
    """The contents stay in sight while the page scrolls, and mark the section being read."""
    marked = "return [...document.querySelectorAll('#contents [aria-current]')].map(link => link.hash)"
    assert browser.run(marked) == ["#answer"]
    browser.run("document.getElementById('requests').scrollIntoView()")
    assert browser.wait("document.querySelector('#contents [href=\"#requests\"]').hasAttribute('aria-current')")
    assert browser.run("return document.getElementById('contents').getBoundingClientRect().top") == 0


def test_requests_are_sorted_and_explained(browser: Browser, page: Path):
    """A column's heading sorts the requests; the selected one has its first token explained and tokens with steps."""
    ids = "return [...document.querySelectorAll('#request-table tbody th')].map(cell => cell.textContent)"
    assert browser.run(ids) == ["0", "1"]
    browser.click("#request-table [aria-sort] button")
    browser.click("#request-table [aria-sort] button")
    assert browser.run(ids) == ["1", "0"]
    assert browser.run("return document.querySelector('[aria-sort=descending]').textContent") == "Request"
    browser.click("#request-table .request-chip")
    details = browser.run("return document.querySelector('.request-details').innerText")
    assert "First token after" in details
    assert "Output:" in details
    browser.run("document.querySelectorAll('.request-details button.piece')[4].click()")
    assert browser.run(_STEP) == "Step 5"


def test_a_run_without_text_shows_probabilities_without_tokens(browser: Browser, tmp_path: Path):
    """Without recorded text, tokens are dots and their probabilities are shown."""
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder(a_run(text=False), options={"text": False})), encoding="utf-8")
    _open(browser, file)
    picked = "return document.querySelector('.sample p').innerText.replaceAll(/\\s+/g, ' ')"
    assert browser.run(picked) == "0 • 97.3%"


def test_several_engines_have_steps_of_their_own(browser: Browser, tmp_path: Path):
    """Two engines in processes of their own can be chosen, each with its steps."""
    one, other = Calls(process=Process(11, "EngineCore_0")), Calls(process=Process(12, "EngineCore_1"))
    for calls, count in ((one, 3), (other, 5)):
        for index in range(1, count + 1):
            calls.leaf("EngineCore.step_fn", **step_facts(index, ["0"], new=index == 1))
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder([*one.spans, *other.spans])), encoding="utf-8")
    _open(browser, file)
    options = browser.run("return [...document.querySelectorAll('.step-bar select')[0].options].map(one => one.text)")
    assert options == ["Engine 1, EngineCore_0", "Engine 2, EngineCore_1"]
    assert browser.run("return document.querySelector('output').textContent") == "1 of 3"
    _open(browser, file, "#engine=1&step=4")
    assert browser.run("return document.querySelector('output').textContent") == "4 of 5"


@pytest.mark.parametrize("bad", HOSTILE)
def test_a_runs_text_is_data(browser: Browser, tmp_path: Path, bad: str):
    """Ids, token texts and reasons with markup are shown literally in the step view."""
    spans = a_run(decode_steps=2)
    for span in spans:
        for name in (names.STEP_REQUESTS, names.STEP_RUNNING, names.STEP_SAMPLED, names.STEP_NEW):
            if name in span.attributes:
                span.attributes[name] = [bad for _ in span.attributes[name][:1]]
        if names.STEP_SAMPLED_TEXTS in span.attributes:
            span.attributes[names.STEP_SAMPLED_TEXTS] = [bad for _ in span.attributes[names.STEP_SAMPLED_TEXTS]]
        if span.name == "EngineCore.step_fn":
            span.attributes |= {names.STEP_HELD: [bad], names.STEP_HELD_REASONS: [bad], names.STEP_HELD_DETAILS: [bad]}
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder(spans)), encoding="utf-8")
    _open(browser, file)
    assert browser.dialog() is None
    assert browser.run("return document.title") == "capital.py · tracellm"
    assert browser.run("return document.querySelectorAll('img, iframe, textarea, b, #replay script').length") == 0
    assert browser.count("#step .request-chip") > 0
    assert browser.log() == []


def test_a_blocks_table_has_room_for_its_tokens_in_a_narrow_window(browser: Browser, page: Path):
    """The names of its rows, which stay in sight, take less than half of it."""
    _open(browser, page, "#step=1&block=1", width=390)
    name, frame = (f"document.querySelector('.block-details {part}').clientWidth" for part in ("th", ".scroll"))
    assert browser.run(f"return 2 * {name} < {frame}")


@pytest.mark.parametrize("width", [1280, 390])
def test_no_step_scrolls_sideways(browser: Browser, page: Path, width: int):
    """The step view stays within its window, with a request and a block selected."""
    _open(browser, page, "#step=1&request=1&block=1", width=width)
    assert browser.run("return document.documentElement.scrollWidth") <= width
