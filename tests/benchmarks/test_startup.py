"""benchmarks/startup.py: its measurements, and the table on the page."""

import re
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.pages import table
from benchmarks.startup import HEADS, NOT_MEASURED, PAGES, TITLES, WAYS, Start, measure, startup_table


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    """One measurement of two fast variants."""
    return measure(["help", "tracellm"], dict.fromkeys(WAYS, sys.executable), 1, repeats=1, warm_up=False)


def test_times_are_told_of_each(figures: dict[str, Any]) -> None:
    """Each variant has a wall-clock time and a CPU time."""
    assert list(figures["ways"]) == ["help", "tracellm"]
    for way in figures["ways"].values():
        assert way["seconds"]["median"] > 0
        assert way["cpu_seconds"]["median"] > 0
    assert 0 <= figures["busy_elsewhere"] <= 1


def test_what_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that fails ends the benchmark."""
    monkeypatch.setitem(WAYS, "help", Start(["-c", "raise SystemExit(3)"], {}))
    with pytest.raises(subprocess.CalledProcessError, match=r"the way help.* 3"):
        measure(["help"], {"help": sys.executable}, 1, repeats=1)


@pytest.mark.parametrize("lang", PAGES)
def test_the_page_has_the_rows_of_the_command(figures: dict[str, Any], lang: str) -> None:
    """The table on the page has the rows and columns that the command writes."""
    column = list(PAGES).index(lang)
    ways = dict.fromkeys(TITLES, figures["ways"]["tracellm"])
    content = startup_table({**figures, "ways": ways}, lang, "COMMAND", "MACHINE")
    assert "COMMAND" in content
    assert "| 1.00 |" in content
    shown = re.search(r"<!-- made: startup -->\n(.*?)<!-- end -->", PAGES[lang].read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    if shown[1] != NOT_MEASURED[lang]:
        assert shown[1].startswith(table([head[column] for head in HEADS], []))
        names = [line.split(" | ")[0].removeprefix("| ") for line in shown[1].splitlines()[2:] if line.startswith("|")]
        assert names in ([title[column] for title in list(TITLES.values())[:end]] for end in (None, -1))  # without vLLM
