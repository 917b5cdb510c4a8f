"""Graders for services, each run as its service runs it, with this package in place of the one on PyPI.

Otter itself is used where TRACELLM_OTTER_PYTHON names a Python that has otter-grader; elsewhere a stand-in of its
documented test format.
"""

import json
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.lab.support import folder_of, mutant_folder
from tests.lab.test_teaching import pack, run
from tracellm.lab.lab import Lab, find_lab

ROOT = Path(__file__).parents[2]
FOUND = find_lab(5)
assert FOUND is not None
LAB: Lab = FOUND
OTTER = os.environ.get("TRACELLM_OTTER_PYTHON", "")
MUTANT = next(one for one in LAB.mutants if one.name == "touch-leaves-queue")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `python3` is this Python, with this package."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (programs / "python3").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name != "TRACELLM_LAB_SEED"}
    return kept | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip file with the permissions of its entries."""
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            path = Path(opened.extract(entry, folder))
            if mode := entry.external_attr >> 16:
                path.chmod(mode)


def gradescope(tmp_path: Path, environment: dict[str, str], submission: Path) -> dict:
    """Build and run the autograder in a tree as Gradescope has it; return its results."""
    place = tmp_path / "autograder"
    for name in ("source", "submission", "results"):
        (place / name).mkdir(parents=True, exist_ok=True)
    assert run("export-grader", "5", "--to", "gradescope", "--seed", "s", "--out", str(tmp_path / "out")) == 0
    unpack(tmp_path / "out" / "gradescope-lab-05.zip", place / "source")
    unpack(submission, place / "submission")
    environment = environment | {"AUTOGRADER": str(place)}
    for script in ("setup.sh", "run_autograder"):
        subprocess.run([place / "source" / script], env=environment, cwd=place, check=True, timeout=300)
    assert (place / "source" / "seed.txt").stat().st_mode & 0o077 == 0
    return json.loads((place / "results" / "results.json").read_text())


def test_gradescope_gets_a_test_for_each_check(tmp_path: Path, environment: dict[str, str]) -> None:
    """Results have the documented fields; hidden cases are unseen and without output; points add up to the score."""
    submission = pack(mutant_folder(LAB, MUTANT, tmp_path / "a"), tmp_path / "s.zip")
    results = gradescope(tmp_path, environment, submission)
    assert results["stdout_visibility"] == "hidden"
    tests = results["tests"]
    assert len(tests) == 2 * len(LAB.checks) + 2
    for test in tests:
        assert {"name", "score", "max_score", "output", "visibility", "status"} <= set(test)
        assert 0 <= test["score"] <= test["max_score"]
    hidden = [test for test in tests if test["visibility"] == "hidden"]
    assert len(hidden) == len(LAB.checks)
    assert {test["output"] for test in hidden} == {""}
    assert sum(test["max_score"] for test in tests) == pytest.approx(100, abs=0.2)
    assert sum(test["score"] for test in tests) == pytest.approx(results["score"], abs=0.2)
    assert [test["output"] for test in tests if "is in the free queue" in test["output"]]


def test_gradescope_gets_results_of_a_broken_submission(tmp_path: Path, environment: dict[str, str]) -> None:
    """A submission without the lab's files gets zero for its cases, and a sentence."""
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.writestr("readme.txt", "I am ill.")
    results = gradescope(tmp_path, environment, tmp_path / "s.zip")
    assert results["output"] == "kv_cache_utils.py is missing"
    assert sum(test["score"] for test in results["tests"][:-2]) == 0


STAND_IN = """
import inspect, runpy, sys, types
def test_case(name=None, points=None, hidden=False, **other):
    def mark(function):
        function.hidden = hidden
        return function
    return mark
module = types.ModuleType("otter.test_files")
module.test_case = test_case
sys.modules |= {"otter": types.ModuleType("otter"), "otter.test_files": module}
for path in sys.argv[1:]:
    names = runpy.run_path(path)
    assert names["OK_FORMAT"] is False and names["points"] > 0
    (test,) = [value for name, value in names.items() if name.startswith("test_") and name != "test_case"]
    try:
        test({})
    except AssertionError as error:
        print("failed", test.hidden, names["name"], str(error).splitlines()[0])
    else:
        print("passed", test.hidden, names["name"])
"""


