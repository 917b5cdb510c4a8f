"""The page's sequence diagram in a real browser: zoom, open and close, follow, find, copy, minimap, keys, language."""

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.report.processes import sync_run
from tests.report.synthetic import a_run, a_run_folder
from tests.report.traces import Calls
from tracellm.report.diagram.mermaid import to_mermaid
from tracellm.report.diagram.sequence import sequence
from tracellm.report.html import report_html
from tracellm.trace.model import Span, Trace

_ARROWS = "return [...document.querySelectorAll('.sequence .arrow')].map(arrow => arrow.getAttribute('aria-label'))"
_HEADINGS = "return [...document.querySelectorAll('.sequence [data-part]')].map(part => part.textContent)"
_MERMAID = "return document.getElementById('mermaid').textContent"


def _open(browser: Browser, folder: Path, spans: list[Span], width: int = 1280, hash: str = "") -> None:
    page = folder / "report.html"
    if not page.exists():
        page.write_text(report_html(a_run_folder(spans)), encoding="utf-8")
    browser.visit("about:blank")
    browser.visit(page.resolve().as_uri() + hash, width=width)
    assert browser.wait("document.documentElement.dataset.ready")


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Path:
    """Open the page of a run of 17 steps, and return its folder."""
    _open(browser, tmp_path, a_run())
    return tmp_path


def _click_mark(browser: Browser, label: str) -> None:
    browser.run(
        f"""const arrow = [...document.querySelectorAll('.sequence .arrow')]
            .find(one => one.getAttribute('aria-label').includes('{label}') && one.querySelector('.toggle'));
        arrow.querySelector('.toggle').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"""
    )


def _press(browser: Browser, key: str) -> None:
    browser.run(
        f"""document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"""
    )


def _focused(browser: Browser) -> str:
    return str(browser.run("return document.activeElement.getAttribute('aria-label')"))


def test_zoom_goes_from_phases_to_kernels(browser: Browser, page: Path):
    """Each zoom draws more calls than the one before, and marks its button."""
    counts = []
    for zoom in ("phases", "request", "step", "layer", "kernel"):
        browser.click(f"[data-zoom={zoom}]")
        assert browser.run("return document.querySelector('.zooms [aria-pressed=true]').dataset.zoom") == zoom
        counts.append(len(browser.run(_ARROWS)))
    assert counts == sorted(counts)
    assert counts[0] < 8
    assert counts[-1] > 3 * counts[1]
    browser.click("[data-zoom=key]")
    assert browser.run(_MERMAID) == to_mermaid(sequence(Trace(a_run())))
    assert browser.log() == []


def test_a_mark_opens_a_call_in_place_and_closes_it(browser: Browser, page: Path):
    """An opened call shows more calls, stays where it is in the window, and closes to a single arrow."""
    browser.click("[data-zoom=phases]")
    before = browser.run(_ARROWS)
    _click_mark(browser, "generate(")
    opened = browser.run(_ARROWS)
    assert len(opened) > len(before)
    _click_mark(browser, "generate(")
    assert browser.run(_ARROWS) == before
    assert browser.log() == []


def test_loops_close_to_one_frame_and_open(browser: Browser, page: Path):
    """A closed loop is one frame with its name and count, and opens again."""
    before = browser.run(_ARROWS)
    browser.run(
        """document.querySelector('.sequence path.tag').parentNode.querySelector('.toggle')
            .dispatchEvent(new MouseEvent('click', {bubbles: true}))"""
    )
    assert browser.count(".sequence rect.stacked") == 1
    assert len(browser.run(_ARROWS)) < len(before)
    browser.run(
        """document.querySelector('.sequence rect.stacked').parentNode.dispatchEvent(
            new MouseEvent('click', {bubbles: true}))"""
    )
    assert browser.run(_ARROWS) == before


def test_keys_move_open_and_close(browser: Browser, page: Path):
    """Arrows move through the diagram, Enter opens, Escape closes; one arrow can be reached with Tab."""
    browser.click("[data-zoom=phases]")
    assert browser.count(".sequence .arrow[tabindex='0']") == 1
    browser.run("document.querySelector(\".sequence .arrow[tabindex='0']\").focus()")
    labels = browser.run(_ARROWS)
    _press(browser, "ArrowDown")
    assert _focused(browser) == labels[1]
    _press(browser, "Enter")
    assert len(browser.run(_ARROWS)) > len(labels)
    assert _focused(browser) == labels[1]
    _press(browser, "ArrowDown")
    _press(browser, "Escape")
    assert _focused(browser) == labels[1]
    assert browser.run(_ARROWS) == labels
    _press(browser, "End")
    assert _focused(browser) == labels[-1]


def test_a_click_selects_the_call_and_its_step(browser: Browser, page: Path):
    """A click on an arrow selects its first span, with its step; a call in the address is marked."""
    browser.run(
        """[...document.querySelectorAll('.sequence .arrow')]
            .find(one => one.getAttribute('aria-label').startsWith('schedule('))
            .dispatchEvent(new MouseEvent('click', {bubbles: true}))"""
    )
    number = next(i for i, span in enumerate(Trace(a_run()).spans) if span.name == "Scheduler.schedule")
    assert browser.run("return location.hash") == f"#step=1&call={number}"
    assert browser.run("return document.getElementById('spans').textContent").startswith("schedule(")
    _open(browser, page, [], hash=f"#call={number}")
    marked = browser.run("return document.querySelector('.sequence .chosen').getAttribute('aria-label')")
    assert marked.startswith("schedule(")


