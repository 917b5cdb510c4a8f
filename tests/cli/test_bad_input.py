"""Each kind of bad input to the command gets one clear message, exit status 2, and no traceback."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command

REFUSED = {
    "nothing to run": (["run"], "no script to run; usage: tracellm run"),
    "a script for a command": (["script.py", "x"], r"no command script\.py; to run a script: tracellm run script\.py$"),
    "no such script for a command": (["nope.py"], r"to run a script: tracellm run nope\.py$"),
    "no such script": (["run", "nope.py"], r"there is no script nope\.py"),
    "no such script, explained": (["run", "--explain", "nope.py"], r"there is no script nope\.py"),
    "a folder as script": (["run", "folder"], "folder is a folder without a __main__.py"),
    "explain's options without it": (["run", "--out", "x", "script.py"], "--out needs --explain"),
    "only's options without it": (["run", "--only", "x", "script.py"], "--only needs --explain"),
    "only what is not there": (
        ["run", "--explain", "--only", "Schedular", "script.py"],
        r"--only 'Schedular' matches nothing .* The closest names: Scheduler, ",
    ),
    "skip what is not there": (
        ["run", "--explain", "--skip", "zzz*", "script.py"],
        r"'zzz\*' matches nothing that can be",
    ),
    "skip what is inherited": (
        ["run", "--explain", "--skip", "LlamaAttention", "script.py"],
        "'LlamaAttention' excludes nothing: its methods are inherited from Qwen2Attention",
    ),
    "only what is too deep": (
        ["run", "--explain", "--only", "Qwen2MLP", "--detail", "step", "script.py"],
        "--only 'Qwen2MLP' records nothing: --detail and --skip exclude all",
    ),
    "a ring of none": (["run", "--explain", "--ring", "0", "script.py"], "--ring takes the number of calls .* not '0'"),
    "a ring of words": (["run", "--explain", "--ring", "few", "script.py"], "--ring takes the number .* not 'few'"),
    "two kinds of log": (["run", "--explain", "--brief", "-q", "script.py"], "--quiet --brief exclude each other"),
    "convert without explain": (["run", "--convert", "later", "script.py"], "--convert needs --explain"),
    "no report to open": (
        ["run", "--explain", "--convert", "later", "--open", "script.py"],
        "--convert later writes no report for --open",
    ),
    "a level": (["run", "--explain", "--detail", "deep", "script.py"], "no level 'deep': --detail takes request, step"),
    "a language": (["run", "--explain", "--lang", "fr", "script.py"], "no language 'fr': --lang takes en or zh"),
    "out is a file": (["run", "--explain", "--out", "script.py", "script.py"], "--out script.py is a file"),
    "out is taken": (["run", "--explain", "--out", "folder", "script.py"], r"folder contains other files \(kept.txt, "),
    "out below a file": (["run", "--explain", "--out", "script.py/x", "script.py"], "cannot write the run folder"),
    "out not writable": (["run", "--explain", "--out", "/proc/tracellm", "script.py"], "cannot write the run folder"),
    "no run yet": (["show", "tree"], "there is no run in tracellm-runs/ yet"),
    "no run yet, report": (["report"], "there is no run in tracellm-runs/ yet"),
    "no such run": (["show", "nope", "tree"], "there is no run folder nope"),
    "no such run, report": (["report", "nope"], "there is no run folder nope"),
    "a file as run": (["show", "script.py", "tree"], "script.py is a file, not a run folder. Give the folder"),
    "a folder that is no run": (["show", "folder", "tree"], "folder is not a run folder: it has neither run.json"),
    "a folder that is no run, report": (["report", "folder"], "folder is not a run folder: it has neither run.json"),
    "show what": (["show"], "nothing to show.*show steps`$"),
    "show what of a run": (["show", "folder"], "give the part of folder to show"),
    "show what else": (
        ["show", "folder", "colours"],
        "cannot show 'colours': give sequence, tree, requests, steps, step N or workers",
    ),
    "show which step": (["show", "folder", "step"], "give the number of the step, as in `tracellm show step 3`"),
    "show too much": (["show", "folder", "folder", "tree"], "'folder' is too many"),
}
"""Arguments, and a pattern of the message."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a script and a folder that is not empty."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("raise AssertionError('it ran')")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept.txt").write_text("kept")
    return tmp_path


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_refused_in_one_line(
    arguments: list[str], message: str, lang: str, here: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bad input gives one line on stderr, in the user's language, status 2, and no change on disk."""
    monkeypatch.setenv("TRACELLM_LANG", lang)
    said = command(*arguments)
    assert (said.status, said.out) == (2, "")
    assert len(said.err.splitlines()) == 1
    if lang == "en":
        assert re.search(message, said.err)
        assert said.err.startswith("tracellm: ")
    else:
        assert said.err.startswith("tracellm：")
        assert re.search(r"[\u4e00-\u9fff]", said.err) or "run folder" in said.err
    assert sorted(path.name for path in here.rglob("*")) == ["folder", "kept.txt", "script.py"]


@pytest.mark.parametrize(
    "arguments", [["run", "--nope", "script.py"], ["nope"], ["run", "--out"], ["run", "-m"], ["report", "a", "b"]]
)
def test_what_cannot_be_parsed_is_refused_with_the_usage(arguments: list[str], here: Path, command: Command) -> None:
    """An unknown option or command is refused by name, with status 2 and a hint at --help."""
    said = command(*arguments)
    assert said.status == 2
    assert said.err.count("--help") == 1
    assert "Error: " in said.err
    assert re.fullmatch(r"See `tracellm( run| report)? --help`\.", said.err.splitlines()[-1])
    assert "Traceback" not in said.err


@pytest.mark.parametrize("arguments", [[], ["lab"], ["bench"]])
def test_a_group_alone_prints_its_help(arguments: list[str], here: Path, command: Command) -> None:
    """A group of commands without arguments prints its help, and no error."""
    said = command(*arguments)
    assert (said.out + said.err).count("Usage: ") == 1
    assert "Commands:" in said.out + said.err
    assert "Error" not in said.err


def test_tracellm_lang_is_refused_by_its_name(here: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong language in TRACELLM_LANG is refused under that name."""
    monkeypatch.setenv("TRACELLM_LANG", "klingon")
    said = command("run", "--explain", "script.py")
    assert said.status == 2
    assert "TRACELLM_LANG takes en or zh" in said.err


def damaged(run_folder: Path, tmp_path: Path, how: str) -> Path:
    """Return a copy of a run folder with one fault."""
    folder = tmp_path / "damaged"
    shutil.copytree(run_folder, folder)
    (trace,) = (folder / "trace").iterdir()
    match how:
        case "torn":
            trace.write_bytes(trace.read_bytes()[:-100])
        case "corrupt":
            lines = trace.read_bytes().splitlines(keepends=True)
            trace.write_bytes(b"".join([lines[0], b"{}]\n\xff\n", *lines[1:]]))
        case "no manifest":
            (folder / "run.json").unlink()
        case "broken manifest":
            (folder / "run.json").write_text('{"schema": 1,')
        case "no trace":
            trace.unlink()
        case "empty trace":
            trace.write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    ("how", "message"),
    {
        "torn": "the last line is torn",
        "corrupt": "2 corrupt lines skipped: 2-3",
        "no manifest": "run.json is missing",
        "broken manifest": "run.json is damaged",
        "no trace": r"trace/ has no .jsonl file",
        "empty trace": "is empty",
    }.items(),
)
def test_a_damaged_run_is_read_as_far_as_it_goes(
    how: str, message: str, run_folder: Path, tmp_path: Path, command: Command
) -> None:
    """A damaged run is shown as far as it can be read; each fault is a line on stderr, with status 1."""
    folder = damaged(run_folder, tmp_path, how)
    for part in ("tree", "sequence", "steps"):
        said = command("show", str(folder), part)
        assert said.status == 1
        assert re.fullmatch(rf"tracellm: damaged recording: .*{message}.*\n", said.err)
    assert command("report", str(folder)).status == 1
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_run_that_did_not_end_says_so(run_folder: Path, tmp_path: Path, command: Command) -> None:
    """A killed run is shown, with a line on stderr that it did not finish."""
    folder = tmp_path / "killed"
    shutil.copytree(run_folder, folder)
    manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps({**manifest, "status": "running"}), encoding="utf-8")
    for arguments in (("show", str(folder), "steps"), ("report", str(folder))):
        said = command(*arguments)
        assert said.status == 0
        assert said.out
        assert re.fullmatch(r"tracellm: this run did not finish: it was killed or is .*\n", said.err)


def test_a_terminal_without_unicode(run_folder: Path) -> None:
    """Characters that stdout cannot encode are escaped, and a closed pipe is not an error."""
    show = [sys.executable, "-m", "tracellm", "show", str(run_folder), "tree", "--lang", "zh"]
    done = subprocess.run(show, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\u8c03\u7528" in done.stdout
    for command in (show, [sys.executable, "-m", "tracellm", "doctor", "--json"]):
        ends, pipe = os.pipe()
        os.close(ends)
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE)
        os.close(pipe)
        assert (done.returncode, done.stderr) == (0, b"")
