"""Tests of lab 10 alone: the processes in which a student's files run."""

from pathlib import Path

import pytest

from tests.lab.support import mutant_folder
from tracellm.lab.grading import grade
from tracellm.lab.lab import find_lab
from tracellm.lab.labs.lab10_boundary.checks import RealAbortsFreeBlocks


@pytest.fixture(scope="module")
def lost_abort(tmp_path_factory):
    """The grade, by real processes alone, of an engine core that ignores aborts."""
    lab = find_lab(10)
    assert lab is not None
    (mutant,) = (mutant for mutant in lab.mutants if mutant.name == "lost-abort")
    folder: Path = mutant_folder(lab, mutant, tmp_path_factory.mktemp("lost") / "lab")
    return grade(lab, folder, checks=[RealAbortsFreeBlocks()], shrink=False)


def test_the_engine_cores_process_has_the_students_file(lost_abort):
    """A fault that exists only in the student's core_proc.py shows through the socket: the blocks stay in use."""
    assert lost_abort.passed == 0
    assert "after the abort of the only request, 1 is unfinished" in lost_abort.first_failure.failure.en
