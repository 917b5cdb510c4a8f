"""Broken engines that students expose: a case on which a mutant's output is wrong and the reference's is right.

Reading the engine does not help here: the mutants' names and numbers are known to the student, their source is not.
Mutant and reference run the student's case under the same limits as a student's code, since the case may be anything.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from tracellm.lab.checks import Check, Failure, make_cases
from tracellm.lab.folder import make_folder
from tracellm.lab.grading import PUBLIC_SEED, judge
from tracellm.lab.lab import Lab, Mutant
from tracellm.lab.sandbox.outcomes import Value
from tracellm.lab.sandbox.run import run_cases

__all__ = ["EXPOSED_FILE", "CaseError", "expose", "given_mutants", "mutant_folder", "read_exposed", "write_exposed"]

EXPOSED_FILE = "exposed.json"
"""File of a lab's folder with the student's cases, by the number of the broken engine."""


class CaseError(Exception):
    """A case that proves nothing; `key` is the key of a text under `lab.case_`."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key, values)
        self.key = key
        self.values = values


def given_mutants(lab: Lab) -> list[Mutant]:
    """Return the broken engines that students of a lab expose, in the order of their numbers."""
    return [mutant for mutant in lab.mutants if mutant.given]


def mutant_folder(lab: Lab, mutant: Mutant | None, path: Path) -> Path:
    """Make a lab's folder with the engine's files, one of them broken by a mutant."""
    make_folder(lab, path, "en", seed="0")
    for file in lab.files:
        broken = mutant is not None and mutant.module == file.module
        source = mutant.source(file) if broken and mutant is not None else file.source()
        (path / file.name).write_text(source, encoding="utf-8")
    return path


def expose(lab: Lab, mutant: Mutant, name: str, case: Any) -> Failure | None:
    """Return the failure of a mutant on a case, or None if the case does not expose it.

    Args:
        lab: the lab.
        mutant: one of its mutants.
        name: name of the check that runs and judges the case.
        case: the case.

    Raises:
        CaseError: there is no such check, the case is a public one, or the engine itself fails on it.
    """
    check = find_check(lab, name)
    for number, public in enumerate(make_cases(check, PUBLIC_SEED), start=1):
        if case == public:
            raise CaseError("public", name=name, number=number)
    try:
        msgspec.msgpack.encode(case)
    except (ValueError, OverflowError, RecursionError, TypeError) as error:  # JSON can hold more than fits
        raise CaseError("shape", error=error) from None
    with tempfile.TemporaryDirectory() as place:
        right, wrong = (
            run_cases(
                mutant_folder(lab, one, Path(place, label)),
                lab.number,
                [(name, case)],
                processes=lab.processes,
                limits=lab.limits,
            )
            for label, one in (("engine", None), ("broken", mutant))
        )
    (expected,), (outcome,) = right.outcomes, wrong.outcomes
    if not isinstance(expected, Value):
        failure = judge(check, case, expected)
        raise CaseError("engine_fails", error=failure and failure.en)
    reference = expected.output if check.uses_reference else None
    try:
        if failure := check.judge(case, expected.output, reference):
            raise CaseError("engine_fails", error=failure.en)
        if isinstance(outcome, Value):
            return check.judge(case, outcome.output, reference)
    except CaseError:
        raise
    except Exception as error:  # the case may be anything
        raise CaseError("shape", error=f"{type(error).__name__}: {error}") from None
    return judge(check, case, outcome)


def find_check(lab: Lab, name: str) -> Check:
    """Return the check of a lab with this name.

    Raises:
        CaseError: there is none.
    """
    for check in lab.checks:
        if check.name == name:
            return check
    raise CaseError("check", name=name, known=", ".join(check.name for check in lab.checks))


def read_exposed(folder: Path) -> dict[int, tuple[str, Any]]:
    """Return the student's cases as (name of the check, case), by the number of the broken engine, from 1.

    Raises:
        CaseError: the file is damaged.
    """
    path = folder / EXPOSED_FILE
    if not path.is_file():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {int(number): (str(entry["check"]), entry["case"]) for number, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CaseError("file", path=path, error=error) from None


def write_exposed(folder: Path, cases: dict[int, tuple[str, Any]]) -> None:
    """Write the student's cases."""
    entries = {str(number): {"check": name, "case": case} for number, (name, case) in sorted(cases.items())}
    text = json.dumps(entries, indent=1, ensure_ascii=False) + "\n"
    (folder / EXPOSED_FILE).write_text(text, encoding="utf-8")
