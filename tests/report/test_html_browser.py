"""The HTML page in a real browser: safe, within its window, and usable without scripts."""

from pathlib import Path

import pytest

from tests.browser import Browser
from tests.report.synthetic import HOSTILE, a_run, a_run_folder
from tracellm.report.html import report_html
from tracellm.report.wording.safe_text import visible


def _write(folder: Path, source: str) -> Path:
    page = folder / "report.html"
    page.write_text(source, encoding="utf-8")
    return page


def test_it_opens_from_disk_without_a_complaint(browser: Browser, tmp_path: Path):
    """The page opens from disk without errors, refusals or console messages."""
    browser.open(_write(tmp_path, report_html(a_run_folder(a_run()))))
    assert browser.run("return document.title") == "capital.py · tracellm"
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.log() == []


@pytest.mark.parametrize("bad", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(browser: Browser, tmp_path: Path, bad: str):
    """Hostile text is shown literally: no dialog, no script, no element."""
    spans = a_run(prompts=(bad, bad), outputs=(bad,), decode_steps=2)
    for span in spans:
        span.attributes["tracellm.arguments"] = [f"x={bad}"]
        span.attributes["tracellm.caller.text"] = bad
    error = {"type": "E", "message": bad, "file": bad, "line": 1, "function": bad, "source": bad}
    browser.open(_write(tmp_path, report_html(a_run_folder(spans, status="failed", error=error, argv=["x.py", bad]))))
    assert browser.dialog() is None
    assert browser.run("return document.title") == "capital.py · tracellm"
    assert browser.run("return document.querySelectorAll('img, iframe, textarea, b, main script').length") == 0
    assert browser.run("return document.querySelectorAll('.sequence svg').length") == 2
    shown = browser.run("return [...document.querySelectorAll('.said')].map(node => node.textContent)")
    assert shown == [visible(bad, keep="\n\t")] * 4
    assert browser.log() == []


def test_what_got_in_all_the_same_would_not_run(browser: Browser, tmp_path: Path):
    """The page's policy refuses a script, handler or style that got in by a fault."""
    attack = """<script>document.title='owned'</script><img src="x.png" onerror="document.title='owned'">
        <svg onload="document.title='owned'"></svg><p style="color: red">x</p>"""
    source = report_html(a_run_folder(a_run())).replace("</main>", attack + "</main>")
    browser.open(_write(tmp_path, source))
    assert browser.run("return document.title") == "capital.py · tracellm"
    assert browser.run("return getComputedStyle(document.querySelector('main > p')).color") != "rgb(255, 0, 0)"
    assert sum("Content Security Policy" in line for line in browser.log()) >= 3


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_its_window(browser: Browser, tmp_path: Path, width: int, lang):
    """The page never scrolls sideways, however wide its diagram, tables and words."""
    spans = a_run(prompts=("W" * 300, "中" * 300), outputs=("/".join(["path"] * 80),))
    browser.open(_write(tmp_path, report_html(a_run_folder(spans), lang)), width=width)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_it_works_without_scripts(browser: Browser, tmp_path: Path):
    """Without scripts the call tree opens, the diagram is drawn, and no button is shown."""
    browser.open(_write(tmp_path, report_html(a_run_folder(a_run()))), scripts=False)
    closed = ".tree details:not([open]) > summary"
    assert browser.displayed(".sequence svg.lifelines")
    assert not browser.displayed("#copy")
    before = browser.count(closed)
    browser.click(closed)
    assert browser.count(closed) < before


def test_the_button_copies_the_mermaid_source(browser: Browser, tmp_path: Path):
    """The button copies the diagram's Mermaid source to the clipboard."""
    browser.open(_write(tmp_path, report_html(a_run_folder(a_run()))))
    browser.allow("clipboardReadWrite")
    browser.click(".source > summary")
    browser.click("#copy")
    assert browser.wait("document.getElementById('copy').textContent === 'Copied'")
    copied = browser.run("return navigator.clipboard.readText()")
    assert copied.startswith("sequenceDiagram\n")
    assert copied.strip() == browser.run("return document.getElementById('mermaid').textContent").strip()


def test_headers_stay_in_sight_while_the_diagram_scrolls(browser: Browser, tmp_path: Path):
    """The lifelines' heads stay at the top of the diagram while it scrolls."""
    browser.open(_write(tmp_path, report_html(a_run_folder(a_run()))), height=600)
    offset = """const frame = document.querySelector('.sequence'); frame.scrollTop = 400;
        return document.querySelector('.heads').getBoundingClientRect().top - frame.getBoundingClientRect().top"""
    assert 0 <= browser.run(offset) <= 2


def test_a_diagram_wider_than_its_frame_says_so_and_can_be_seen_as_a_whole(browser: Browser, tmp_path: Path):
    """In a narrow window a button fits the diagram to the frame and back; in a wide one there is none."""
    page = _write(tmp_path, report_html(a_run_folder(a_run())))
    browser.open(page, width=390)
    beyond = "const frame = document.querySelector('.sequence'); return frame.scrollWidth - frame.clientWidth"
    assert browser.run(beyond) > 0
    browser.click("#fit")
    assert browser.run(beyond) == 0
    browser.click("#fit")
    assert browser.run(beyond) > 0
    browser.open(page, width=4000)
    assert not browser.displayed("#fit")


def test_texts_in_the_diagram_are_no_wider_than_measured(browser: Browser, tmp_path: Path):
    """Heads fit their boxes, and labels their reserved width, in both languages."""
    spans = a_run()
    for span in spans:
        if span.name.startswith("Worker"):
            span.attributes["tracellm.lifeline"] = "执行模型的工作进程🙂"
            span.attributes["tracellm.arguments"] = ["提示词=法国的首都是哪里", "x=WWWWWWWWWWWWWW"]
    browser.open(_write(tmp_path, report_html(a_run_folder(spans))))
    overflow = """const boxes = [...document.querySelectorAll('.heads .lifeline')];
        return [...document.querySelectorAll('.heads .name')].map(
            (name, i) => name.getComputedTextLength() - boxes[i].getBBox().width)"""
    assert all(more < 0 for more in browser.run(overflow))
    outside = """const width = +document.querySelector('.lifelines').getAttribute('width');
        return [...document.querySelectorAll('.lifelines text')].map(t => t.getBBox())
            .filter(box => box.x < 0 || box.x + box.width > width).length"""
    assert browser.run(outside) == 0