def test_otters_tests_run_in_its_format(tmp_path: Path, environment: dict[str, str]) -> None:
    """Each check is a public and a hidden test, in files of otter's format beside a notebook's submission."""
    assert run("export-grader", "5", "--to", "otter", "--seed", "s", "--out", str(tmp_path / "out")) == 0
    unpack(tmp_path / "out" / "otter-lab-05.zip", tmp_path / "source")
    unpack(pack(mutant_folder(LAB, MUTANT, tmp_path / "a"), tmp_path / "s.zip"), tmp_path / "submission")
    for path in (tmp_path / "source" / "files").iterdir():
        path.rename(tmp_path / "submission" / path.name)
    tests = sorted((tmp_path / "source" / "tests").glob("*.py"))
    chosen = [str(test) for test in tests if test.name.startswith(("01", "07"))]
    command = [sys.executable, "-c", STAND_IN, *chosen]
    done = subprocess.run(command, env=environment, cwd=tmp_path / "submission", capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert [line.split(" ")[:3] for line in lines] == [
        ["passed", "True", "hidden"],
        ["passed", "False", "public"],
        ["failed", "True", "hidden"],
        ["failed", "False", "public"],
    ], done.stderr
    assert len(tests) == 2 * len(LAB.checks)


@pytest.mark.skipif(
    not OTTER, reason="TRACELLM_OTTER_PYTHON names no Python with otter-grader (scripts/install-otter.sh)"
)
def test_otter_itself_grades_a_submission(tmp_path: Path, environment: dict[str, str]) -> None:
    """`otter run` grades the file of `tracellm lab submit --notebook`."""
    folder = mutant_folder(LAB, MUTANT, tmp_path / "a")
    assert run("submit", "5", "--dir", str(folder), "--notebook", "--out", str(tmp_path / "s.zip")) == 0
    assert run("export-grader", "5", "--to", "otter", "--seed", "s", "--out", str(tmp_path / "out")) == 0
    command = [OTTER, "-m", "otter", "run", "--no-logo", "-o", str(tmp_path)]
    command += ["-a", str(tmp_path / "out" / "otter-lab-05.zip"), str(tmp_path / "s.zip")]
    environment["TRACELLM_PYTHON"] = sys.executable
    subprocess.run(command, env=environment, check=True, capture_output=True)
    tests = {test["name"]: test for test in json.loads((tmp_path / "results.json").read_text())["tests"]}
    assert tests["public allocates-from-the-front"]["score"] > 0
    assert tests["public any-operations-keep-the-invariant"]["score"] == 0


def steps(workflow: Path, folder: Path, environment: dict[str, str], secrets: dict[str, str]) -> list[int]:
    """Execute the run steps of a workflow in order, as the runner does; return their exit statuses."""
    parsed = yaml.safe_load(workflow.read_text())
    assert parsed["permissions"] == {"contents": "read"}
    (job,) = parsed["jobs"].values()
    assert job["steps"][0]["uses"].startswith("actions/checkout@")
    statuses = []
    for step in job["steps"]:
        if "run" in step:
            own = dict(step.get("env", {}))
            for name, value in secrets.items():
                own = {key: text.replace(f"${{{{ secrets.{name} }}}}", value) for key, text in own.items()}
            script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            statuses.append(subprocess.run(script, cwd=folder, env=environment | own).returncode)
    return statuses


def test_githubs_workflows_run(tmp_path: Path, environment: dict[str, str]) -> None:
    """The students' workflow checks a repository without a secret; the teacher's grades all, with the secret seed."""
    assert run("export-grader", "5", "--to", "github", "--seed", "spring", "--out", str(tmp_path / "out")) == 0
    check, grade = (tmp_path / "out" / name for name in ("students", "teacher"))
    for path in (tmp_path / "out").rglob("*.yml"):
        assert "spring" not in path.read_text()
    assert "secrets." not in (check / ".github/workflows/check.yml").read_text()
    repository = folder_of(LAB, tmp_path / "student")
    assert steps(check / ".github/workflows/check.yml", repository, environment, {}) == [0, 0]
    broken = mutant_folder(LAB, MUTANT, tmp_path / "broken")
    assert steps(check / ".github/workflows/check.yml", broken, environment, {}) == [0, 1]
    pack(repository, tmp_path / "teacher" / "submissions" / "ada.zip")
    secret = {"TRACELLM_LAB_SEED": "spring"}
    assert steps(grade / ".github/workflows/grade.yml", tmp_path / "teacher", environment, secret) == [0, 0]
    assert "ada,50,20," in (tmp_path / "teacher" / "grades" / "grades.csv").read_text()
