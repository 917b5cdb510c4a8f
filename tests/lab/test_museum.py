"""The museum: each exhibit's recorded run shows a fault, and a case of its lab proves it.

`TRACELLM_LABS=all` records every exhibit; otherwise one of every fourth lab.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.test_teaching import run
from tracellm.cli.folders import read_run
from tracellm.lab import museum
from tracellm.lab.checks import make_cases
from tracellm.lab.exposing import expose, mutant_folder
from tracellm.lab.grading import grade
from tracellm.lab.lab import load_labs
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
def engine_recorded_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Record a lab's script on the engine once for all exhibits of the lab."""
    runs: dict[Path, Recorded] = {}

    def record_once(script: Path, out: Path, lang: str, *, folder: Path | None = None) -> Recorded:
        if folder is not None:
            return record(script, out, lang, folder=folder)
        if script not in runs:
            runs[script] = record(script, tmp_path_factory.mktemp("engine") / "run", lang)
        shutil.copytree(runs[script].path, out)
        return replace(runs[script], path=out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(museum, "record", record_once)
        yield


@pytest.mark.usefixtures("engine_recorded_once")
@pytest.mark.parametrize("exhibit", CHOSEN, ids=name_of)
def test_an_exhibits_run_shows_its_fault(exhibit: Exhibit, tmp_path: Path) -> None:
    """The run of the broken engine ends in an error, or differs from the engine's in more than times."""
    broken, page = record_exhibit(exhibit, tmp_path, "en")
    if not broken.error:
        assert page is not None
        found = diff_text(
            *(read_run(str(tmp_path / name), "en") for name in ("broken", "engine")), lang="en", width=100
        )
        assert not found.startswith("Only times differ"), exhibit.mutant.says.en


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
