"""The glossary of the reports, the same in docs/ as on the page."""

import re
from pathlib import Path

import pytest

from tests.report.synthetic import a_run, a_run_folder
from tracellm.report.html import report_html
from tracellm.report.texts import LANGUAGES, Language, text, texts
from tracellm.report.texts.glossary import TERMS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {"en": DOCS / "glossary.md", "zh": DOCS / "zh" / "glossary.md"}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_word_is_explained_in_docs_and_on_the_page(lang: Language):
    """Each term has its line in docs/, in the same words and order as in the texts, and its entry on the page."""
    page = PAGES[lang].read_text(encoding="utf-8")
    shown = report_html(a_run_folder(a_run()), lang).replace("&#39;", "'")
    colon = ": " if lang == "en" else "："
    lines = [f"- **{text(lang, f'glossary.{term}.name')}**{colon}{text(lang, f'glossary.{term}')}" for term in TERMS]
    assert page.splitlines()[-len(lines) :] == lines
    for term in TERMS:
        meaning = re.sub("`(.+?)`", r"<code>\1</code>", text(lang, f"glossary.{term}"))
        assert f"<dd>{meaning}</dd>" in shown


def test_no_word_is_left_out():
    """Every text of the glossary belongs to a listed term."""
    listed = {f"glossary.{term}{name}" for term in TERMS for name in ("", ".name")} | {"glossary.title"}
    assert {key for key in texts("en") if key.startswith("glossary.")} == listed
