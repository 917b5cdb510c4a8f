"""`tracellm run SCRIPT` is `python SCRIPT`: the same programs run both ways, and their results are compared."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.programs import PROGRAMS, Program
from tracellm.trace.run_folder import RunFolder

PYTHON = [sys.executable]
TRACELLM = [sys.executable, "-m", "tracellm", "run"]

Seen = tuple[int, str, str]
"""Exit status, stdout, stderr."""


def seen(command: list[str], folder: Path, stdin: str = "") -> Seen:
    """Run `command` in `folder`; return its results, with addresses masked."""
    # Without PYTHONDONTWRITEBYTECODE a second run would find the first's __pycache__.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, env=environment)
    return done.returncode, _mask(done.stdout), _mask(done.stderr)


_FORK_WARNING = re.compile(r".*DeprecationWarning: This process .* is multi-threaded, use of fork.*\n.*\n")
"""Expected warning: since Python 3.12, `os.fork` warns if there is another thread, as in a recording."""


def _mask(text: str) -> str:
    return re.sub(
        r"0x[0-9a-f]+|\(Thread-\d+|(?<=started )\d+",
        "...",
        text,
    )


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the files of the test's program."""
    folder = tmp_path / "work"
    program: Program = request.getfixturevalue("program")
    for name, text in program.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_cannot_tell(program: Program, folder: Path, tmp_path: Path) -> None:
    """Exit status, stdout and stderr are python's, with and without --explain; run.json has the exit status."""
    run = tmp_path / "run"
    commands = [PYTHON, TRACELLM, [*TRACELLM, "--explain", "--quiet", "--out", str(run)]]
    with ThreadPoolExecutor() as pool:
        bare, plain, explained = pool.map(
            lambda command: seen([*command, *program.run], folder, program.stdin), commands
        )
    assert plain == bare
    assert (*explained[:2], _FORK_WARNING.sub("", explained[2])) == bare
    manifest = json.loads((run / "run.json").read_text())
    if program.killed:
        assert manifest["status"] == "running"
    else:
        assert manifest["exit_status"] == (bare[0] if bare[0] >= 0 else 128 - bare[0])
        by_status = {0: "finished", -signal.SIGINT: "interrupted", -signal.SIGTERM: "terminated"}
        assert manifest["status"] == by_status.get(bare[0], "failed")
        assert RunFolder.open(run).problems == []


@pytest.mark.parametrize(
    ("source", "arguments", "passed_on"),
    [
        ("", ["--explain", "--lang=zh", "--explain", "--mine"], "--explain, --lang"),
        ("# --out is an option of this script", ["--out", "x", "--quiet"], "--quiet"),
        ("", ["--help", "-q", "--", "--explain"], ""),
    ],
)
def test_an_option_after_the_script_is_named_once(
    source: str, arguments: list[str], passed_on: str, tmp_path: Path
) -> None:
    """The script gets tracellm's options that stand after it; one line names those that its source does not mention."""
    (tmp_path / "script.py").write_text(f"import sys\nprint(sys.argv[1:])\n{source}")
    status, output, errors = seen([*TRACELLM, "script.py", *arguments], tmp_path)
    assert (status, output) == (0, f"{arguments}\n")
    line = f"tracellm: passed on to script.py: {passed_on}. Options of tracellm go before the script\n"
    assert errors == (line if passed_on else "")


@pytest.mark.parametrize("explain", [False, True], ids=["bare", "explained"])
def test_ctrl_c_is_the_scripts_own(tmp_path: Path, explain: bool) -> None:
    """On SIGINT a script cleans up, prints its own traceback and dies of the signal."""
    script = tmp_path / "script.py"
    script.write_text(
        "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\nfinally:\n    print('cleaned up')\n"
    )
    options = ["--explain", "--quiet", "--out", str(tmp_path / "run")] if explain else []
    process = subprocess.Popen(
        [*TRACELLM, *options, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert (process.returncode, output) == (-signal.SIGINT, "cleaned up\n")
    # The signal may come while line 3 ends or in line 4.
    assert re.fullmatch(
        rf'Traceback \(most recent call last\):\n  File "{script}", line [34], in <module>\n(.*\n)+KeyboardInterrupt\n',
        errors,
    )
    if explain:
        manifest = json.loads((tmp_path / "run" / "run.json").read_text())
        assert (manifest["status"], manifest["exit_status"]) == ("interrupted", 130)
        assert (tmp_path / "run" / "report.html").exists()


def test_a_zip_file_runs(tmp_path: Path) -> None:
    """A zip file with a `__main__.py` runs as under python."""
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", "import sys, helper\nprint(sys.argv, __name__, sys.path[0], helper.x)")
        archive.writestr("helper.py", "x = 1")
    assert seen([*TRACELLM, "app.pyz", "a"], tmp_path) == seen([*PYTHON, "app.pyz", "a"], tmp_path)


def test_a_linked_script_finds_its_neighbours(tmp_path: Path) -> None:
    """The folder of a linked script's target is on sys.path, as under python."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "script.py").write_text("import sys, neighbour\nprint(sys.argv, __file__, sys.path[0])")
    (tmp_path / "real" / "neighbour.py").write_text("")
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "script.py")
    expected = seen([*PYTHON, "link.py"], tmp_path)
    assert expected[0] == 0
    assert seen([*TRACELLM, "link.py"], tmp_path) == expected


def test_endless_recursion_ends_as_under_python(tmp_path: Path) -> None:
    """A RecursionError's traceback is python's, except for the number of repeated lines."""
    (tmp_path / "script.py").write_text("def f():\n    f()\nf()")
    (status, output, errors), expected = (
        (status, output, re.sub(r"repeated \d+", "repeated N", errors))
        for status, output, errors in (seen([*command, "script.py"], tmp_path) for command in (TRACELLM, PYTHON))
    )
    assert (status, output, errors) == expected


def test_the_console_script_is_the_same_command(tmp_path: Path) -> None:
    """The installed `tracellm` runs a script with python's sys.path."""
    (tmp_path / "script.py").write_text("import sys\nprint(sys.path, sys.argv)")
    installed = shutil.which("tracellm", path=str(Path(sys.executable).parent))
    assert installed, "tracellm is not installed beside this python: pip install -e ."
    assert seen([installed, "run", "script.py", "x"], tmp_path) == seen([*PYTHON, "script.py", "x"], tmp_path)


def test_nothing_is_written_or_installed_without_explain(tmp_path: Path) -> None:
    """Without --explain a run writes no file, and imports neither the recorder nor torch."""
    (tmp_path / "script.py").write_text(
        "import sys\nprint([name for name in sys.modules if name in ('torch', 'tracellm.probes.recording')])"
    )
    status, output, _ = seen([*TRACELLM, "script.py"], tmp_path)
    assert (status, output) == (0, "[]\n")
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