def test_what_is_chosen_while_the_calls_are_read_stays_marked(browser: Browser, page: Path):
    """A heading that is chosen after a call, before the calls are decoded, is still marked after that."""
    chosen = browser.run(
        """const find = label => [...document.querySelectorAll('.sequence .arrow')]
            .find(one => one.getAttribute('aria-label').startsWith(label));
        find('schedule(').dispatchEvent(new MouseEvent('click', {bubbles: true}));
        for (const key of ['Home', ' ']) {
            document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
        }
        return document.activeElement.getAttribute('aria-label')"""
    )
    assert not chosen.startswith("schedule(")
    marked = "return document.querySelector('.sequence .chosen').getAttribute('aria-label')"
    assert browser.run(marked) == chosen
    assert browser.wait("document.getElementById('call-tree').dataset.ready")
    assert browser.run(marked) == chosen
    assert browser.log() == []


def test_following_a_request_leaves_out_the_others(browser: Browser, page: Path):
    """Only what concerns the chosen request is drawn; how that is decided is explained; the page selects it."""
    browser.click("[data-zoom=kernel]")
    everything = browser.run(_ARROWS)
    browser.run(
        """const menu = document.querySelector('.sequence-controls select');
        menu.value = '1';
        menu.dispatchEvent(new Event('change'))"""
    )
    followed = browser.run(_ARROWS)
    assert any(label.startswith("__init__(") for label in everything)
    assert followed
    assert not any(label.startswith("__init__(") for label in followed)
    assert any(label.startswith("step 1: prefill") for label in browser.run(_HEADINGS))
    assert not any("request 0" in label for label in browser.run(_HEADINGS))
    assert "Only request 1" in browser.run("return document.querySelector('.sequence-summary').textContent")
    assert "request=1" in browser.run("return location.hash")


def test_find_counts_matches_and_opens_the_way(browser: Browser, page: Path):
    """Find counts the matches of the whole diagram; Enter opens the way to each and brings it into the window."""
    browser.run(
        """const query = document.querySelector('.find input');
        query.value = 'attention';
        query.dispatchEvent(new Event('input'))"""
    )
    count = "return document.querySelector('.find .matches').textContent"
    assert browser.wait("document.querySelector('.find .matches').textContent")
    matches = int(browser.run(count).split()[0])
    assert matches > 0
    assert browser.count(".sequence .found") == 0
    in_sight = """const frame = document.querySelector('.sequence').getBoundingClientRect();
        const found = document.querySelector('.sequence .found').getBoundingClientRect();
        return found.top >= frame.top && found.bottom <= frame.bottom
            && found.right > frame.left && found.left < frame.right"""
    for number in range(1, matches + 1):
        browser.click(".find [aria-label='Next match']")
        assert browser.run(count) == f"{number} of {matches}"
        assert browser.run(in_sight)
    assert browser.log() == []


def test_copy_takes_the_current_view(browser: Browser, page: Path):
    """One click copies the Mermaid text of what is drawn."""
    browser.allow("clipboardReadWrite")
    browser.click("[data-zoom=step]")
    browser.click("#copy")
    assert browser.wait("document.getElementById('copy').textContent === 'Copied'")
    copied = browser.run("return navigator.clipboard.readText()")
    assert copied.startswith("sequenceDiagram\n    %% zoom: steps; ")
    assert copied.strip() == browser.run(_MERMAID).strip()


def test_the_minimap_moves_the_diagram(browser: Browser, page: Path):
    """A click on the minimap scrolls there; a diagram that fits its frame has none."""
    browser.click("[data-zoom=kernel]")
    browser.run(
        """const map = document.querySelector('.minimap');
        const box = map.getBoundingClientRect();
        map.setPointerCapture = () => {};
        map.dispatchEvent(new PointerEvent('pointerdown',
            {bubbles: true, buttons: 1, clientX: box.left + 40, clientY: box.top + box.height / 2}))"""
    )
    assert browser.run("return document.querySelector('.sequence').scrollTop") > 500
    browser.click("[data-zoom=phases]")
    assert browser.run("return document.querySelector('.minimap-frame').hidden")


