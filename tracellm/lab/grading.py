"""Grades the files in a student's folder: cases, the student's process, and a verdict for each case.

Expected outputs are computed here, by the engine itself; the student's process gets cases only. A failed case is made
smaller as long as it still fails, so that the message is about the smallest one that was found.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracellm.lab.checks import Check, Failure, make_cases
from tracellm.lab.lab import Lab
from tracellm.lab.sandbox.jail import Isolation
from tracellm.lab.sandbox.limits import Limits
from tracellm.lab.sandbox.outcomes import Ended, NotLoaded, NotRun, Outcome, Raised, Tampered, Value
from tracellm.lab.sandbox.run import Sandboxed, run_cases
from tracellm.report.texts import LANGUAGES, text

if TYPE_CHECKING:
    from tracellm.lab.teaching.twists import Twist

__all__ = ["CheckResult", "FailedCase", "Grade", "both", "grade", "judge"]

PUBLIC_SEED = "public"

_NOT_WRITTEN = NotImplementedError.__name__
"""Exception of an emptied function."""

_SHRINK_SECONDS = 4.0
_SHRINK_BATCH = 40
_SHRINK_ROUNDS = 12


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
    ran: bool = True
    """False if earlier cases took too long or ended the process."""


@dataclass
class CheckResult:
    """Result of a check: its number of cases, and those that failed."""

    check: Check
    total: int
    failed: list[FailedCase] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    """Output of the code under test for each case; None for a case without a result."""

    @property
    def passed(self) -> int:
        """Number of cases that passed."""
        return self.total - len(self.failed)

    @property
    def not_run(self) -> int:
        """Number of cases that were not run, and count as failed."""
        return sum(not case.ran for case in self.failed)


@dataclass
class Grade:
    """Results of all checks of a lab for one seed."""

    lab: Lab
    results: list[CheckResult]
    printed: str = ""
    """Text that the student's code printed."""
    isolation: Isolation = ""
    """Isolation of the student's process; empty if none ran."""

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
    shrink_seconds: float | None = _SHRINK_SECONDS,
    twist: "Twist | None" = None,
) -> Grade:
    """Run the checks of a lab, or some of them, on the files in `folder`.

    Args:
        lab: the lab.
        folder: the student's folder.
        seed: seed of the cases; `public`, or a teacher's.
        checks: the checks to run; by default all.
        limits: limits of the student's process; by default the lab's.
        shrink: look for smaller cases that fail.
        shrink_seconds: time for that; None for a fixed number of rounds, so that the result is always the same.
        twist: the twist of the lab that gives the expected outputs instead of the engine.
    """
    limits = limits or lab.limits
    chosen = lab.checks if checks is None else tuple(checks)
    work = [(check, index, case) for check in chosen for index, case in enumerate(make_cases(check, seed))]
    results = {check.name: CheckResult(check, check.cases) for check in chosen}
    ran, failures = _run(lab, folder, [(check, case) for check, _, case in work], limits, twist)
    for (check, index, case), outcome, failure in zip(work, ran.outcomes, failures, strict=True):
        results[check.name].outputs.append(outcome.output if isinstance(outcome, Value) else None)
        if failure is not None:
            traceback = outcome.traceback if isinstance(outcome, Raised) else ""
            shrinks = isinstance(outcome, Value) or (isinstance(outcome, Raised) and outcome.kind != _NOT_WRITTEN)
            ran_at_all = not isinstance(outcome, NotRun)
            results[check.name].failed.append(
                FailedCase(check, index, case, failure, traceback, shrinks, ran=ran_at_all)
            )
    graded = Grade(lab, list(results.values()), ran.printed, ran.isolation)
    first = graded.first_failure
    if shrink and first is not None and first.shrinks:
        smaller = _shrink(lab, folder, first, limits, twist, shrink_seconds)
        failed = next(result for result in graded.results if first in result.failed).failed
        failed[failed.index(first)] = smaller
    return graded


