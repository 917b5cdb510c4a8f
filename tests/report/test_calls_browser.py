"""Call tree, timeline and selected call in a real browser: clicks, keys, search, address, and text as data."""

from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser
from tests.report.synthetic import HOSTILE, a_run, a_run_folder
from tracellm.report.html import report_html
from tracellm.trace import names
from tracellm.trace.model import Process, Span

_SELECTED = "return document.querySelector('.tree-row[aria-selected=true] .name').textContent"
_PANEL = "return document.querySelector('.call-panel h3').firstChild.textContent"
_FACTS = """return Object.fromEntries([...document.querySelectorAll('.call-facts div')].map(
    row => [row.children[0].textContent, row.children[1].textContent]))"""


def _number(spans: list[Span], name: str, place: int = 0) -> int:
    """Return the number of a span with this name."""
    trace = a_run_folder(spans).trace
    return [number for number, span in enumerate(trace.spans) if span.name == name][place]


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Path:
    """Open the page of a run of 17 steps with its call tree in sight, and return its file."""
    return _page(browser, tmp_path, a_run())


def _page(browser: Browser, tmp_path: Path, spans: list[Span], hash: str = "", **window: Any) -> Path:
    file = tmp_path / "report.html"
    file.write_text(report_html(a_run_folder(spans)), encoding="utf-8")
    _open(browser, file, hash, **window)
    return file


def _open(browser: Browser, file: Path, hash: str = "", **window: Any) -> None:
    browser.visit("about:blank")
    browser.visit(file.resolve().as_uri() + hash, **window)
    assert browser.wait("document.documentElement.dataset.ready")
    for section, view in (("timeline", "timeline-view"), ("calls", "call-tree")):
        browser.run(f"document.getElementById('{section}').scrollIntoView()")
        assert browser.wait(f"document.getElementById('{view}').dataset.ready")


def _click_row(browser: Browser, name: str, part: str = "") -> None:
    browser.run(
        f"""[...document.querySelectorAll('.tree-row')].find(
            row => row.querySelector('.name').textContent === '{name}').querySelector('{part or ".name"}').click()"""
    )


def _names(browser: Browser) -> list[str]:
    return list(browser.run("return [...document.querySelectorAll('.tree-row .name')].map(name => name.textContent)"))


def _press(browser: Browser, *keys: str) -> None:
    for key in keys:
        browser.run(
            f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
        )


def test_calls_are_read_once_a_view_of_them_is_in_sight(browser: Browser, page: Path):
    """Opening the page does not decode the calls; scrolling to them or selecting one does."""
    browser.visit("about:blank")
    browser.visit(page.resolve().as_uri())
    assert browser.wait("document.documentElement.dataset.ready")
    assert browser.count(".tree-row") == browser.count("#timeline-view canvas") == 0
    browser.visit("about:blank")
    browser.visit(page.resolve().as_uri() + "#call=3")
    assert browser.wait("document.querySelector('.tree-row[aria-selected=true]')")
    assert browser.log() == []


def test_rows_open_and_close_and_a_click_selects_the_call(browser: Browser, page: Path):
    """A row's sign opens and closes it, and a click on the row selects its first call, with its step."""
    before = _names(browser)
    assert before[0] == "capital.py"
    _click_row(browser, "LLM.generate", ".twisty")
    assert len(_names(browser)) < len(before)
    _click_row(browser, "LLM.generate", ".twisty")
    assert _names(browser) == before
    browser.run("tracellm.goto(9)")
    while "EngineCore.step_fn" not in _names(browser):
        closed = "[...document.querySelectorAll('.tree-row[aria-expanded=false]')].at(-1).querySelector('.twisty')"
        browser.run(f"{closed}.click()")
    _click_row(browser, "EngineCore.step_fn")
    assert browser.wait("location.hash.includes('step=1&')")
    assert browser.run(_SELECTED) == "EngineCore.step_fn"
    assert browser.run(_PANEL).strip() == "EngineCore.step_fn"
    assert browser.run(_FACTS)["Step"] == "Step 1"
    browser.click(".stepper [aria-label='Next call of this row']")
    assert browser.wait("location.hash.includes('step=2&')")
    assert browser.run("return document.querySelector('.stepper').textContent") == "‹2 of 17›"
    assert browser.log() == []


