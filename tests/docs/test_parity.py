"""The tables of docs/parity.md, compared with the recordings."""

import pytest

from scripts import parity_clients
from scripts.make_parity import PAGES, ROOT, as_recorded, rows, table, whole_engines


@pytest.mark.parametrize("lang", PAGES)
def test_the_tables_are_of_these_recordings(lang: str) -> None:
    """The tables have the cases, steps, decisions and tokens of tests/fixtures."""
    page, found = (ROOT / PAGES[lang]).read_text(encoding="utf-8"), rows(as_recorded)
    clients = parity_clients.client_rows(whole_engines(found), parity_clients.as_recorded(whole_engines(found)))
    for made in (table(lang, found), parity_clients.client_table(lang, clients)):
        assert made in page, f"{PAGES[lang]} is stale: run `make parity`"
