"""Run folders: a running recording keeps its folder, and a command that opens a folder converts its records."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.cli.conftest import Command
from tracellm.cli import errors, folders
from tracellm.trace.run_folder import is_recording, lock_recording

RECORDING = """
import sys
from pathlib import Path
from tracellm.trace.run_folder import lock_recording

lock_recording(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""
"""A script that holds the lock of a recording until its stdin is closed."""


@pytest.fixture
def run(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a recorded run, in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("raise AssertionError('it ran')")
    return Path(shutil.copytree(run_folder, tmp_path / "run"))


@pytest.fixture
def recording(run: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that records into the folder."""
    command = [sys.executable, "-c", RECORDING, str(run / "trace")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.communicate()


def test_a_folder_that_is_recorded_into_is_not_wiped(
    run: Path, recording: subprocess.Popen[str], command: Command
) -> None:
    """`--out` refuses a folder with a running recording, and takes it afterwards."""
    before = sorted(run.rglob("*"))
    said = command("run", "--explain", "--out", "run", "script.py")
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("tracellm: --out run: another run is recording there")
    assert len(said.err.splitlines()) == 1
    assert sorted(run.rglob("*")) == before
    recording.communicate()
    folders.new_run_folder("script", run)
    assert [path.name for path in run.rglob("*")] == ["trace"]


def test_one_process_records_into_a_folder(run: Path, recording: subprocess.Popen[str]) -> None:
    """Another process holds the lock until it ends; only its owner can read the file."""
    assert is_recording(run)
    with pytest.raises(BlockingIOError):
        lock_recording(run / "trace")
    assert (run / "trace" / ".lock").stat().st_mode & 0o777 == 0o600
    recording.communicate()
    assert not is_recording(run)
    assert not is_recording(run / "nowhere")


Convert = Callable[[Path, Callable[[float], None]], list[str]]


@pytest.fixture
def unconverted(run: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, SimpleNamespace]:
    """The run with records instead of spans, and a converter; `convert` may be replaced."""
    files = sorted((run / "trace").glob("*.jsonl"))
    for file in files:
        file.rename(file.with_suffix(".records"))

    def convert(folder: Path, progress: Callable[[float], None]) -> list[str]:
        for number, file in enumerate(sorted((folder / "trace").glob("*.records")), start=1):
            file.rename(file.with_suffix(".jsonl"))
            progress(number / len(files))
        return []

    replaceable = SimpleNamespace(convert=convert)
    module = ModuleType("tracellm.probes.spans.converter")
    vars(module).update(
        has_records=lambda folder: any((folder / "trace").glob("*.records")),
        convert_folder=lambda folder, progress: replaceable.convert(folder, progress),
    )
    monkeypatch.setitem(sys.modules, "tracellm.probes.spans", ModuleType("tracellm.probes.spans"))
    monkeypatch.setitem(sys.modules, "tracellm.probes.spans.converter", module)
    return run, replaceable


reading_commands = pytest.mark.parametrize(
    "arguments",
    [
        ["show", "run", "tree"],
        ["show", "run/run.json", "tree"],
        ["report", "run"],
        ["diff", "run", "run"],
        ["check", "run", "--expect", "expected.mmd"],
        ["export", "run", "--to", "csv"],
    ],
    ids=" ".join,
)


@reading_commands
@pytest.mark.usefixtures("unconverted")
def test_whatever_opens_a_folder_converts_it(arguments: list[str], run: Path, command: Command) -> None:
    """Each command that reads a run converts its records first, and prints nothing if that is quick."""
    Path("expected.mmd").write_text("sequenceDiagram\n    LLM->>LLMEngine: step\n")
    said = command(*arguments)
    assert (said.status, said.err) == (0, "")
    assert said.out
    assert not list((run / "trace").glob("*.records"))


@reading_commands
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_records_of_another_version_are_refused(arguments: list[str], lang: str, run: Path, command: Command) -> None:
    """Each command that reads a run refuses record files of another version with one message, and keeps them."""
    Path("expected.mmd").write_text("sequenceDiagram\n    LLM->>LLMEngine: step\n")
    [trace] = (run / "trace").glob("*.jsonl")
    records = trace.rename(trace.with_suffix(".records"))
    records.write_bytes(b"TRACELLM-RECORDS 1\n")
    said = command(*arguments, "--lang", lang)
    assert (said.status, said.out) == (2, "")
    [line] = said.err.splitlines()
    assert records.name in line
    assert ("Record the run again" if lang == "en" else "请重新记录这次运行") in line
    assert records.read_bytes() == b"TRACELLM-RECORDS 1\n"


@pytest.mark.parametrize(("delay", "shown"), [(float("inf"), False), (-1.0, True)])
@pytest.mark.usefixtures("unconverted")
def test_a_long_conversion_shows_how_far_it_is(
    delay: float, shown: bool, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversion of more than a second shows a progress bar on stderr, in the user's language."""
    monkeypatch.setattr(folders, "_PROGRESS_DELAY", delay)
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = command("show", "run", "tree", "--lang", "zh")
    assert said.status == 0
    assert ("正在转换 run" in said.err) == shown


def test_ctrl_c_leaves_the_records(unconverted: tuple[Path, SimpleNamespace], command: Command) -> None:
    """Ctrl-C during a conversion ends the command with status 130 and one line; the next command converts again."""
    run, converter = unconverted
    usual: Convert = converter.convert

    def interrupted(folder: Path, progress: Callable[[float], None]) -> list[str]:
        raise KeyboardInterrupt

    converter.convert = interrupted
    said = command("show", "run", "tree")
    assert (said.status, said.out) == (130, "")
    assert "the next command that opens the folder converts them again" in said.err
    assert len(said.err.splitlines()) == 1
    assert list((run / "trace").glob("*.records"))
    converter.convert = usual
    assert command("show", "run", "tree").status == 0


def test_problems_of_a_conversion_are_printed(unconverted: tuple[Path, SimpleNamespace], command: Command) -> None:
    """Each problem of the conversion is a line on stderr."""
    usual: Convert = unconverted[1].convert
    unconverted[1].convert = lambda folder, progress: [*usual(folder, progress), "main-1.records is torn"]
    assert command("show", "run", "tree").err == "tracellm: damaged recording: main-1.records is torn\n"


def test_converting_later_leaves_the_recording(tmp_path: Path) -> None:
    """With --convert later the run ends without reports, and prints the command that writes them."""
    (tmp_path / "script.py").write_text("print('done')\n")
    arguments = ["run", "--explain", "--convert", "later", "--out", "run", "script.py"]
    done = subprocess.run([sys.executable, "-m", "tracellm", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.endswith("tracellm: the recording is in run; `tracellm report run` writes the report\n")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["run.json", "trace"]


@pytest.mark.parametrize("arguments", [["run", "script.py"], ["serve"]], ids=" ".join)
@pytest.mark.usefixtures("run")
def test_elsewhere_than_on_posix_nothing_is_run(
    arguments: list[str], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On systems without POSIX signals and locks, one message names the supported systems."""
    monkeypatch.setattr(errors, "os", SimpleNamespace(name="nt"))
    said = command(*arguments)
    assert (said.status, said.out) == (2, "")
    assert "tracellm runs scripts on Linux and macOS" in said.err


def test_no_progress_is_drawn_where_no_terminal_reads_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A long conversion leaves nothing on a stderr that is a pipe or a file."""
    monkeypatch.setattr(folders, "_PROGRESS_DELAY", -1)
    with folders.ConversionProgress(tmp_path, "en") as progress:
        progress(0.5)
    assert capsys.readouterr().err == ""
