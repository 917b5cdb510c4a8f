"""Marks of submissions: points, a verdict in words, and notes for the teacher. No submission stops the others."""

import ast
import csv
import io
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracellm.lab.checks import Failure
from tracellm.lab.grading import both
from tracellm.lab.lab import Lab
from tracellm.lab.sandbox.limits import Limits
from tracellm.lab.scoring import EXPOSED, HIDDEN, PREDICTED, PUBLIC, Part, Score, score
from tracellm.lab.teaching.submissions import Submission, SubmissionError, stage

if TYPE_CHECKING:
    from tracellm.lab.teaching.twists import Twist

__all__ = ["Mark", "limits_for", "mark", "write_csv"]

_PATIENCE = 2
"""Factor of a lab's time limits in grading: a busy machine changes no mark."""

_UNUSUAL = frozenset(("ctypes", "gc", "importlib", "inspect", "multiprocessing", "socket", "subprocess", "urllib"))
"""Modules that a lab's code has no reason to import."""


@dataclass(frozen=True)
class Mark:
    """The mark of a submission."""

    name: str
    score: Score
    verdict: Failure
    """The first failed case in words, or that all passed."""
    notes: list[Failure] = field(default_factory=list)
    """Sentences for the teacher: what was not read, and what is unusual."""
    sources: dict[str, str] = field(default_factory=dict)
    """Text of the lab's files by module, for comparing submissions."""

    @property
    def isolation(self) -> str:
        """Kind of isolation in which the code ran; empty if it did not run."""
        return self.score.grades[0].isolation if self.score.grades else ""


def mark(
    submission: Submission, lab: Lab, seed: str | None, *, limits: Limits | None = None, twist: "Twist | None" = None
) -> Mark:
    """Mark a submission.

    Args:
        submission: the submission.
        lab: the lab that is graded, whatever the submission claims.
        seed: the teacher's seed of the hidden cases; None without them.
        limits: limits of the student's process; by default those of the lab, with more time.
        twist: the twist of the lab, whose reference gives the expected outputs.
    """
    graded = lab if twist is None else twist.lab
    with tempfile.TemporaryDirectory(prefix="tracellm-") as place:
        staged = stage(submission, graded, Path(place).resolve() / "lab")
        notes = [both(f"lab.submission.{one.key}", **one.values) for one in staged.problems]
        sources = {
            file.module: path.read_text(encoding="utf-8", errors="replace")
            for file in graded.files
            if (path := staged.folder.path / file.name).is_file()
        }
        notes += [both("lab.submission.unusual", name=name) for name in _unusual(sources.values())]
        try:
            found = score(staged.folder, seed, limits=limits or limits_for(lab), twist=twist)
        except Exception as error:  # a fault of this program must not stop the other submissions
            notes.append(both("lab.submission.fault", error=f"{type(error).__name__}: {error}"[:300]))
            return Mark(submission.name, _nothing(graded, seed), notes[-1], notes, sources)
    return Mark(submission.name, found, _verdict(found, staged.problems), notes, sources)


def limits_for(lab: Lab) -> Limits:
    """Return the limits of a lab in grading."""
    names = ("case_seconds", "total_seconds", "start_seconds")
    return replace(lab.limits, **{name: _PATIENCE * getattr(lab.limits, name) for name in names})


def _nothing(lab: Lab, seed: str | None) -> Score:
    total = sum(check.cases for check in lab.checks)
    hidden = None if seed is None else Part(0, total, HIDDEN)
    return Score(Part(0, total, PUBLIC), hidden, Part(0, 1, EXPOSED), Part(0, 1, PREDICTED), ())


def _verdict(found: Score, problems: Sequence[SubmissionError]) -> Failure:
    for problem in problems:
        if problem.key not in ("seed", "other_lab"):
            return both(f"lab.submission.{problem.key}", **problem.values)
    for number, graded in enumerate(found.grades):
        if (failed := graded.first_failure) is not None:
            name = failed.check.name
            if number == 0:
                return replace(failed.failure, en=f"{name}: {failed.failure.en}", zh=f"{name}：{failed.failure.zh}")
            return both("lab.verdict.hidden", name=name)
    return both("lab.verdict.passed")


def _unusual(sources: Iterable[str]) -> list[str]:
    found = set()
    for source in sources:
        try:
            nodes = list(ast.walk(ast.parse(source)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {(node.module or "").partition(".")[0]}
            elif isinstance(node, ast.Attribute) and node.attr in (
                "modules",
                "settrace",
                "_getframe",
                "_exit",
                "__code__",
            ):
                found.add(node.attr)
            elif isinstance(node, ast.Name) and node.id in ("exec", "eval", "compile", "open", "__import__"):
                found.add(node.id)
    plain = {"modules", "settrace", "_getframe", "_exit", "__code__", "exec", "eval", "compile", "open", "__import__"}
    return sorted(found & (_UNUSUAL | plain))


def write_csv(marks: Sequence[Mark], lang: str) -> str:
    """Return the marks as CSV, one row for each student."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("student", "public", "hidden", "exposed", "predicted", "total", "verdict", "isolation"))
    for one in marks:
        parts = (one.score.public, one.score.hidden, one.score.exposed, one.score.predicted)
        points = ["" if part is None else f"{part.earned:g}" for part in parts]
        row = (one.name, *points, f"{one.score.earned:g}", one.verdict[lang], one.isolation)
        writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def _cell(value: str) -> str:
    """Return a value that no spreadsheet takes for a formula."""
    value = " ".join(value.split())
    return f"'{value}" if value.startswith(("=", "+", "-", "@")) else value