def test_keys_work_as_in_a_tree(browser: Browser, page: Path):
    """Arrows move, open and close; Enter selects; brackets go through the calls of a row."""
    focused = "return document.activeElement.querySelector('.name').textContent"
    browser.run("document.querySelector('.tree-row[tabindex=\"0\"]').focus()")
    _press(browser, "Home")
    assert browser.run(focused) == "capital.py"
    _press(browser, "ArrowLeft")
    assert _names(browser) == ["capital.py"]
    _press(browser, "ArrowRight", "ArrowRight")
    assert browser.run(focused) == _names(browser)[1]
    _press(browser, "ArrowLeft", "ArrowLeft", "ArrowRight", "End", "ArrowUp", "ArrowDown", "Enter")
    assert browser.wait("location.hash.includes('call=')")
    assert browser.run(_SELECTED) == browser.run(focused) == _names(browser)[-1]
    assert browser.run("return document.querySelector('#step h3').firstChild.textContent")
    assert browser.log() == []


def test_search_opens_the_way_and_counts(browser: Browser, page: Path):
    """A search shows the first match, counts matches and their calls, and goes to the next and back."""
    browser.run(
        """const search = document.querySelector('.tree-bar input');
        search.value = 'decoderlayer';
        search.dispatchEvent(new Event('input'))"""
    )
    assert browser.wait("document.querySelector('.tree-bar .matches').textContent")
    assert browser.run("return document.querySelector('.tree-bar .matches').textContent") == "1 of 1 (34 calls)"
    assert (
        browser.run("return document.querySelector('.tree-row.now .name').textContent") == "Qwen2DecoderLayer.forward"
    )
    assert browser.run("return document.querySelector('.tree-row.now .count').textContent") == " ×34"
    browser.run(
        """const search = document.querySelector('.tree-bar input');
        search.value = 'forward';
        search.dispatchEvent(new Event('input'))"""
    )
    assert browser.wait("/^1 of [2-9]/.test(document.querySelector('.tree-bar .matches').textContent)")
    browser.click(".tree-bar [aria-label='Previous match']")
    assert not browser.run("return document.querySelector('.tree-bar .matches').textContent").startswith("1 of")
    browser.click(".tree-bar [aria-label='Next match']")
    assert browser.run("return document.querySelector('.tree-bar .matches').textContent").startswith("1 of")


def test_rows_are_sorted_by_a_column(browser: Browser, page: Path):
    """The heads sort each level by total or own time, and back by first call."""
    totals = """return [...document.querySelectorAll('.tree-row[aria-level="2"] .bar i:first-child')].map(
        bar => parseFloat(bar.style.width))"""
    first = browser.run(totals)
    browser.click(".tree-head .total .sort")
    assert browser.run(totals) == sorted(first, reverse=True)
    browser.click(".tree-head .entry .sort")
    assert browser.run(totals) == first


def _by_function(browser: Browser) -> None:
    browser.run("document.querySelectorAll('.tree-kinds button')[1].click()")


_PROFILE = """return [...document.querySelectorAll('.profile .tree-row')].map(
    row => [...row.querySelectorAll('[role=gridcell]')].map(cell => cell.textContent))"""