def test_the_minimap_has_the_colours_of_the_theme(browser: Browser, page: Path):
    """The minimap is drawn anew in another theme, and keeps its picture while the diagram scrolls."""
    browser.click("[data-zoom=kernel]")
    light = """(() => { const map = document.querySelector('.minimap');
        const {data} = map.getContext('2d').getImageData(0, 0, map.width, map.height);
        const seen = data.filter((value, i) => i % 4 === 3 && value > 0).length;
        const sum = data.reduce((sum, value, i) => sum + (i % 4 < 3 ? value * data[i - i % 4 + 3] : 0), 0);
        return sum / 255 / 3 / seen; })()"""
    before = browser.run(f"return {light}")
    browser.run("document.querySelector('.sequence').scrollTop = 400")
    assert browser.wait("document.querySelector('.sequence').scrollTop === 400")
    assert browser.run(f"return {light}") == pytest.approx(before, abs=20)
    browser.theme(dark=True)
    assert browser.wait(f"Math.abs({light} - {before}) > 20")
    browser.theme(dark=False)
    assert browser.wait(f"Math.abs({light} - {before}) < 20")
    browser.log()  # Chromium remarks that reading a canvas is slow


def test_the_language_switch_keeps_the_view(browser: Browser, page: Path):
    """Notes, controls and Mermaid text change their language; zoom and opened calls stay."""
    browser.click("[data-zoom=phases]")
    _click_mark(browser, "generate(")
    count = len(browser.run(_ARROWS))
    browser.click("#language")
    assert browser.wait("document.documentElement.lang === 'zh-CN'")
    assert len(browser.run(_ARROWS)) == count
    assert browser.run("return document.querySelector('.zooms [aria-pressed=true]').textContent") == "阶段"
    assert "生成阶段" in browser.run(_MERMAID)
    assert browser.log() == []


def test_headers_stay_in_sight_while_the_diagram_scrolls(browser: Browser, page: Path):
    """The lifelines' heads stay at the top of the diagram while it scrolls."""
    offset = """const frame = document.querySelector('.sequence'); frame.scrollTop = 400;
        return document.querySelector('.heads').getBoundingClientRect().top - frame.getBoundingClientRect().top"""
    assert 0 <= browser.run(offset) <= 2


def test_a_diagram_wider_than_its_frame_says_so_and_can_be_seen_as_a_whole(browser: Browser, page: Path):
    """In a narrow window a button fits the diagram to the frame and back, with a hint that is true of both."""
    _open(browser, page, [], width=390)
    beyond = "const frame = document.querySelector('.sequence'); return frame.scrollWidth - frame.clientWidth"
    hint = "return document.querySelector('#wide span').textContent"
    assert browser.run(beyond) > 0
    assert "scroll sideways" in browser.run(hint)
    browser.click("#fit")
    assert browser.run(beyond) == 0
    assert "scroll sideways" not in browser.run(hint)
    browser.click("#fit")
    assert browser.run(beyond) > 0
    _open(browser, page, [], width=4000)
    assert not browser.displayed("#fit")


@pytest.mark.parametrize("zoom", ["key", "kernel"])
def test_texts_are_inside_the_drawing_and_heads_hold_their_names(browser: Browser, tmp_path: Path, zoom: str):
    """Heads fit their names, and no text is cut off by the drawing's edge, in any script."""
    spans = a_run()
    for span in spans:
        if span.name.startswith("Worker"):
            span.attributes["tracellm.lifeline"] = "执行模型的工作进程🙂"
            span.attributes["tracellm.arguments"] = ["提示词=法国的首都是哪里", "x=WWWWWWWWWWWWWW"]
    _open(browser, tmp_path, spans)
    browser.click(f"[data-zoom={zoom}]")
    overflow = """const boxes = [...document.querySelectorAll('.heads .lifeline')];
        return [...document.querySelectorAll('.heads .name')].map(
            (name, i) => name.getComputedTextLength() - boxes[i].getBBox().width)"""
    assert all(more < 0 for more in browser.run(overflow))
    outside = """const width = +document.querySelector('.lifelines').getAttribute('width');
        return [...document.querySelectorAll('.lifelines text')].map(t => t.getBBox())
            .filter(box => box.x < 0 || box.x + box.width > width).length"""
    assert browser.run(outside) == 0


def test_a_long_diagram_draws_what_is_near_the_window(browser: Browser, tmp_path: Path):
    """Only arrows near the window are elements, among thousands, wherever it scrolls; keys reach the last one."""
    calls = Calls()
    with calls("hello.py", "request", lifeline="hello.py"):
        for i in range(3000):
            calls.leaf(f"Work.call_{i}", "kernel")
    _open(browser, tmp_path, calls.trace().spans)
    browser.click("[data-zoom=kernel]")
    drawn = "return document.querySelectorAll('.sequence .arrow').length"
    whole = browser.run("return document.querySelector('.lifelines').getAttribute('height')")
    assert float(whole) > 20_000
    assert 0 < browser.run(drawn) < 1000
    browser.run("const frame = document.querySelector('.sequence'); frame.scrollTop = frame.scrollHeight")
    assert browser.wait("document.querySelector('.sequence .arrow').dataset.part > 100")
    browser.run("document.querySelector('.sequence .arrow').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    _press(browser, "Home")
    assert browser.run("return document.activeElement.dataset.part") == "0"


def test_several_processes_have_boxes(browser: Browser, tmp_path: Path):
    """The heads of two processes stand in boxes, with a line between the processes."""
    _open(browser, tmp_path, list(sync_run().spans))
    assert browser.count(".heads .box") == 2
    assert browser.count(".lifelines .boundary") == 1
    assert browser.log() == []
