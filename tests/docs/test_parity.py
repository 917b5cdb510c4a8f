"""The table of docs/parity.md speaks of the recordings that there are."""

import pytest

from scripts.make_parity import PAGES, ROOT, as_recorded, rows, table


@pytest.mark.parametrize("lang", PAGES)
def test_the_table_is_of_these_recordings(lang: str) -> None:
    """Cases, steps, decisions and tokens are those of tests/fixtures; that all are equal is held elsewhere."""
    page = (ROOT / PAGES[lang]).read_text(encoding="utf-8")
    assert table(lang, rows(as_recorded)) in page, f"{PAGES[lang]} is stale: run `make parity`"
