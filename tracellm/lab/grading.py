"""Grades the files in a student's folder: cases, the student's process, and a verdict for each case.

Expected outputs are computed here, by the engine itself; the student's process gets cases only. A failed case is made
smaller as long as it still fails, so that the message is about the smallest one that was found.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracellm.lab.checks import Check, Failure, make_cases
from tracellm.lab.lab import Lab
from tracellm.lab.sandbox.outcomes import Ended, NotLoaded, NotRun, Outcome, Raised, Value
from tracellm.lab.sandbox.run import Limits, run_cases
from tracellm.report.texts import text

__all__ = ["CheckResult", "FailedCase", "Grade", "grade", "judge"]

PUBLIC_SEED = "public"

_NOT_WRITTEN = NotImplementedError.__name__
"""Exception of an emptied function."""

_SHRINK_SECONDS = 4.0
_SHRINK_BATCH = 40


@dataclass(frozen=True)
class FailedCase:
    """A case that failed."""

    check: Check
    index: int
    """Number of the case in its check, from 0."""
    case: Any
    failure: Failure
    traceback: str = ""
    shrinks: bool = True
    """False if the case ended the process or did not end, or a function is not written yet."""
    smaller: bool = False
    """True if the case was made smaller."""


@dataclass
class CheckResult:
    """Result of a check: its number of cases, and those that failed."""

    check: Check
    total: int
    failed: list[FailedCase] = field(default_factory=list)

    @property
    def passed(self) -> int:
        """Number of cases that passed."""
        return self.total - len(self.failed)


@dataclass
class Grade:
    """Results of all checks of a lab for one seed."""

    lab: Lab
    results: list[CheckResult]
    printed: str = ""
    """What the student's code printed."""

    @property
    def passed(self) -> int:
        """Number of cases that passed."""
        return sum(result.passed for result in self.results)

    @property
    def total(self) -> int:
        """Number of cases."""
        return sum(result.total for result in self.results)

    @property
    def first_failure(self) -> FailedCase | None:
        """The first failed case, or None."""
        return next((case for result in self.results for case in result.failed), None)


def grade(
    lab: Lab,
    folder: Path,
    seed: str = PUBLIC_SEED,
    *,
    checks: Sequence[Check] | None = None,
    limits: Limits | None = None,
    shrink: bool = True,
) -> Grade:
    """Run the checks of a lab, or some of them, on the files in `folder`.

    Args:
        lab: the lab.
        folder: the student's folder, with `lab.json`.
        seed: seed of the cases; `public`, or a teacher's.
        checks: the checks to run; by default all.
        limits: limits of the student's process; by default the lab's.
        shrink: look for smaller cases that fail.
    """
    limits = limits or lab.limits
    chosen = lab.checks if checks is None else tuple(checks)
    work = [(check, index, case) for check in chosen for index, case in enumerate(make_cases(check, seed))]
    ran = run_cases(
        folder, lab.number, [(check.name, case) for check, _, case in work], processes=lab.processes, limits=limits
    )
    results = {check.name: CheckResult(check, check.cases) for check in chosen}
    for (check, index, case), outcome in zip(work, ran.outcomes, strict=True):
        failure = judge(check, case, outcome)
        if failure is not None:
            traceback = outcome.traceback if isinstance(outcome, Raised) else ""
            shrinks = isinstance(outcome, Value) or (isinstance(outcome, Raised) and outcome.kind != _NOT_WRITTEN)
            results[check.name].failed.append(FailedCase(check, index, case, failure, traceback, shrinks))
    graded = Grade(lab, list(results.values()), ran.printed)
    first = graded.first_failure
    if shrink and first is not None and first.shrinks:
        smaller = _shrink(lab, folder, first, limits)
        failed = next(result for result in graded.results if first in result.failed).failed
        failed[failed.index(first)] = smaller
    return graded


def judge(check: Check, case: Any, outcome: Outcome) -> Failure | None:
    """Return the failure of an outcome, or None if it is right."""
    if isinstance(outcome, Value):
        expected = check.run(case) if check.uses_reference else None
        try:
            return check.judge(case, outcome.output, expected)
        except (TypeError, KeyError, IndexError, ValueError, AttributeError) as error:  # data of another shape
            return _both("lab.other_shape", error=f"{type(error).__name__}: {error}")
    return _failure(outcome)


def _failure(outcome: Raised | NotLoaded | Ended | NotRun) -> Failure:
    """Describe an outcome without a result."""
    if isinstance(outcome, NotRun):
        return _both("lab.not_run")
    if isinstance(outcome, Ended):
        return _both(f"lab.ended_{outcome.how}", detail=outcome.detail)
    error = outcome.error if isinstance(outcome, NotLoaded) else outcome
    place = f"{Path(error.file).name}:{error.line}" if error.file else ""
    if error.kind == _NOT_WRITTEN and error.file:
        return _both("lab.not_written", function=error.function, place=place)
    key = "lab.not_loaded" if isinstance(outcome, NotLoaded) else "lab.raised"
    message = f"{error.kind}: {error.message}" if error.message else error.kind
    return _both(f"{key}_at" if place else key, error=message, place=place)


def _both(key: str, **values: Any) -> Failure:
    return Failure(text("en", key, **values), text("zh", key, **values))


def _shrink(lab: Lab, folder: Path, failed: FailedCase, limits: Limits | None) -> FailedCase:
    """Return a smaller failing case of the same check, or the same one."""
    check, best = failed.check, failed
    deadline = time.monotonic() + _SHRINK_SECONDS
    while time.monotonic() < deadline:
        candidates = [case for _, case in zip(range(_SHRINK_BATCH), check.shrink(best.case), strict=False)]
        if not candidates:
            break
        ran = run_cases(
            folder, lab.number, [(check.name, case) for case in candidates], processes=lab.processes, limits=limits
        )
        for case, outcome in zip(candidates, ran.outcomes, strict=True):
            if isinstance(outcome, Value | Raised) and (failure := judge(check, case, outcome)) is not None:
                traceback = outcome.traceback if isinstance(outcome, Raised) else ""
                best = FailedCase(check, failed.index, case, failure, traceback, smaller=True)
                break
        else:
            break
    return best
