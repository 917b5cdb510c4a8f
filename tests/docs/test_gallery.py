"""The pages of docs/gallery are those of new runs."""

import base64
import html
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from scripts.gallery import GALLERY, PAGES, RUNS, SCRIPTS, record_script
from tracellm.report.html import report_html
from tracellm.trace.run_folder import RunFolder

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)"')
_DATA = re.compile(r'id="data">([^<]+)<')
_TIMES = {"at", "us", "recording", "parts", "outputs", "queued", "prefill", "first", "decode", "sampled"}


def _page(name: str) -> str:
    return (GALLERY / f"{name}.html").read_text(encoding="utf-8")


def _schedule(page: str) -> list[Any]:
    """Return the requests and steps in a page's data, without times and probabilities."""
    found = _DATA.search(page)
    assert found
    data = json.loads(zlib.decompress(base64.b64decode(found[1])))
    rows = [*data["requests"], *(step for engine in data["engines"] for step in engine["steps"])]
    return [{name: value for name, value in row.items() if name not in _TIMES} for row in rows]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """New runs of the scripts."""
    folder = tmp_path_factory.mktemp("gallery")
    for name in SCRIPTS:
        record_script(name, folder)
    return {name: RunFolder.open(folder / name) for name in SCRIPTS}


@pytest.mark.parametrize("name", SCRIPTS)
def test_pages_have_the_steps_of_a_new_run(name: str, runs: dict[str, RunFolder]) -> None:
    """A page has every request and step of a new run: schedule, blocks, tokens and reasons."""
    now = report_html(runs[name])
    assert _schedule(_page(name)) == _schedule(now), f"stale: run `python -m scripts.gallery` ({name})"


@pytest.mark.parametrize("name", RUNS)
def test_pages_have_the_current_code(name: str, runs: dict[str, RunFolder]) -> None:
    """Every page has the current script and style sheet."""
    policies = {html.unescape(found) for found in _POLICY.findall(_page(name) + report_html(runs["tiny-batch"]))}
    assert len(policies) == 1, "stale: run `python -m scripts.gallery`"


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_every_run_is_listed(path: Path) -> None:
    """The page in each language has a picture and links to steps for each run."""
    page = path.read_text(encoding="utf-8")
    for name in RUNS:
        assert f"gallery-{name}.png" in page
        assert re.search(rf"gallery/{name}\.html#(engine=\d+&)?step=\d+", page) or name == "real-vllm"
