"""Examples of docs/opentelemetry.md on a program's own spans match real recordings."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.otel.users import tree
from tracellm.trace.run_folder import RunFolder, write_manifest

ROOT = Path(__file__).parents[2]

RECORDS = """
import runpy
from tracellm.probes.recording import Recording
with Recording({folder!r}, catalog=()):
    runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.parametrize("page", ["docs/opentelemetry.md", "docs/zh/opentelemetry.md"])
def test_the_example_is_recorded_as_the_page_shows(page: str, tmp_path: Path):
    """The example gives the tree shown below it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert example is not None
    source, shown = example.groups()
    (tmp_path / "shop.py").write_text(source)  # in its own process: the global provider can be set only once
    code = RECORDS.format(folder=str(tmp_path), script=str(tmp_path / "shop.py"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    write_manifest(tmp_path, {"schema": 1})
    assert tree(RunFolder.open(tmp_path).trace) == ["python", *("  " + line for line in shown.splitlines())]


def test_another_context_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """If OpenTelemetry uses another context implementation, the recording reports that it cannot follow it."""
    from tracellm.probes.recording import Recording

    monkeypatch.setenv("OTEL_PYTHON_CONTEXT", "elsewhere")
    with Recording(tmp_path, catalog=()) as recording:
        pass
    assert [one.partition(":")[0] for one in recording.stats["problems"]] == ["OTEL_PYTHON_CONTEXT is elsewhere"]
