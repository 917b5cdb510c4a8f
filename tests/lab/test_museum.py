"""The museum: each exhibit's recorded run shows a fault, and a case of its lab proves it.

`TRACELLM_LABS=all` records every exhibit; otherwise one of every fourth lab.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.lab.test_teaching import run
from tracellm.cli.folders import read_run
from tracellm.lab.checks import make_cases
from tracellm.lab.exposing import expose, mutant_folder
from tracellm.lab.grading import grade
from tracellm.lab.lab import Lab, load_labs
from tracellm.lab.museum import Exhibit, exhibits, record_exhibit
from tracellm.lab.recording import Recorded, record
from tracellm.report.diff import diff_text

ALL = os.environ.get("TRACELLM_LABS") == "all"
EXHIBITS = exhibits()
FIRST = {exhibit.lab.number: exhibit for exhibit in reversed(EXHIBITS)}
CHOSEN = EXHIBITS if ALL else list(FIRST.values())[::4]


def name_of(exhibit: Exhibit) -> str:
    """Return an exhibit's name for test ids."""
    return f"{exhibit.lab.number}-{exhibit.mutant.name}"


@pytest.fixture(scope="module")
def engine_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Lab], Recorded]:
    """A function that records a lab's script on the engine, once for all exhibits of the lab."""
    folder = tmp_path_factory.mktemp("engine")
    return cache(lambda lab: record(lab.folder / "explain.py", folder / lab.slug, "en"))


@pytest.mark.parametrize("exhibit", CHOSEN, ids=name_of)
def test_an_exhibits_run_shows_its_fault(
    exhibit: Exhibit, engine_run: Callable[[Lab], Recorded], tmp_path: Path
) -> None:
    """The run of the broken engine ends in an error, or differs from the engine's in more than times."""
    engine = engine_run(exhibit.lab)
    broken, page = record_exhibit(exhibit, tmp_path, "en", engine)
    if not broken.error:
        assert page is not None
        found = diff_text(*(read_run(str(run.path), "en") for run in (broken, engine)), lang="en", width=100)
        assert not found.startswith("Only times differ"), exhibit.mutant.says.en


def test_an_exhibit_is_recorded_beside_the_engine(capfd: pytest.CaptureFixture, tmp_path: Path) -> None:
    """The command records the broken engine and the real one, and compares them on a page."""
    assert run("museum", "1", "--out", str(tmp_path)) == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"broken", "engine", "diff.html"}
    assert "diff.html" in capfd.readouterr().out


@pytest.mark.usefixtures("forked_students")
@pytest.mark.parametrize("exhibit", CHOSEN, ids=name_of)
def test_a_case_proves_the_fault(exhibit: Exhibit, tmp_path: Path) -> None:
    """A case of the lab's checks, as a student may find it, exposes the exhibit."""
    folder = mutant_folder(exhibit.lab, exhibit.mutant, tmp_path / "lab")
    for seed in map(str, range(10)):
        for result in grade(exhibit.lab, folder, seed, shrink=False).results:
            for failed in result.failed:
                case = make_cases(failed.check, seed)[failed.index]
                if case not in make_cases(failed.check, "public"):
                    assert expose(exhibit.lab, exhibit.mutant, failed.check.name, case) is not None
                    return
    pytest.fail("no case of ten seeds shows the fault")


def test_each_lab_has_three_exhibits() -> None:
    """Each lab in which students write code gives at least three broken engines to the museum."""
    for lab in load_labs():
        if lab.files:
            assert sum(exhibit.lab.number == lab.number for exhibit in EXHIBITS) >= 3, lab.slug


def test_the_list_gives_nothing_away(capfd: pytest.CaptureFixture) -> None:
    """The list names each exhibit's lab only, and the order in a lab is not that of its mutants."""
    assert run("museum") == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == len(EXHIBITS) + 1
    for number, (line, exhibit) in enumerate(zip(lines, EXHIBITS, strict=False), start=1):
        assert line.split() == [str(number), "lab", f"{exhibit.lab.number},", *exhibit.lab.title.en.split()]
    orders = []
    for lab in load_labs():
        names = [mutant.name for mutant in lab.mutants if mutant.exhibit]
        orders.append(names == [exhibit.mutant.name for exhibit in EXHIBITS if exhibit.lab == lab])
    assert not all(orders)
