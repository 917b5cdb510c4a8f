"""`with tracellm.explain() as run:`, for notebooks and scripts."""

import html
import json
import multiprocessing
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tracellm
from tests.cli.conftest import Command
from tracellm.cli.errors import CommandError

EXPLAINED = "import tracellm\nwith tracellm.explain(): pass\n"
"""A program that explains itself."""


@tracellm.probe
def greet(name: str) -> str:
    """Return a greeting; a probed function that needs no engine."""
    return f"hello {name}"


def test_a_block_is_recorded_and_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the block the run folder is complete, the three views are text, and nothing was printed."""
    with tracellm.explain(tmp_path / "run") as run:
        greet("you")
    assert run.folder == tmp_path / "run"
    assert (run.folder / "report.html").exists()
    assert json.loads((run.folder / "run.json").read_text())["status"] == "finished"
    assert "greet" in run.tree()
    assert "greet" in run.sequence()
    assert str(run.steps)
    assert capsys.readouterr() == ("", "")


def test_a_run_shows_what_to_ask_for(tmp_path: Path) -> None:
    """The repr of a run has its folder and the names of its parts."""
    with tracellm.explain(tmp_path / "run") as run:
        assert repr(run) == f"<run in {tmp_path / 'run'}, being recorded>"
    assert repr(run).startswith(f"<run in {tmp_path / 'run'}: .steps, .requests")


@pytest.mark.parametrize(
    ("command", "stdin", "name"),
    [
        (["-"], EXPLAINED, "stdin"),
        (["-c", EXPLAINED], "", "command"),
        (["app.pyz"], "", "app"),
        (["-m", "package"], "", "package"),
        (["./-script.py"], "", "script"),
    ],
)
def test_a_run_folder_is_named_after_the_program(command: list[str], stdin: str, name: str, tmp_path: Path) -> None:
    """The name of the run folder comes from the program, and never looks like an option."""
    (tmp_path / "-script.py").write_text(EXPLAINED)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(EXPLAINED)
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", EXPLAINED)
    subprocess.run([sys.executable, *command], cwd=tmp_path, input=stdin, text=True, check=True)
    (folder,) = (tmp_path / "tracellm-runs").iterdir()
    assert re.fullmatch(rf"{name}-\d{{8}}-\d{{6}}", folder.name)


def test_a_notebooks_run_is_called_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in a notebook is named after it, not after the kernel's launcher."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["/lib/ipykernel_launcher.py", "-f", "kernel.json"])
    assert tracellm.explain().run.folder.name.startswith("notebook-")


def test_an_engine_made_before_the_block(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: Command) -> None:
    """A process started before the recording is reported at the end of the block, and by `show`."""
    spawn = multiprocessing.get_context("spawn")
    enough = spawn.Event()
    engine = spawn.Process(name="EngineCore_0", target=enough.wait)
    engine.start()
    with tracellm.explain(tmp_path / "run", lang="en"):
        greet("you")
    enough.set()
    engine.join()
    reported = (
        f"tracellm: problem in the recording: EngineCore_0 (pid {engine.pid}) was started before the recording began"
    )
    assert capsys.readouterr().err.startswith(reported)
    shown = command("show", "--lang", "en", str(tmp_path / "run"), "steps")
    assert (shown.status, shown.err.startswith(reported)) == (0, True)


def test_what_is_recorded_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """run.json has the selection and the ring; every view notes what is left out. A name is as good as a list."""
    with tracellm.explain(tmp_path / "run", lang="en", only="Scheduler", skip=["Msgpack*"], ring=2) as run:
        for _ in range(7):
            greet("you")
    reported = json.loads((run.folder / "run.json").read_text())
    asked = {
        "detail": "kernel",
        "focus": [],
        "only": ["Scheduler"],
        "skip": ["Msgpack*"],
        "ring": 2,
        "depth_limit": None,
    }
    assert reported["options"] == {"text": True, "lang": "en", **asked}
    assert (reported["probes"]["let_go"], reported["probes"]["left_out"]["steps"]) == (4, ["EngineCore.step_fn"])
    why = "Not recorded: steps. This needs EngineCore.step_fn, which --only Scheduler"
    chosen, kept = (
        "Recorded with --only Scheduler --skip 'Msgpack*'; ",
        "At least the last 2 calls of each process were kept",
    )
    assert all(said in str(run.steps) for said in (why, chosen, kept))
    assert all(said in run.tree() for said in (chosen, kept))
    assert all(f"\n%% {said}" in run.sequence() for said in (chosen, kept))
    page = html.unescape((run.folder / "report.html").read_text())
    assert all(said in page for said in (why, chosen, kept))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": "Schedular"}, "The closest names: Scheduler"),
        ({"skip": ["nothing*"]}, "matches nothing"),
        ({"ring": 0}, "--ring takes the number of calls"),
        ({"detail": "deep"}, "no level 'deep'"),
    ],
)
def test_what_cannot_be_chosen(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """A wrong option is refused before anything is recorded or written."""
    with pytest.raises(CommandError, match=message):
        tracellm.explain(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_class_of_ones_own_can_be_in_focus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A class that the engine lacks is one line on stderr; it is still drawn, also by a pattern."""
    with tracellm.explain(tmp_path / "run", lang="en", focus=__name__) as run:
        greet("you")
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith(f"tracellm: --focus: the engine has no class {__name__!r}.")
    assert "greet" in (run.folder / "sequence.mmd").read_text()
    assert "greet" in run.sequence(focus=__name__)
    assert run.sequence(focus=f"{__name__[:-3]}*") == run.sequence(focus=__name__)
    with pytest.raises(CommandError, match="no level 'deep'"):
        run.sequence(detail="deep")  # type: ignore[arg-type]


