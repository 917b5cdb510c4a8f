"""One submission for a grading service: `python -m tracellm.lab.teaching.results SUBMISSION --lab N --out FILE`.

The file has the schema of Gradescope's results.json: https://gradescope-autograders.readthedocs.io/en/latest/specs/.
With `--check NAME` one check is run, and the exit status is 0 if all its cases pass; otter-grader's tests use that.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracellm.lab.grading import PUBLIC_SEED, Grade, grade
from tracellm.lab.lab import Lab, find_lab
from tracellm.lab.scoring import HIDDEN, PUBLIC, Part
from tracellm.lab.teaching.marking import Mark, limits_for, mark
from tracellm.lab.teaching.submissions import Submission, stage
from tracellm.lab.teaching.twists import Twist, open_twist
from tracellm.report.texts import Language, text

__all__ = ["gradescope_results", "main"]


def gradescope_results(found: Mark, lang: Language) -> dict[str, Any]:
    """Return a mark as Gradescope's results: a test for each check, hidden cases without output and unseen."""
    tests = []
    grades = found.score.grades
    for graded, points, hidden in zip(grades, (PUBLIC, HIDDEN), (False, True), strict=False):
        tests += [_test(graded, result, points, hidden, lang) for result in graded.results]
    score = found.score
    for name, part in (("exposed", score.exposed), ("predicted", score.predicted)):
        tests.append(_part(text(lang, f"lab.column.{name}"), part))
    return {
        "score": score.earned,
        "output": found.verdict[lang],
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "extra_data": {"isolation": found.isolation, "notes": [note[lang] for note in found.notes]},
    }


def _test(graded: Grade, result: Any, points: int, hidden: bool, lang: Language) -> dict[str, Any]:
    most = round(points * result.total / graded.total, 2)
    output = "" if hidden or not result.failed else result.failed[0].failure[lang]
    label = f" ({text(lang, 'lab.column.hidden')})" if hidden else ""
    return {
        "name": result.check.says(lang) + label,
        "score": round(most * result.passed / result.total, 2),
        "max_score": most,
        "status": "failed" if result.failed else "passed",
        "output": output,
        "visibility": "hidden" if hidden else "visible",
    }


def _part(name: str, part: Part) -> dict[str, Any]:
    status = "passed" if part.done == part.total else "failed"
    output = f"{part.done}/{part.total}"
    values = {"name": name, "score": part.earned, "max_score": part.points, "status": status}
    return values | {"output": output, "visibility": "visible"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade one submission; return 0, or with `--check` 1 if a case fails."""
    parser = argparse.ArgumentParser(prog="tracellm.lab.teaching.results")
    parser.add_argument("submission", type=Path)
    parser.add_argument("--lab", type=int, required=True)
    parser.add_argument("--seed-file", type=Path)
    parser.add_argument("--twist", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check")
    parser.add_argument("--lang", choices=("en", "zh"), default="en")
    chosen = parser.parse_args(arguments)
    lang: Language = chosen.lang
    lab = find_lab(chosen.lab)
    if lab is None:
        parser.error(f"there is no lab {chosen.lab}")
    seed = chosen.seed_file.read_text(encoding="utf-8").strip() if chosen.seed_file else None
    with tempfile.TemporaryDirectory(prefix="tracellm-") as place:
        twist = open_twist(chosen.twist, Path(place, "reference")) if chosen.twist else None
        submission = Submission(chosen.submission, chosen.submission.stem)
        if chosen.check:
            return _check(submission, twist.lab if twist else lab, chosen.check, seed, twist, Path(place), lang)
        found = mark(submission, lab, seed, twist=twist)
    results = json.dumps(gradescope_results(found, lang), indent=1, ensure_ascii=False)
    if chosen.out:
        chosen.out.write_text(results, encoding="utf-8")
    else:
        sys.stdout.write(results + "\n")
    return 0


def _check(
    submission: Submission, lab: Lab, name: str, seed: str | None, twist: Twist | None, place: Path, lang: Language
) -> int:
    checks = [check for check in lab.checks if check.name == name]
    folder = stage(submission, lab, place / "lab").folder.path
    limits = limits_for(lab)
    graded = grade(lab, folder, seed or PUBLIC_SEED, checks=checks, limits=limits, shrink=seed is None, twist=twist)
    failed = graded.first_failure
    if failed is not None:
        sys.stdout.write((failed.failure[lang] if seed is None else text(lang, "lab.verdict.hidden", name=name)) + "\n")
    return 1 if failed is not None or not checks else 0


if __name__ == "__main__":
    sys.exit(main())
