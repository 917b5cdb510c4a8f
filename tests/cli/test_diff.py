"""`tracellm diff` on real runs, and its refusals."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command


def test_a_run_and_itself(run_folder: Path, command: Command) -> None:
    """A run does not differ from itself; status 0, nothing on stderr."""
    said = command("diff", str(run_folder), str(run_folder))
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith("Only times differ: same tokens, same ")


def test_runs_are_named_as_elsewhere(run_folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script's name means its newest run; the output follows the terminal's width and --lang."""
    monkeypatch.chdir(run_folder.parent.parent)
    monkeypatch.setenv("COLUMNS", "66")
    said = command("diff", "script", "latest", "--lang", "zh")
    assert said.status == 0
    assert said.out.startswith("只有时间不同")
    assert command("diff", "latest", "latest", "--markdown").out.count("\n## ") == 6


def test_a_run_is_named_by_its_script_where_that_lies(
    run_folder: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If script.py is a file, its name or path still means its newest run."""
    (tmp_path / "tracellm-runs").symlink_to(run_folder.parent)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    for script in ("script.py", "below/script.py"):
        Path(script).touch()
        said = command("diff", script, str(run_folder))
        assert (said.status, said.err) == (0, "")
        assert said.out.startswith("Only times differ")


def test_a_damaged_recording_is_compared_and_told(run_folder: Path, tmp_path: Path, command: Command) -> None:
    """The damaged run is named, what can be read is compared, and the status is 1."""
    damaged = tmp_path / "damaged"
    shutil.copytree(run_folder, damaged)
    (damaged / "run.json").write_text("{")
    said = command("diff", str(run_folder), str(damaged))
    assert said.status == 1
    assert said.err.startswith(f"tracellm: damaged recording {damaged}: run.json is damaged")
    assert "all equal in both" in said.out


def test_html_writes_a_page(
    run_folder: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--html writes diff.html into the current directory, or the file given, and prints its path."""
    monkeypatch.chdir(tmp_path)
    said = command("diff", str(run_folder), str(run_folder), "--html")
    assert (said.status, said.out, said.err) == (0, "comparison: diff.html\n", "")
    assert "Only times differ" in (tmp_path / "diff.html").read_text(encoding="utf-8")
    said = command("diff", str(run_folder), str(run_folder), "--lang", "zh", "--html", "mine.html")
    assert (said.status, said.out) == (0, "对比：mine.html\n")
    assert (tmp_path / "mine.html").read_text(encoding="utf-8").startswith('<!doctype html>\n<html lang="zh-CN">')


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--html", "nowhere/page.html"], "cannot write nowhere/page.html: No such file or directory"),
        (["--html", "--markdown"], "--html and --markdown exclude each other"),
    ],
)
def test_a_page_that_cannot_be_written(
    options: list[str],
    message: str,
    run_folder: Path,
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that cannot be written, or two formats at once, is one line with status 2."""
    monkeypatch.chdir(tmp_path)
    said = command("diff", str(run_folder), str(run_folder), *options)
    assert (said.status, said.out) == (2, "")
    assert message in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diff", "--html", "one", "two"], "--html one would be the file to write; give --html after the two runs"),
        (["diff"], "diff takes two runs: tracellm diff RUN_A RUN_B"),
        (["diff", "one"], "diff takes two runs"),
        (["diff", "one", "two", "three"], "diff takes two runs"),
        (["diff", "nope", "nope"], "there is no run folder nope"),
        (["diff", ".", "."], ". is not a run folder"),
    ],
)
def test_refused(
    arguments: list[str], message: str, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal is one line, status 2, with nothing on stdout."""
    monkeypatch.chdir(tmp_path)
    said = command(*arguments)
    assert (said.status, said.out) == (2, "")
    assert message in said.err
    assert len(said.err.splitlines()) == 1


def test_it_needs_no_torch(run_folder: Path) -> None:
    """A diff works where only the recording is installed."""
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv[1:] = ['diff', sys.argv[1], sys.argv[1]];"
        "from tracellm.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run_folder)], capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
