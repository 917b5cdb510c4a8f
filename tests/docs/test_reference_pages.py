"""docs/cli.md, docs/settings.md and docs/api.md agree with the commands, the engine's arguments and its API."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tracellm
from scripts.make_docs import filled
from scripts.reference_docs import PAGES, blocks
from tracellm.notebook.requests import RunRequest
from tracellm.notebook.steps import RunStep
from tracellm.report.texts import LANGUAGES, Language

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_pages_are_current(lang: Language) -> None:
    """The pages in each language have the current help texts, names and defaults."""
    made = blocks(lang)
    for name in PAGES[lang]:
        page = (ROOT / name).read_text(encoding="utf-8")
        assert page == filled(page, made), f"{name} is stale: run `python -m scripts.reference_docs`"


def _code(page: str) -> list[str]:
    """Return the page's Python code."""
    return re.findall(r"(?s)```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", ["docs/api.md", "docs/zh/api.md"])
def test_the_api_page_is_complete(page: str) -> None:
    """The page names everything that `tracellm` exports, and every public method of `LLM` for users."""
    text = (ROOT / page).read_text(encoding="utf-8")
    methods = {f"LLM.{name}" for name in vars(tracellm.LLM) if not name.startswith("_")} - {"LLM.preprocess_chat"}
    missing = {name for name in methods.union(tracellm.__all__) - {"__version__"} if name not in text}
    assert missing == set()
    assert _code(page) == _code("docs/api.md")


@pytest.mark.parametrize("page", ["docs/api.md", "docs/zh/api.md"])
def test_the_api_page_has_every_member_of_a_run(page: str) -> None:
    """The page names every public attribute and method of a run, a step and a request."""
    text = (ROOT / page).read_text(encoding="utf-8")
    own = {name for kind in (tracellm.Run, RunStep, RunRequest) for name in vars(kind) if not name.startswith("_")}
    attributes = {"folder", "lang", "recording", "engine"}  # set in __init__
    missing = {name for name in own | attributes if not re.search(rf"\.{name}\b", text)}
    assert missing == set()


def test_the_code_of_the_api_page_runs(tmp_path: Path) -> None:
    """The examples on the page run."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", "".join(_code("docs/api.md"))], cwd=tmp_path, env=environment, check=True)
