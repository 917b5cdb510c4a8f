"""The files and output of `tracellm run --explain`, and how `show` and `report` reproduce them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.cli.conftest import SCRIPT, Command, Said
from tracellm.cli import reports
from tracellm.cli.errors import describe
from tracellm.engine.model_executor.ops.cpu import native
from tracellm.probes.install.selection import DEPTH_LIMIT
from tracellm.trace.run_folder import RunFolder

FILES = ["calltree.txt", "report.html", "run.json", "sequence.mmd", "trace"]


def run(folder: Path, *arguments: str, **environ: str) -> Said:
    """Run `tracellm run --explain` with these arguments in `folder`."""
    done = subprocess.run(
        [sys.executable, "-m", "tracellm", "run", "--explain", *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environ},
    )
    return Said(done.returncode, done.stdout, done.stderr)


def manifest(folder: Path) -> dict:
    """Return the run.json of a run folder."""
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


# -- a run that goes well ---------------------------------------------------------------------------------------------


def test_the_run_folder_is_named_and_complete(run_folder: Path) -> None:
    """The default folder is tracellm-runs/<script>-<date>-<time>, and holds every report."""
    assert re.fullmatch(r"script-\d{8}-\d{6}", run_folder.name)
    assert sorted(path.name for path in run_folder.iterdir()) == FILES
    assert RunFolder.open(run_folder).problems == []


def test_the_script_alone_writes_to_stdout(explained: tuple[Path, Said]) -> None:
    """stdout has only the script's output; stderr has the log, without escape codes, and the report's path last."""
    folder, said = explained
    bare = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, encoding="utf-8")
    assert (said.status, said.out) == (0, bare.stdout)
    (report,) = (folder / "tracellm-runs").glob("*/report.html")
    assert str(report.relative_to(folder)) in said.err.splitlines()[-1]
    for heading in ("InprocClient", "Qwen2ForCausalLM", "Step 1", "max_num_seqs"):
        assert heading in said.err
    assert "\x1b" not in said.err


def test_the_manifest_tells_what_was_run_and_at_what_cost(run_folder: Path, explained: tuple[Path, Said]) -> None:
    """run.json has script, arguments, times, versions, host, options, exit status and the cost of probes."""
    run_json = manifest(run_folder)
    assert run_json["schema"] == 1
    assert (run_json["status"], run_json["exit_status"], run_json["error"]) == ("finished", 0, None)
    assert (run_json["script"], run_json["argv"], run_json["cwd"]) == ("script.py", ["script.py"], str(explained[0]))
    assert 0 < run_json["duration_s"] < 3600
    assert re.match(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d", run_json["started_at"])
    assert {"python", "torch", "transformers"} <= run_json["versions"].keys()
    assert run_json["host"]["cpus"] == os.cpu_count()
    recorded: dict[str, object] = {"detail": "kernel", "focus": [], "only": [], "skip": [], "ring": None}
    recorded["depth_limit"] = DEPTH_LIMIT
    recorded |= {"engine": None, "models": {}}
    assert run_json["options"] == {"text": True, "lang": "en", **recorded}
    assert run_json["probes"]["installed"] > 50
    assert run_json["probes"]["missing"] == []
    assert run_json["probes"]["problems"] == []
    assert run_json["probes"]["calls"] > 100
    assert [process["name"] for process in run_json["processes"]] == ["main"]


def test_show_prints_what_the_files_hold(run_folder: Path, command: Command) -> None:
    """`show RUN tree` and `show RUN sequence` print calltree.txt and sequence.mmd; `steps` has a line for each step."""
    assert command("show", str(run_folder), "tree").out == (run_folder / "calltree.txt").read_text(encoding="utf-8")
    assert command("show", str(run_folder), "sequence").out == (run_folder / "sequence.mmd").read_text(encoding="utf-8")
    assert "max_num_seqs" in command("show", str(run_folder), "steps").out


def test_show_prints_one_step(run_folder: Path, command: Command) -> None:
    """`show RUN step N` prints the state of a step; another number is refused with the range of steps."""
    shown = command("show", str(run_folder), "step", "1").out
    assert shown.startswith("Step 1 · prefill\nJoined: 0, 1.")
    assert "max_num_seqs is 2" in shown
    assert "block_table = [1]" in shown
    assert command("show", str(run_folder), "step", "2", "--lang", "zh").out.startswith("第 2 步 · 解码")
    for number in ("0", "99", "-1", "first"):
        said = command("show", str(run_folder), "step", "--", number)
        assert said.status == 2
        assert said.err == f"tracellm: there is no step '{number}'; the steps of this run are 1-8\n"


def test_the_newest_run_is_meant_where_none_is_named(
    explained: tuple[Path, Said], run_folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without RUN, and for `latest`, `show` prints the newest run in tracellm-runs/."""
    monkeypatch.chdir(explained[0])
    tree = (run_folder / "calltree.txt").read_text(encoding="utf-8")
    assert command("show", "tree").out == tree
    assert command("show", "latest", "tree").out == tree


