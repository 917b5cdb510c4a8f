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
    """Without scripts the diagram is there as Mermaid text, and the views that need scripts say so."""
    browser.open(_write(tmp_path, report_html(a_run_folder(a_run()))), scripts=False)
    assert browser.displayed("#mermaid")
    assert browser.count("#copy") == 0
    assert browser.displayed("#call-tree .empty")