def test_rows_by_function_sum_all_calls(browser: Browser, page: Path):
    """By function, each function has one row, in the order of a column; a click selects its longest call."""
    _by_function(browser)
    rows = browser.run(_PROFILE)
    names = [row[0] for row in rows]
    assert len(names) == len(set(names))
    assert browser.run("return document.querySelector('.profile [aria-sort=descending]').textContent") == "Own"
    assert browser.displayed(".tree-view [role=tree]") is False
    calls = {row[0]: row[1] for row in rows}
    assert calls["EngineCore.step_fn"] == "17"
    browser.click(".profile .entry .sort")
    assert [row[0] for row in browser.run(_PROFILE)] == sorted(names, key=str.lower)
    browser.click(".profile .entry .sort")
    assert [row[0] for row in browser.run(_PROFILE)] == sorted(names, key=str.lower, reverse=True)
    browser.click(".profile .calls-count .sort")
    counts = [int(row[1].replace(",", "")) for row in browser.run(_PROFILE)]
    assert counts == sorted(counts, reverse=True)
    browser.run(
        """[...document.querySelectorAll('.profile .tree-row')].find(
            row => row.textContent.startsWith('EngineCore.step_fn')).click()"""
    )
    assert browser.wait("location.hash.includes('call=')")
    assert browser.run(_PANEL).strip() == "EngineCore.step_fn"
    assert browser.run(_FACTS)["Step"] == "Step 1"
    chosen = "return document.querySelector('.profile [aria-selected=true] .name').textContent"
    assert browser.run(chosen) == "EngineCore.step_fn"
    browser.run("document.querySelectorAll('.tree-kinds button')[0].click()")
    assert browser.run(_SELECTED) == "EngineCore.step_fn"
    assert browser.log() == []


def test_rows_by_function_have_keys_scope_and_search(browser: Browser, page: Path):
    """Keys, the part of the run and the search work by function as in the tree."""
    _by_function(browser)
    focused = "return document.activeElement.querySelector('.name').textContent"
    names = [row[0] for row in browser.run(_PROFILE)]
    browser.run("document.querySelector('.profile .tree-row[tabindex=\"0\"]').focus()")
    _press(browser, "ArrowDown", "ArrowDown", "ArrowUp")
    assert browser.run(focused) == names[1]
    _press(browser, "End")
    assert browser.run(focused) == names[-1]
    _press(browser, "Home", "Enter")
    assert browser.run(focused) == names[0]
    assert browser.run(_PANEL).strip() == names[0]
    browser.run(
        """const field = document.querySelector('.tree-bar input');
        field.value = 'execute_model';
        field.dispatchEvent(new Event('input'))"""
    )
    assert browser.wait("document.querySelector('.tree-bar .matches').textContent.startsWith('1 of')")
    assert "execute_model" in browser.run("return document.querySelector('.profile .now .name').textContent")
    browser.run("tracellm.goto(5)")
    browser.run(
        """const scope = document.querySelector('.tree-bar select');
        scope.value = 'step';
        scope.dispatchEvent(new Event('change'))"""
    )
    assert {row[1] for row in browser.run(_PROFILE) if row[0] == "EngineCore.step_fn"} == {"1"}
    assert browser.log() == []


def test_only_functions_in_sight_are_elements(browser: Browser, tmp_path: Path):
    """Only the rows in sight are elements, among many functions; End scrolls to the last one."""
    spans = a_run()
    for number, span in enumerate(span for span in spans if span.name.startswith("Qwen2")):
        span.name = f"Qwen2.layer_{number}"
    _page(browser, tmp_path, spans, width=390)
    _by_function(browser)
    rows = int(browser.run("return document.querySelector('.profile').getAttribute('aria-rowcount')")) - 1
    assert 0 < browser.count(".profile .tree-row") <= rows
    browser.run("document.querySelector('.profile .tree-row[tabindex=\"0\"]').focus()")
    _press(browser, "End")
    assert browser.run("return document.activeElement.getAttribute('aria-rowindex')") == str(rows + 1)
    assert browser.run("return document.documentElement.scrollWidth") <= 390


def test_a_narrow_tree_has_total_and_own_time(browser: Browser, tmp_path: Path):
    """The tree keeps its columns of times in a narrow window."""
    _page(browser, tmp_path, a_run(), width=390)
    for column in ("total", "own"):
        assert browser.displayed(f".tree-head .{column}")
        assert browser.displayed(f".tree-row .{column}")
    assert browser.run("return document.documentElement.scrollWidth") <= 390


