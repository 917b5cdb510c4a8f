"""`with tracellm.explain() as run:`, for notebooks and scripts."""

import json
import multiprocessing
from pathlib import Path

import pytest

import tracellm
from tests.cli.conftest import Command


@tracellm.probe
def greet(name: str) -> str:
    """Something to record that needs no engine."""
    return f"hello {name}"


def test_a_block_is_recorded_and_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run folder is complete when the block ends, the three views are text, and nothing is printed."""
    with tracellm.explain(tmp_path / "run") as run:
        greet("you")
    assert run.folder == tmp_path / "run"
    assert (run.folder / "report.html").exists()
    assert json.loads((run.folder / "run.json").read_text())["status"] == "finished"
    assert "greet" in run.calltree()
    assert "greet" in run.sequence()
    assert isinstance(run.steps(), str)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_shows_what_to_ask_for(tmp_path: Path) -> None:
    """The object itself, as a cell's last line, says where the run is and what there is to see."""
    assert repr(tracellm.explain(tmp_path / "run")) == (
        f"<tracellm run in {tmp_path / 'run'}: print(run.calltree()), run.sequence(), run.steps(); report.html>"
    )


def test_an_engine_made_before_the_block(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: Command) -> None:
    """That its process is not recorded, since it was there before, is told when the block ends, and by `show`."""
    spawn = multiprocessing.get_context("spawn")
    enough = spawn.Event()
    engine = spawn.Process(name="EngineCore_0", target=enough.wait)
    engine.start()
    with tracellm.explain(tmp_path / "run", lang="en"):
        greet("you")
    enough.set()
    engine.join()
    told = f"tracellm: of the recording: EngineCore_0 (pid {engine.pid}) was started before the recording began"
    assert capsys.readouterr().err.startswith(told)
    shown = command("show", "--lang", "en", str(tmp_path / "run"), "steps")
    assert (shown.status, shown.err.startswith(told)) == (0, True)


def test_an_exception_passes_and_is_recorded(tmp_path: Path) -> None:
    """An exception leaves the block, with the recording complete and the failure in run.json."""
    with pytest.raises(ZeroDivisionError), tracellm.explain(tmp_path / "run"):
        1 / 0  # noqa: B018
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (told["status"], told["error"]["type"]) == ("failed", "ZeroDivisionError")


def test_one_recording_at_a_time(tmp_path: Path) -> None:
    """A second recording inside the first is refused, and the first goes on."""
    with tracellm.explain(tmp_path / "run") as run:
        with pytest.raises(RuntimeError, match="under way"), tracellm.explain(tmp_path / "second"):
            pass
        greet("you")
    assert "greet" in run.calltree()


def test_the_console_log_is_there_when_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """quiet=False says on stderr what the command would say."""
    with tracellm.explain(tmp_path / "run", quiet=False, lang="zh"):
        greet("you")
    assert "报告" in capsys.readouterr().err
