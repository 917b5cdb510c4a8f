"""The page about a picture, compared with new runs of the example and of a server."""

import re
from pathlib import Path

import pytest

from scripts.make_docs import filled, normal
from scripts.picture_docs import PAGES, blocks, record
from tracellm.report.texts import LANGUAGES, Language


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The folder of new runs, and what they printed."""
    folder = tmp_path_factory.mktemp("picture")
    return folder, record(folder)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_shows_what_happens(lang: Language, runs: tuple[Path, dict[str, str]]) -> None:
    """The page in each language shows new runs, apart from times."""
    page = PAGES[lang].read_text(encoding="utf-8")
    assert normal(page) == normal(filled(page, blocks(lang, *runs))), f"{PAGES[lang]} is stale: run `make docs`"


def test_all_calls_of_the_documents_are_there(runs: tuple[Path, dict[str, str]]) -> None:
    """A served picture makes all 67 calls of the documents' diagram, in its order."""
    assert "67/67 calls found, in this order" in blocks("en", *runs)["picture-check"]


def test_both_languages_have_the_same_parts() -> None:
    """The Chinese page has the generated parts of the English one, in its order."""
    english, chinese = (re.findall(r"<!-- made: .* -->", PAGES[lang].read_text(encoding="utf-8")) for lang in LANGUAGES)
    assert english == chinese
