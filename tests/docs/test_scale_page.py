"""The table and figures of docs/scale.md, compared with the benchmark and the reader."""

import re

import pytest

from benchmarks.trace_scale import COLUMNS, PAGES, SIZES
from tests.trace.test_fuzz import FOLDERS, LINES
from tracellm.trace import run_folder


@pytest.mark.parametrize("lang", PAGES)
def test_the_table_is_the_benchmarks(lang: str):
    """The table has a row for each measured size and a figure in each column, the same in both languages."""
    page = PAGES[lang].read_text(encoding="utf-8")
    made = re.search(r"<!-- made: scale -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert made, "the marks are missing"
    head, _, *rows = [line.strip("| ").split(" | ") for line in made[1].splitlines() if line.startswith("|")]
    assert head == COLUMNS[lang].split(" | ")
    assert [
        (row[1], abs(int(row[0].replace(",", "")) / size - 1) < 0.05)
        for row, (size, _) in zip(rows, SIZES, strict=True)
    ] == [(str(processes), True) for _, processes in SIZES]
    assert {len(row) for row in rows} == {len(head)}
    others = [re.findall(r"^\| \d.*$", page.read_text(encoding="utf-8"), re.MULTILINE) for page in PAGES.values()]
    assert others[0] == others[1]


@pytest.mark.parametrize("lang", PAGES)
def test_the_figures_of_the_text(lang: str):
    """The text has the number of damaged recordings and the limit of a line."""
    page = PAGES[lang].read_text(encoding="utf-8")
    assert f"{LINES + FOLDERS:,}" in page
    assert f"{run_folder._LONGEST_LINE >> 20} MiB" in page
