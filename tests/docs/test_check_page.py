"""The page about `tracellm check`, compared with the command."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command, command
from tests.trace.server_run import served
from tracellm.trace import otlp
from tracellm.trace.run_folder import write_manifest

__all__ = ["command"]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/check.md", "docs/zh/check.md"])
def test_the_page_says_what_the_command_says(
    page: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command on the page gives the output shown, apart from times, and a run passes its table."""
    (tmp_path / "my-run" / "trace").mkdir(parents=True)
    write_manifest(tmp_path / "my-run", {"schema": 1, "tracellm": "0", "status": "finished"})
    run = served()
    for recorder in (run.api, run.engine):
        file = tmp_path / "my-run" / "trace" / f"{recorder.process.name}.jsonl"
        file.write_bytes(otlp.encode(recorder.process, recorder.spans))
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"```console\n\$ tracellm (.+)\n([^`]+)```", text)
    assert len(shown) == 2
    for arguments, output in shown:
        assert _timeless(command(*arguments.split()).out) == _timeless(output)
    [table] = re.findall(r"```text\n(phase\t[^`]+)```", text)
    Path("table.tsv").write_text(table)
    assert command("check", "my-run", "--expect", "table.tsv").out == "5/5 calls found, in this order\n"
    assert command("check", "my-run", "--expect", "table.tsv", "--phase", "startup").out.startswith("3/3 ")


def _timeless(text: str) -> str:
    return re.sub(r"[\d.]+ ms", "… ms", text)