def test_counts_are_of_those_that_were_kept(tmp_path: Path) -> None:
    """After a ring dropped spans, the page notes that its figures count the remaining ones."""
    for number, words in ((1, True), (9, False)):
        with tracellm.explain(tmp_path / str(number), lang="en", ring=number) as run:
            for _ in range(3):
                greet("you")
        assert ("in the calls that were kept" in (run.folder / "report.html").read_text()) is words


def test_deeper_than_was_recorded(tmp_path: Path, command: Command) -> None:
    """Showing more detail than was recorded prints a note, unless a class was recorded at every level."""
    with tracellm.explain(tmp_path / "run", lang="en", detail="step"):
        greet("you")
    with tracellm.explain(tmp_path / "focused", lang="en", focus="Scheduler"):
        greet("you")
    reported = "tracellm: this run was recorded only down to the level step; deeper calls are missing\n"
    run = str(tmp_path / "run")
    for words in (("show", run, "sequence"), ("report", run), ("export", run, "--to", "csv")):
        assert command(*words, "--lang", "en", "--detail", "kernel").err == reported
        assert command(*words, "--lang", "en", "--detail", "step").err == ""
    assert command("show", str(tmp_path / "focused"), "sequence", "--detail", "kernel").err == ""


def test_runs_that_were_not_recorded_alike(tmp_path: Path, command: Command) -> None:
    """A diff notes the options of both recordings, so that left-out calls do not count as differences."""
    for name, options in (("a", {"detail": "step"}), ("b", {})):
        with tracellm.explain(tmp_path / name, lang="en", **options):  # type: ignore[arg-type]
            greet("you")
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    [reported] = command("diff", "--lang", "en", a, b).err.splitlines()
    assert reported == f"tracellm: {a}: Recorded with --detail step; other calls are missing."
    assert command("diff", "--lang", "en", b, b).err == ""


def test_an_exception_passes_and_is_recorded(tmp_path: Path) -> None:
    """An exception leaves the block, and the recording is complete, with the failure in run.json."""
    with pytest.raises(ZeroDivisionError), tracellm.explain(tmp_path / "run"):
        1 / 0  # noqa: B018
    reported = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (reported["status"], reported["error"]["type"]) == ("failed", "ZeroDivisionError")


def test_one_recording_at_a_time(tmp_path: Path) -> None:
    """A second recording inside the first is refused, and the first continues."""
    with tracellm.explain(tmp_path / "run") as run:
        with pytest.raises(RuntimeError, match="under way"), tracellm.explain(tmp_path / "second"):
            pass
        greet("you")
    assert "greet" in run.tree()


def test_the_console_log_is_there_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With quiet=False, stderr has the console log."""
    with tracellm.explain(tmp_path / "run", quiet=False, lang="zh"):
        greet("you")
    assert "报告" in capsys.readouterr().err