def test_reporting_on_an_older_run_does_not_make_it_the_newest(
    run_folder: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`latest` is the run that ended last, even if another was reported on later."""
    monkeypatch.chdir(tmp_path)
    for name, ended in (("older", 1_000), ("newer", 2_000)):
        copy = shutil.copytree(run_folder, tmp_path / "tracellm-runs" / name)
        os.utime(copy / "run.json", (ended, ended))
    (tmp_path / "tracellm-runs" / "older" / "report.html").unlink()
    assert command("report", "tracellm-runs/older").status == 0
    assert "newer" in command("report").out


def test_a_run_is_found_by_its_name_or_its_scripts(
    explained: tuple[Path, Said], run_folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run has its own name or its script's; for another name the runs are listed."""
    monkeypatch.chdir(explained[0])
    tree = (run_folder / "calltree.txt").read_text(encoding="utf-8")
    for name in (run_folder.name, "script", "script.py"):
        # In explained[0] there is a file script.py, too.
        if not (explained[0] / name).exists():
            assert command("show", name, "tree").out == tree
    said = command("show", "scripts", "tree")
    assert (said.status, said.out) == (2, "")
    assert said.err == f"tracellm: there is no run scripts; the newest runs in tracellm-runs/ are: {run_folder.name}\n"
    said = command("show", run_folder.name)
    assert said.status == 2
    assert f"`tracellm show {Path('tracellm-runs') / run_folder.name} tree`" in said.err


def test_detail_and_focus_choose_what_is_drawn(run_folder: Path, command: Command) -> None:
    """--detail changes the depth, --focus keeps a class and its neighbours; an unknown class is refused."""
    coarse = command("show", str(run_folder), "sequence", "--detail", "request").out
    assert "execute_model" not in coarse
    assert "execute_model" in command("show", str(run_folder), "sequence", "--detail", "step").out
    focused = command("show", str(run_folder), "sequence", "--focus", "Scheduler", "--detail", "step").out
    assert "Scheduler" in focused
    assert "DefaultModelLoader" not in focused
    wrong = command("show", str(run_folder), "sequence", "--focus", "Schedular")
    assert wrong.status == 2
    assert re.match(r"tracellm: no class 'Schedular' in this run; the classes are: .*\bScheduler\b", wrong.err)


def test_report_rebuilds_the_files_from_the_folder_alone(run_folder: Path, tmp_path: Path, command: Command) -> None:
    """`report` makes the same files from a copy of run.json and trace/, and prints the page's path."""
    copy = tmp_path / run_folder.name  # the page shows the folder's name
    copy.mkdir()
    shutil.copy(run_folder / "run.json", copy)
    shutil.copytree(run_folder / "trace", copy / "trace")
    said = command("report", str(copy))
    assert (said.status, said.out, said.err) == (0, f"report: {copy / 'report.html'}\n", "")
    for name in ("sequence.mmd", "calltree.txt", "report.html"):
        old, new = (folder.joinpath(name).read_text(encoding="utf-8") for folder in (run_folder, copy))
        assert new == old


def test_a_report_can_be_had_in_the_other_language(run_folder: Path, tmp_path: Path, command: Command) -> None:
    """`report --lang zh` writes Chinese files from a run recorded in English."""
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    said = command("report", str(copy), "--lang", "zh")
    assert said.out == f"报告：{copy / 'report.html'}\n"
    assert '<html lang="zh' in (copy / "report.html").read_text(encoding="utf-8")


def test_showing_and_reporting_need_no_torch(run_folder: Path, tmp_path: Path) -> None:
    """`show` and `report` work without the engine's libraries; `report` imports NumPy for its columns."""
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    code = """
import sys
sys.modules.update(torch=None, transformers=None, tokenizers=None, safetensors=None)
if sys.argv[1] == "show":
    sys.modules.update(numpy=None)
from tracellm.cli import main
main()
"""
    for arguments in (["show", str(copy), "tree"], ["show", str(copy), "steps"], ["report", str(copy)]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout


def test_a_folder_of_an_earlier_run_is_used_again(run_folder: Path, tmp_path: Path) -> None:
    """--out clears the folder of an earlier run, and keeps other files in it."""
    folder = shutil.copytree(run_folder, tmp_path / "run")
    (folder / "notes.txt").write_text("mine")
    (tmp_path / "other.py").write_text("print('other')")
    said = run(tmp_path, "--quiet", "--out", "run", "other.py")
    assert (said.status, said.out, said.err) == (0, "other\n", "")
    assert manifest(folder)["script"] == "other.py"
    assert len(list((folder / "trace").iterdir())) == 1
    assert "LLM" not in (folder / "calltree.txt").read_text(encoding="utf-8")
    assert (folder / "notes.txt").read_text() == "mine"


# -- a run that fails -------------------------------------------------------------------------------------------------


def test_a_failing_script_is_reported_all_the_same(tmp_path: Path) -> None:
    """The traceback is python's; the log ends with the error, its message and place, as in run.json."""
    (tmp_path / "script.py").write_text("def work():\n    return [][1]\n\nwork()\n")
    said = run(tmp_path, "--out", "run", "script.py")
    assert said.status == 1
    traceback, _, rest = said.err.partition("IndexError: list index out of range\n")
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert "tracellm/" not in traceback
    assert rest.splitlines()[-1] == "script.py:2: IndexError: list index out of range"
    run_json = manifest(tmp_path / "run")
    assert run_json["status"] == "failed"
    assert {key: run_json["error"][key] for key in ("type", "message", "line", "function", "source")} == {
        "type": "IndexError",
        "message": "list index out of range",
        "line": 2,
        "function": "work",
        "source": "return [][1]",
    }
    assert run_json["error"]["traceback"].count("script.py") == 2
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES
    assert "IndexError" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_an_unknown_class_in_focus_is_named_first_and_last(tmp_path: Path) -> None:
    """A class that the engine does not have is named before the script runs, and again at the end if nothing called it.

    The diagram is drawn without it.
    """
    (tmp_path / "script.py").write_text("import sys\nprint('ran', file=sys.stderr)\n")
    said = run(tmp_path, "--out", "run", "--focus", "Schedular", "script.py")
    lines = said.err.splitlines()
    assert lines[0].startswith("tracellm: --focus: the engine has no class 'Schedular'. The closest names: Scheduler")
    assert lines[1] == "ran"
    assert lines[-1].startswith("tracellm: --focus 'Schedular': no call of this class was recorded")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES


def test_a_report_on_an_unknown_class_is_refused(run_folder: Path, tmp_path: Path, command: Command) -> None:
    """`report --focus` with a class that is not in the run writes nothing."""
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    (copy / "report.html").unlink()
    said = command("report", str(copy), "--focus", "Schedular")
    assert (said.status, said.out) == (2, "")
    assert "no class 'Schedular' in this run; the classes are: " in said.err
    assert not (copy / "report.html").exists()


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("part", ["tree", "steps"])
def test_show_fills_the_terminal(
    part: str, columns: int, run_folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, the call tree and the steps have its width; elsewhere the width of the files."""
    monkeypatch.setenv("COLUMNS", str(columns))
    file = command("show", str(run_folder), part).out
    assert columns != 80 or max(map(cell_len, file.splitlines())) > 80
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    lines = command("show", str(run_folder), part).out.splitlines()
    assert max(map(cell_len, lines)) <= columns
    if part == "tree":
        assert max(map(cell_len, lines)) == columns


def test_a_compiled_library_is_not_the_users() -> None:
    """A failure in code compiled by Cython, such as uvloop, is reported at the user's own line."""
    library: dict[str, Any] = {}
    exec(compile("def call(work):\n    work()", "uvloop/loop.pyx", "exec"), library)
    with pytest.raises(TypeError) as failed:
        library["call"](None)
    assert describe(failed.value).file == __file__


@pytest.mark.parametrize("options", [[], ["--quiet"]])
def test_a_mistake_that_the_engine_refuses_needs_no_traceback(tmp_path: Path, options: list[str]) -> None:
    """For an EngineError, stderr has the user's line, its source and the message; run.json has the traceback."""
    (tmp_path / "script.py").write_text(
        "from tracellm import LLM\n\n\ndef ask():\n    return LLM(max_model_len=-5)\n\n\nask()\n"
    )
    said = run(tmp_path, "--out", "run", *options, "script.py")
    assert said.status == 1
    lines = said.err.splitlines()
    assert lines[0] == "script.py:5: in ask"
    assert lines[1] == "    return LLM(max_model_len=-5)"
    assert re.match(r"\w*Error: .*max_model_len", lines[2])
    assert "Traceback" not in said.err
    error = manifest(tmp_path / "run")["error"]
    assert (error["line"], error["function"]) == (5, "ask")
    assert error["traceback"].startswith("Traceback")


def test_what_was_recorded_before_the_failure_is_there(tmp_path: Path) -> None:
    """A run that fails after it generated has its steps in the report."""
    (tmp_path / "script.py").write_text(SCRIPT + "\nraise SystemExit('no luck')\n", encoding="utf-8")
    said = run(tmp_path, "--quiet", "--out", "run", "script.py")
    assert (said.status, said.err) == (1, "no luck\n")
    run_json = manifest(tmp_path / "run")
    assert (run_json["status"], run_json["exit_status"], run_json["error"]) == ("failed", 1, None)
    assert RunFolder.open(tmp_path / "run").trace.named("EngineCore.step_fn")


def test_a_fault_in_one_report_leaves_the_others(
    run_folder: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in one report costs only its own file, and one line has the reason."""
    copy = shutil.copytree(run_folder, tmp_path / "copy")
    (copy / "calltree.txt").unlink()
    (copy / "report.html").unlink()

    def broken(*_: object) -> str:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(reports, "calltree_text", broken)
    said = command("report", str(copy))
    assert said.status == 1
    assert said.err.startswith("tracellm: calltree.txt was not written: ZeroDivisionError: oh. ")
    assert len(said.err.splitlines()) == 1
    assert sorted(path.name for path in copy.iterdir()) == [name for name in FILES if name != "calltree.txt"]
    assert RunFolder.open(copy).problems == []


# -- options ---------------------------------------------------------------------------------------------------------


def test_no_text_leaves_no_word_of_a_prompt(tmp_path: Path) -> None:
    """With --no-text no file of the run folder holds a prompt, a generated text, or an argument of the script."""
    (tmp_path / "script.py").write_text(
        "import sys\nfrom tracellm import LLM, SamplingParams\n"
        "llm = LLM(num_gpu_blocks_override=32, max_model_len=64)\n"
        "llm.generate(sys.argv[1], SamplingParams(max_tokens=2))\nraise ValueError(sys.argv[1])\n"
    )
    said = run(tmp_path, "--quiet", "--no-text", "--out", "run", "script.py", "Xylophone prompts")
    assert said.status == 1
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            assert b"Xylophone" not in file.read_bytes(), file
    run_json = manifest(tmp_path / "run")
    assert run_json["argv"] == ["script.py", "***"]
    assert (run_json["error"]["type"], run_json["error"]["line"]) == ("ValueError", 5)


def test_quiet_says_nothing(tmp_path: Path) -> None:
    """With --quiet, stderr is the script's alone."""
    (tmp_path / "script.py").write_text("import sys\nprint('mine', file=sys.stderr)\n")
    said = run(tmp_path, "-q", "script.py")
    assert (said.status, said.out, said.err) == (0, "", "mine\n")


def test_chinese_is_spoken_where_the_locale_is_chinese(tmp_path: Path) -> None:
    """Log and reports are Chinese under a Chinese locale."""
    (tmp_path / "script.py").write_text("print(1)")
    said = run(tmp_path, "--out", "run", "script.py", LANG="zh_CN.UTF-8")
    assert "报告" in said.err
    assert manifest(tmp_path / "run")["options"]["lang"] == "zh"


def test_a_script_that_changes_directory_changes_nothing(tmp_path: Path) -> None:
    """The run folder stays in place if the script changes the directory."""
    (tmp_path / "script.py").write_text("import os\nos.chdir('/')\n")
    said = run(tmp_path, "--out", "run", "script.py")
    assert said.status == 0
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES
    assert said.err.splitlines()[-1].endswith(f"run{os.sep}report.html")


def test_a_run_folder_that_is_lost_meanwhile_is_told(tmp_path: Path) -> None:
    """If the run folder is gone at the end, lines on stderr report it; the status is the script's."""
    (tmp_path / "script.py").write_text(
        "import shutil\nshutil.rmtree('run')\nopen('run', 'w').close()\nraise SystemExit(3)\n"
    )
    said = run(tmp_path, "--quiet", "--out", "run", "script.py")
    assert said.status == 3
    assert said.err
    assert all(line.startswith("tracellm: ") for line in said.err.splitlines())


def test_the_first_start_on_a_machine_says_how_long_it_compiled(tmp_path: Path) -> None:
    """The console and the page give the time of compiling the kernels for this CPU; the next start has none."""
    compiled = native.load().library
    if compiled is None:
        pytest.skip("needs a C++ compiler")
    compiler = tmp_path / "c++"  # returns what the real one has compiled before
    compiler.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; exec cp {compiled._name} "$2"\n')
    compiler.chmod(0o755)
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    environ = {native.COMPILER: str(compiler), native.CACHE: str(tmp_path / "kernels")}
    first = run(tmp_path, "--out", "first", "script.py", **environ)
    assert re.search(r"compiled in \S+ m?s, for the first start", first.err)
    page = (tmp_path / "first" / "report.html").read_text(encoding="utf-8")
    assert re.search(r"compiled in \S+ m?s, for the first start", page)
    assert re.search(r"m?s of it to compile the CPU&#39;s kernels", page)
    assert "for the first start" not in run(tmp_path, "script.py", **environ).err


def test_two_runs_in_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run of a script in the same second gets another folder."""
    from tracellm.cli.folders import new_run_folder

    monkeypatch.chdir(tmp_path)
    assert len({new_run_folder("script", None) for _ in range(5)}) == 5


KILLED_ONCE_WRITTEN = """
import os, pathlib, signal
while not any(b"EngineCore.step_fn" in file.read_bytes() for file in pathlib.Path("run/trace").glob("*.records")):
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
"""End of a script: it waits until a step is in the record file, and dies."""


def test_a_run_that_is_killed_can_still_be_reported(tmp_path: Path, command: Command) -> None:
    """After SIGKILL the status is `running`, and `report` shows what had been written."""
    (tmp_path / "script.py").write_text(SCRIPT + KILLED_ONCE_WRITTEN, encoding="utf-8")
    assert run(tmp_path, "--quiet", "--out", "run", "script.py").status == -9
    folder = tmp_path / "run"
    assert manifest(folder)["status"] == "running"
    assert command("report", str(folder)).status == 0
    assert "EngineCore" in (folder / "calltree.txt").read_text(encoding="utf-8")


def test_what_a_killed_run_was_in_the_midst_of_is_told(tmp_path: Path, command: Command) -> None:
    """The call tree of a killed run marks its long calls as not ended, and notes why its last steps have no layers."""
    (tmp_path / "script.py").write_text(
        """
import os, pathlib, signal
from tracellm import probe

@probe
def brief():
    pass

@probe
def long():
    brief()
    while not any(b".long" in file.read_bytes() for file in pathlib.Path("run/trace").glob("*.records")):
        pass
    os.kill(os.getpid(), signal.SIGKILL)

long()
""",
        encoding="utf-8",
    )
    assert run(tmp_path, "--quiet", "--out", "run", "script.py").status == -9
    tree = command("show", str(tmp_path / "run"), "tree").out.splitlines()
    end = tree.index("")
    assert " ".join(tree[end + 1 :]).startswith("Each process records layers")
    assert [re.split(r"(?<=\S)  ", line)[0] for line in tree[1:end]] == [
        "script.py (not ended)",
        "└ long (not ended)",
        "  └ script.py:11",
        "    └ brief",
    ]