def test_all_rows_open_and_close(browser: Browser, page: Path):
    """`*` opens all rows below the focused one, `-` closes all; so do the buttons."""
    browser.run("document.querySelector('.tree-row[tabindex=\"0\"]').focus()")
    _press(browser, "Home", "*")
    everything = len(_names(browser))
    assert browser.count(".tree-row[aria-expanded=false]") == 0
    _press(browser, "-")
    assert _names(browser) == ["capital.py"]
    browser.click(".tree-opening button:first-child")
    assert len(_names(browser)) == everything > 10
    browser.click(".tree-opening button:last-child")
    assert _names(browser) == ["capital.py"]
    assert browser.log() == []


def test_the_panel_names_what_it_shows(browser: Browser, tmp_path: Path):
    """The panel has the call's number in the recording, and a second name of its method."""
    spans = a_run(decode_steps=2)
    number = _number(spans, "Worker.execute_model")
    a_run_folder(spans).trace.spans[number].attributes[names.ALSO_CALLED] = "LLMEngine.add"
    _page(browser, tmp_path, spans, f"#call={number}")
    facts = browser.run(_FACTS)
    assert facts["Number in the recording"] == str(number)
    assert facts["Also called"] == "LLMEngine.add"
    assert names.ALSO_CALLED not in browser.run("return document.querySelector('.call-panel').textContent")


def test_the_tree_shows_a_part_of_the_run(browser: Browser, page: Path):
    """The tree has the whole run, the selected step, or the steps of the selected request."""
    choose = """const scope = document.querySelector('.tree-bar select');
        scope.value = '{}';
        scope.dispatchEvent(new Event('change'))"""
    browser.run("tracellm.goto(5)")
    browser.run(choose.format("step"))
    assert _names(browser)[0] == "EngineCore.step_fn"
    assert browser.count(".tree-row[aria-level='1'] .count") == 0
    browser.run(choose.format("run"))
    browser.run("document.querySelector('.request-chip[data-request=\"0\"]').click()")
    browser.run(choose.format("request"))
    assert browser.run("return document.querySelector('.tree-row .count').textContent") == " ×9"


def test_an_address_selects_a_call(browser: Browser, tmp_path: Path):
    """`call=` opens the way to the call, and shows its callers, arguments, result and step."""
    spans = a_run()
    number = _number(spans, "Worker.execute_model", 2)
    call = a_run_folder(spans).trace.spans[number]
    call.attributes |= {names.ARGUMENTS: ["x=float32[2, 64]"], names.RESULT: "first line, second value"}
    _page(browser, tmp_path, spans, f"#call={number}")
    assert browser.wait("location.hash.includes('step=3')")
    assert browser.run(_SELECTED) == "Worker.execute_model"
    text = browser.run("return document.querySelector('.call-panel').textContent")
    assert "float32[2, 64]" in text
    assert "first line, second value" in text
    callers = browser.run("return [...document.querySelectorAll('.callers .call-link')].map(link => link.textContent)")
    assert callers[:2] == ["capital.py", "LLM.generate"]
    browser.click(".callers li:nth-child(2) .call-link")
    assert browser.run(_PANEL).strip() == "LLM.generate"
    browser.click("#language")
    assert browser.wait("document.querySelector('.call-panel h4')?.textContent === '调用者'")
    assert browser.run(_PANEL).strip() == "LLM.generate"
    assert browser.log() == []


@pytest.mark.parametrize("all_fail", [False, True])
def test_a_failed_call_shows_its_exception(browser: Browser, tmp_path: Path, all_fail: bool):
    """A row of failed calls is marked; one with a few of them has their number. The exception is in the panel."""
    spans = a_run()
    number = _number(spans, "Worker.execute_model")
    for i, span in enumerate(a_run_folder(spans).trace.spans):
        if i == number or (all_fail and span.name == "Worker.execute_model"):
            span.error = "RuntimeError: out of blocks"
    _page(browser, tmp_path, spans, f"#call={number}")
    row = "return document.querySelector('.tree-row[aria-selected=true]')"
    assert browser.run(f"{row}.querySelector('.name').className") == ("name failed" if all_fail else "name")
    assert browser.run(f"{row}.querySelector('.failed').textContent").strip() == (
        "✗ Worker.execute_model" if all_fail else "✗ 1 failed"
    )
    assert "RuntimeError: out of blocks" in browser.run("return document.querySelector('.call-panel').textContent")


