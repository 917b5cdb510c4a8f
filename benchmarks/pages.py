"""Writer of the benchmarks' tables in the documentation, with the machine, the date and the command.

A benchmark's output is between `<!-- made: NAME -->` and `<!-- end -->` on a page.
"""

import platform
import re
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from tracellm.bench.machine import processor

__all__ = ["COST_PAGES", "machine", "table", "write_pages"]

_ROOT = Path(__file__).parents[1]
COST_PAGES = {"en": _ROOT / "docs" / "probe-cost.md", "zh": _ROOT / "docs" / "zh" / "probe-cost.md"}


def write_pages(pages: Mapping[str, Path], name: str, contents: Mapping[str, str]) -> None:
    """Replace the output of the benchmark `name` on the page of each language.

    Raises:
        ValueError: a page has no such mark.
    """
    pattern = re.compile(rf"(<!-- made: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    for lang, page in pages.items():
        text = page.read_text(encoding="utf-8")
        if not (marks := pattern.search(text)):
            raise ValueError(f"{page} has no place for {name}: put `<!-- made: {name} -->` and `<!-- end -->` into it")
        page.write_text(text[: marks.end(1)] + contents[lang] + text[marks.start(2) :], encoding="utf-8")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, the first column aligned to the left and the others to the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def machine(packages: Sequence[str] = ()) -> str:
    """Return a line with the date, processor, Python and versions of packages."""
    versions = [f"{package} {version(package)}" for package in packages]
    return ", ".join([time.strftime("%Y-%m-%d"), processor(), f"Python {platform.python_version()}", *versions])
