"""The pages of docs/course are those of the labs, and the runs on one of them are those of new runs."""

from pathlib import Path

import pytest

from scripts.course_docs import (
    MUTANTS_PAGE,
    filled,
    lab_page,
    name_of,
    page_of,
    readme_part,
    record_runs,
    table_of_labs,
)
from scripts.make_docs import normal
from tracellm.lab.lab import load_labs
from tracellm.report.texts import LANGUAGES, Language

LABS = load_labs()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_each_lab_has_its_page(lang: Language) -> None:
    """A lab's page has its README, a picture of its run and its mistakes; the list of labs has them all."""
    for lab in LABS:
        page = page_of(name_of(lab), lang).read_text(encoding="utf-8")
        assert readme_part(lab, lang) in page, f"lab {lab.number} is stale: run `python -m scripts.course_docs`"
        assert f"{name_of(lab)}.png" in page
        missing = [mutant.name for mutant in lab.mutants if mutant.exhibit and mutant.says[lang][:-1] not in page]
        assert missing == []
    index = page_of("index", lang)
    assert index.read_text(encoding="utf-8") == filled(index, {"labs": table_of_labs(lang)})


@pytest.mark.parametrize("lang", LANGUAGES)
def test_all_mutants_are_listed(lang: Language) -> None:
    """The page of mutants has a row for each, in the language's words, and their number."""
    page = page_of(MUTANTS_PAGE, lang).read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    expected = [(mutant.name, mutant.says[lang]) for lab in LABS for mutant in lab.mutants]
    assert [(row.split("`")[1], row.split(" | ")[1]) for row in rows] == expected
    assert f"\n{len(expected)}\n" in page


def test_a_page_shows_new_runs(tmp_path: Path) -> None:
    """The recorded run, the failed cases and the differing steps of lab 5 are those of new runs, apart from times."""
    lab = LABS[5]  # others draw tokens, or choose between close ones, which depends on the processor's bfloat16
    runs = record_runs(lab, tmp_path)
    for lang in LANGUAGES:
        page = page_of(name_of(lab), lang).read_text(encoding="utf-8")
        assert normal(page) == normal(lab_page(lab, lang, runs)), "stale: run `python -m scripts.course_docs`"