def test_a_click_and_keys_on_the_timeline_select(browser: Browser, page: Path):
    """A click selects the call under the pointer, which is named there; keys go to callers and neighbours."""
    browser.run("document.getElementById('timeline').scrollIntoView()")
    point = """const canvas = document.querySelector('.timeline canvas');
        const box = canvas.getBoundingClientRect();
        const at = {clientX: box.left + box.width / 2, clientY: box.top + 66, bubbles: true, pointerId: 1};
        """
    browser.run(point + "canvas.dispatchEvent(new PointerEvent('pointermove', at))")
    assert "capital.py" in browser.run("return document.querySelector('.timeline-tip').textContent")
    browser.run(
        point
        + """canvas.setPointerCapture = () => {};
        canvas.dispatchEvent(new PointerEvent('pointerdown', at));
        canvas.dispatchEvent(new PointerEvent('pointerup', at))"""
    )
    assert browser.run("return location.hash").endswith("call=0")
    assert browser.run(_SELECTED) == "capital.py"
    browser.run("document.querySelector('.timeline canvas').focus()")
    _press(browser, "ArrowDown", "n", "n")
    last = browser.run(_SELECTED)
    assert last != "capital.py"
    _press(browser, "p", "n")
    assert browser.run(_SELECTED) == last
    _press(browser, "ArrowUp")
    assert browser.run(_SELECTED) == "capital.py"
    assert browser.log() == []


def test_the_timeline_zooms_to_the_selected_step(browser: Browser, page: Path):
    """Buttons and keys change the part in sight, which a table gives as text."""
    browser.run("document.querySelector('.timeline details').open = true")
    shown = "return document.querySelector('.timeline details p').textContent"
    browser.wait("document.querySelector('.timeline details p')")
    whole = browser.run(shown)
    browser.run("tracellm.goto(3)")
    browser.run("document.querySelector('.timeline-bar [aria-label=\"Selected step\"]').click()")
    step = browser.run(shown)
    assert step != whole
    browser.run("document.querySelector('.timeline canvas').focus()")
    _press(browser, "+", "ArrowRight", "-")
    assert browser.run(shown) not in (whole, step)
    _press(browser, "s")
    assert browser.run(shown) == step
    _press(browser, "0")
    assert browser.run(shown) == whole
    assert browser.count(".timeline details tbody tr") == 1


def test_the_timeline_is_drawn_anew_in_another_theme(browser: Browser, page: Path):
    """The canvas takes its colours from the style sheet, and follows a change of theme."""
    browser.run("document.getElementById('timeline').scrollIntoView()")
    corner = """(() => { const canvas = document.querySelector('.timeline canvas');
        const [r, g, b] = canvas.getContext('2d').getImageData(2, canvas.height - 2, 1, 1).data;
        return r + g + b; })()"""
    assert browser.wait(f"{corner} > 600")
    browser.theme(dark=True)
    assert browser.wait(f"{corner} < 300 && {corner} > 0")
    browser.theme(dark=False)
    assert browser.wait(f"{corner} > 600")
    browser.log()  # Chromium remarks that reading a canvas is slow


def test_a_timeline_in_the_other_language_is_no_longer_drawn(browser: Browser, page: Path):
    """After the language is switched, a change of theme draws the new timeline only."""
    browser.run("window.old = document.querySelector('.timeline canvas')")
    browser.click("#language")
    browser.wait("document.documentElement.lang === 'zh-CN'")
    browser.run("document.getElementById('timeline').scrollIntoView()")
    assert browser.wait("(window.now = document.querySelector('.timeline canvas'))?.width > 7")
    browser.run("old.width = now.width = 7")
    browser.theme(dark=True)
    assert browser.wait("now.width > 7")
    assert browser.run("return old.width") == 7
    assert browser.log() == []


