"""The page about `tracellm export` lists all formats and columns."""

import re
from pathlib import Path

import pytest

from tracellm.report.export import FORMATS
from tracellm.report.export.table import COLUMNS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/export.md", "docs/zh/export.md"])
def test_every_form_and_every_column_is_told(page: str) -> None:
    """The first table has a row for each format in the order of --help, and the columns are in theirs."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"(?m)^\| `(\w+)` \|", text) == list(FORMATS)
    columns = text[text.index("`start_ns`") :]
    assert tuple(re.findall(r"`(\w+)`", columns)[: len(COLUMNS)]) == COLUMNS
