"""Points of a lab: 50 for public cases, 20 for hidden ones, 20 for exposed broken engines, 10 for predictions."""

from dataclasses import dataclass
from random import Random
from typing import Any

from tracellm.lab.exposing import CaseError, expose, given_mutants, read_exposed
from tracellm.lab.folder import LabFolder
from tracellm.lab.grading import Grade, grade
from tracellm.lab.predictions import Prediction

__all__ = ["Part", "Score", "asked", "is_right", "score"]

PUBLIC, HIDDEN, EXPOSED, PREDICTED = 50, 20, 20, 10
"""Points of the four parts."""


@dataclass(frozen=True)
class Part:
    """A part of the score: `done` of `total`, worth `points` in all."""

    done: int
    total: int
    points: int

    @property
    def earned(self) -> float:
        """Points, to one decimal; all of them if there is nothing to do."""
        return round(self.points * self.done / self.total, 1) if self.total else float(self.points)


@dataclass(frozen=True)
class Score:
    """Score of a folder. `hidden` is None if no teacher's seed was given."""

    public: Part
    hidden: Part | None
    exposed: Part
    predicted: Part
    grades: tuple[Grade, ...]
    """The public grade, then the hidden one if there is one."""

    @property
    def earned(self) -> float:
        """Sum of the points."""
        parts = (self.public, self.hidden, self.exposed, self.predicted)
        return round(sum(part.earned for part in parts if part is not None), 1)


def score(folder: LabFolder, seed: str | None = None, public: Grade | None = None) -> Score:
    """Score a student's folder.

    Args:
        folder: the folder.
        seed: the teacher's seed for hidden cases; None without them.
        public: the grade of the public cases, if they were run already.
    """
    lab = folder.lab
    grades = [public or grade(lab, folder.path)]
    hidden = None
    if seed is not None:
        grades.append(grade(lab, folder.path, seed, shrink=False))
        hidden = Part(grades[1].passed, grades[1].total, HIDDEN)
    return Score(
        Part(grades[0].passed, grades[0].total, PUBLIC), hidden, _exposed(folder), _predicted(folder), tuple(grades)
    )


def _exposed(folder: LabFolder) -> Part:
    mutants = given_mutants(folder.lab)
    try:
        cases = read_exposed(folder.path)
    except CaseError:
        cases = {}
    done = 0
    for number, mutant in enumerate(mutants, start=1):
        if number in cases:
            name, case = cases[number]
            try:
                done += expose(folder.lab, mutant, name, case) is not None
            except CaseError:
                continue
    return Part(done, len(mutants), EXPOSED)


def asked(folder: LabFolder) -> list[tuple[Prediction, Any]]:
    """Return the predictions of a folder with their cases, which follow from its seed."""
    return [(one, one.make(Random(f"{folder.seed}:{one.name}"))) for one in folder.lab.predictions]


def is_right(prediction: Prediction, case: Any, answer: Any) -> bool:
    """Return whether an answer is right; spaces and capitals do not matter."""
    return str(answer).strip().lower() == str(prediction.answer(case)).strip().lower()


def _predicted(folder: LabFolder) -> Part:
    right = sum(
        is_right(one, case, folder.answers[one.name]) for one, case in asked(folder) if one.name in folder.answers
    )
    return Part(right, len(folder.lab.predictions), PREDICTED)