def test_a_view_is_made_once_after_the_language_is_switched_back(browser: Browser, page: Path):
    """A place that was mounted twice before it came in sight gets one timeline."""
    browser.visit("about:blank")
    browser.visit(page.resolve().as_uri())
    assert browser.wait("document.documentElement.dataset.ready")
    for lang in ("zh-CN", "en"):
        browser.click("#language")
        assert browser.wait(f"document.documentElement.lang === '{lang}'")
    browser.run(
        """window.made = 0;
        const place = document.getElementById('timeline-view');
        place.replaceChildren = (...views) => {
            window.made += 1;
            Element.prototype.replaceChildren.apply(place, views);
        };
        place.scrollIntoView()"""
    )
    assert browser.wait("document.querySelector('#timeline-view canvas')")
    assert browser.run("return new Promise(done => setTimeout(() => done(made), 200))") == 1
    assert browser.log() == []


def test_the_timeline_follows_the_selected_call(browser: Browser, page: Path):
    """A newly selected call comes in sight; a step does not bring back a call that was moved out of sight."""
    browser.run("document.querySelector('.timeline details').open = true")
    shown = "return document.querySelector('.timeline details p').textContent"
    number = _number(a_run(), "Worker.execute_model", 8)
    browser.run("document.querySelector('.timeline canvas').focus()")
    browser.run(f"location.hash = '#call={number}'")
    assert browser.wait("document.querySelector('.timeline-chosen').textContent")
    _press(browser, "c", *["ArrowLeft"] * 20)
    away = browser.run(shown)
    browser.run("tracellm.goto(3)")
    assert browser.run(shown) == away
    browser.run("location.hash = '#step=2'")
    assert browser.wait("!document.querySelector('.timeline-chosen').textContent")
    assert browser.run(shown) == away
    browser.run(f"location.hash = '#call={number}'")
    assert browser.wait(f"document.querySelector('.timeline details p').textContent !== '{away}'")
    assert browser.log() == []


def test_work_of_another_process_is_marked(browser: Browser, tmp_path: Path):
    """A call in another process than its caller has a mark in the tree, and a lane of its own."""
    spans = a_run()
    for span in spans:
        if span.name.startswith(("Worker", "GPUModelRunner", "Qwen2")):
            span.process = Process(2, "Worker_0")
    _page(browser, tmp_path, spans, f"#call={_number(spans, 'Worker.execute_model')}")
    assert "[process Worker_0]" in browser.run(
        "return document.querySelector('.tree-row[aria-selected=true]').textContent"
    )
    assert "Worker_0 (2)" in browser.run(_FACTS)["Process and thread"]
    browser.run("document.querySelector('.timeline details').open = true")
    assert browser.wait("document.querySelectorAll('.timeline details tbody tr').length === 2")


@pytest.mark.parametrize("bad", HOSTILE)
def test_what_calls_carry_is_data(browser: Browser, tmp_path: Path, bad: str):
    """Names, arguments, results, errors and threads with markup are shown literally."""
    spans = a_run(decode_steps=2)
    number = _number(spans, "Worker.execute_model")
    call = a_run_folder(spans).trace.spans[number]
    call.name = bad or "x"
    call.error = f"E: {bad}"
    call.attributes |= {names.ARGUMENTS: [f"{bad}={bad}"], names.RESULT: bad, names.THREAD_NAME: bad, bad or "x": bad}
    _page(browser, tmp_path, spans, f"#call={number}")
    assert browser.wait("document.querySelector('.call-panel h3')")
    assert browser.dialog() is None
    assert browser.run("return document.title") == "capital.py · tracellm"
    assert browser.run("return document.querySelectorAll('img, iframe, textarea, b, main script').length") == 0
    assert browser.log() == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_scrolls_sideways(browser: Browser, tmp_path: Path, width: int):
    """Tree, timeline and panel stay within the window, with long names and values."""
    spans = a_run(decode_steps=2)
    number = _number(spans, "Worker.execute_model")
    call = a_run_folder(spans).trace.spans[number]
    call.name, call.attributes[names.RESULT] = "A" * 300, "b" * 3000
    _page(browser, tmp_path, spans, f"#call={number}", width=width)
    assert browser.run("return document.documentElement.scrollWidth") <= width
