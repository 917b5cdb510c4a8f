"""Points of a lab: 50 for public cases, 20 for hidden ones, 20 for exposed broken engines, 10 for predictions."""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tracellm.lab.checks import Failure
from tracellm.lab.exposing import CaseError, expose, given_mutants, read_exposed
from tracellm.lab.folder import LabFolder
from tracellm.lab.grading import Grade, grade
from tracellm.lab.lab import Lab, find_lab
from tracellm.lab.predictions import Prediction
from tracellm.lab.sandbox.limits import Limits

if TYPE_CHECKING:
    from tracellm.lab.teaching.twists import Twist

__all__ = ["Answer", "Part", "Score", "asked", "is_right", "public_points", "score"]

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
        """Points, to one decimal."""
        return round(self.points * self.done / self.total, 1) if self.total else 0.0


@dataclass(frozen=True)
class Answer:
    """A prediction, and the student's answer to it."""

    prediction: Prediction
    case: Any
    given: Any
    """The answer; None if there is none."""
    right: bool


@dataclass(frozen=True)
class Score:
    """Score of a folder. `hidden` is None if no teacher's seed was given."""

    public: Part
    hidden: Part | None
    exposed: Part
    predicted: Part
    grades: tuple[Grade, ...]
    """The public grade, then the hidden one if there is one."""
    shown: tuple[Failure | None, ...] = ()
    """What each broken engine did on the student's case; None if it was not exposed."""
    answers: tuple[Answer, ...] = ()

    @property
    def earned(self) -> float:
        """Sum of the points."""
        parts = (self.public, self.hidden, self.exposed, self.predicted)
        return round(sum(part.earned for part in parts if part is not None), 1)


def score(
    folder: LabFolder,
    seed: str | None = None,
    public: Grade | None = None,
    *,
    limits: Limits | None = None,
    twist: "Twist | None" = None,
) -> Score:
    """Score a student's folder.

    Args:
        folder: the folder.
        seed: the teacher's seed for hidden cases; None without them.
        public: the grade of the public cases, if they were run already.
        limits: limits of the student's process.
        twist: the twist of the lab; its broken engines are the lab's own.
    """
    lab = folder.lab
    grades = [public or grade(lab, folder.path, limits=limits, twist=twist, shrink_seconds=None)]
    hidden = None
    if seed is not None:
        grades.append(grade(lab, folder.path, seed, shrink=False, limits=limits, twist=twist))
        hidden = Part(grades[1].passed, grades[1].total, HIDDEN)
    shown = _exposed(folder)
    answers = [_answer(one, case, folder.answers.get(one.name)) for one, case in asked(folder)]
    return Score(
        Part(grades[0].passed, grades[0].total, public_points(lab)),
        hidden,
        Part(sum(failure is not None for failure in shown), len(shown), EXPOSED),
        Part(sum(answer.right for answer in answers), len(answers), PREDICTED),
        tuple(grades),
        tuple(shown),
        tuple(answers),
    )


def public_points(lab: Lab) -> int:
    """Return the points of a lab's public cases: those of parts that the lab does not have count here."""
    plain = find_lab(lab.number) or lab
    return PUBLIC + (0 if given_mutants(plain) else EXPOSED) + (0 if lab.predictions else PREDICTED)


def _exposed(folder: LabFolder) -> list[Failure | None]:
    lab = find_lab(folder.lab.number) or folder.lab  # of a twisted lab the plain one
    mutants = given_mutants(lab)
    try:
        cases = read_exposed(folder.path)
    except CaseError:
        cases = {}
    shown: list[Failure | None] = []
    for number, mutant in enumerate(mutants, start=1):
        try:
            shown.append(expose(lab, mutant, *cases[number]) if number in cases else None)
        except CaseError:
            shown.append(None)
    return shown


def asked(folder: LabFolder) -> list[tuple[Prediction, Any]]:
    """Return the predictions of a folder with their cases, which follow from its seed."""
    return [(one, one.make(Random(f"{folder.seed}:{one.name}"))) for one in folder.lab.predictions]


def _answer(prediction: Prediction, case: Any, given: Any) -> Answer:
    return Answer(prediction, case, given, given is not None and is_right(prediction, case, given))


def is_right(prediction: Prediction, case: Any, answer: Any) -> bool:
    """Return whether an answer is right; spaces and capitals do not matter."""
    return str(answer).strip().lower() == str(prediction.answer(case)).strip().lower()
