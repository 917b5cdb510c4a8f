"""What docs/opentelemetry.md says of a program's own spans is what happens."""

import re
from pathlib import Path

import pytest

from tests.otel.users import record, tree

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/opentelemetry.md", "docs/zh/opentelemetry.md"])
def test_the_example_is_recorded_as_the_page_shows(page: str, tmp_path: Path):
    """The example, run without an SDK, gives the tree that stands below it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert example is not None
    source, shown = example.groups()
    recorded = record(tmp_path, lambda: exec(compile(source, "shop.py", "exec"), {"__name__": "__main__"}))
    assert tree(recorded) == ["script.py", *("  " + line for line in shown.splitlines())]


def test_another_context_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where OpenTelemetry is told to keep its context elsewhere, the recording says that it does not see it."""
    from tracellm.probes.session import Recording

    monkeypatch.setenv("OTEL_PYTHON_CONTEXT", "elsewhere")
    with Recording(tmp_path, catalog=()) as recording:
        pass
    assert [one.partition(":")[0] for one in recording.stats["problems"]] == ["OTEL_PYTHON_CONTEXT is elsewhere"]