def _run(
    lab: Lab, folder: Path, work: Sequence[tuple[Check, Any]], limits: Limits | None, twist: "Twist | None"
) -> tuple[Sandboxed, list[Failure | None]]:
    """Run cases with the student's files, and judge them."""
    checks = "" if twist is None else twist.checks
    cases = [(check.name, case) for check, case in work]
    if missing := [file.name for file in lab.files if not (folder / file.name).is_file()]:
        outcome = NotLoaded(Raised("FileNotFoundError", missing[0]))
        return Sandboxed([outcome] * len(work)), [_failure(outcome)] * len(work)
    ran = run_cases(folder, lab.number, cases, processes=lab.processes, limits=limits, checks=checks, files=lab.files)
    expected = [None] * len(work) if twist is None else twist.expected(work)
    return ran, [
        judge(check, case, outcome) if twist is None else _judge(check, case, outcome, right)
        for (check, case), outcome, right in zip(work, ran.outcomes, expected, strict=True)
    ]


def judge(check: Check, case: Any, outcome: Outcome) -> Failure | None:
    """Return the failure of an outcome, or None if it is right; the engine gives the expected output."""
    expected = check.run(case) if isinstance(outcome, Value) and check.uses_reference else None
    return _judge(check, case, outcome, expected)


def _judge(check: Check, case: Any, outcome: Outcome, expected: Any) -> Failure | None:
    if not isinstance(outcome, Value):
        return _failure(outcome)
    try:
        return check.judge(case, outcome.output, expected)
    except Exception as error:  # the output has another shape, and may be anything
        return both("lab.other_shape", error=f"{type(error).__name__}: {error}"[:300])


def _failure(outcome: Raised | NotLoaded | Tampered | Ended | NotRun) -> Failure:
    """Describe an outcome without a result."""
    if isinstance(outcome, NotRun):
        return both("lab.not_run")
    if isinstance(outcome, Tampered):
        return both("lab.tampered", name=outcome.name)
    if isinstance(outcome, Ended):
        failure = both(f"lab.ended_{outcome.how}", detail=outcome.detail)
        if not outcome.loading:
            return failure
        en, zh = (text(lang, "lab.ended_loading", failure=failure[lang]) for lang in LANGUAGES)
        return Failure(en, zh)
    error = outcome.error if isinstance(outcome, NotLoaded) else outcome
    place = f"{Path(error.file).name}:{error.line}" if error.file else ""
    if error.kind == _NOT_WRITTEN and error.file:
        return both("lab.not_written", function=error.function, place=place)
    key = "lab.not_loaded" if isinstance(outcome, NotLoaded) else "lab.raised"
    message = f"{error.kind}: {error.message}" if error.message else error.kind
    return both(f"{key}_at" if place else key, error=message, place=place)


def both(key: str, **values: Any) -> Failure:
    """Return a text in both languages."""
    return Failure(text("en", key, **values), text("zh", key, **values))


def _engine_runs(check: Check, case: Any) -> bool:
    """Return whether the engine itself can execute a case."""
    try:
        check.run(case)
    except Exception:  # a smaller case may be impossible
        return False
    return True


def _shrink(
    lab: Lab, folder: Path, failed: FailedCase, limits: Limits | None, twist: "Twist | None", seconds: float | None
) -> FailedCase:
    """Return a smaller failing case of the same check, or the same one."""
    check, best, rounds = failed.check, failed, 0
    deadline = time.monotonic() + (seconds or 0.0)
    while rounds < _SHRINK_ROUNDS and (seconds is None or time.monotonic() < deadline):
        candidates = [case for _, case in zip(range(_SHRINK_BATCH), check.shrink(best.case), strict=False)]
        if not candidates:
            break
        rounds += 1
        ran, failures = _run(lab, folder, [(check, case) for case in candidates], limits, twist)
        for case, outcome, failure in zip(candidates, ran.outcomes, failures, strict=True):
            possible = isinstance(outcome, Value) or (isinstance(outcome, Raised) and _engine_runs(check, case))
            if possible and failure is not None:
                traceback = outcome.traceback if isinstance(outcome, Raised) else ""
                best = FailedCase(check, failed.index, case, failure, traceback, smaller=True)
                break
        else:
            break
    return best
