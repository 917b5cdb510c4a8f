"""The pages of docs/understand and docs/compare.md, compared with runs of their scripts."""

import re
from pathlib import Path

import pytest

from scripts.make_docs import normal
from scripts.understand_docs import PAGES, UNDERSTAND, page_of, record, scripts_of, shown
from tracellm.report.texts import LANGUAGES


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """New runs of the scripts of all pages, in one process."""
    folder = tmp_path_factory.mktemp("understand")
    record(PAGES, folder)
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_its_scripts_do(name: str, runs: Path) -> None:
    """Both languages of a page show a new run of its scripts, apart from times."""
    for lang in LANGUAGES:
        page = page_of(name, lang)
        assert normal(page.read_text(encoding="utf-8")) == normal(shown(name, lang, runs)), (
            f"{page} is stale: run `make docs`"
        )


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_have_the_same_scripts(name: str) -> None:
    """The Chinese page has the scripts and the shown parts of the English one, in its order."""
    english, chinese = (page_of(name, lang).read_text(encoding="utf-8") for lang in LANGUAGES)
    assert scripts_of(english) == scripts_of(chinese)
    assert re.findall(r"<!-- made: .* -->", english) == re.findall(r"<!-- made: .* -->", chinese)


@pytest.mark.parametrize("name", UNDERSTAND)
def test_a_page_answers_three_questions(name: str) -> None:
    """A page has a diagram, the counterpart in vLLM, and three changes with a run of each."""
    text = page_of(name, "en").read_text(encoding="utf-8")
    assert "```mermaid" in text
    assert "## What vLLM does" in text
    assert text.partition("## What would happen if ...")[2].count("\n### ...") == 3
    assert len(scripts_of(text)) >= 4
