"""The texts of the reports in both languages."""

from string import Formatter

import pytest

from tracellm.report.texts import LANGUAGES, text, texts


def _placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


def test_both_languages_have_the_same_texts():
    """Every key exists in each language, and no text is empty."""
    english = texts("en")
    for lang in LANGUAGES:
        assert texts(lang).keys() == english.keys()
        assert all(value.strip() for value in texts(lang).values())


@pytest.mark.parametrize("key", sorted(texts("en")))
def test_a_text_names_the_same_values_in_both_languages(key: str):
    """A text has the same values in both languages."""
    assert _placeholders(texts("zh")[key]) == _placeholders(texts("en")[key])


def test_english_counts():
    """One is singular, everything else plural, and large numbers have separators."""
    assert [text("en", "common.requests", n=n) for n in (0, 1, 2048)] == ["0 requests", "1 request", "2,048 requests"]
    assert text("zh", "common.requests", n=2048) == "2,048 个请求"


def test_an_unknown_language_is_refused_by_name():
    """An unknown language is refused with its name and the known ones."""
    with pytest.raises(ValueError, match=r"'fr'.*en, zh"):
        text("fr", "common.yes")
