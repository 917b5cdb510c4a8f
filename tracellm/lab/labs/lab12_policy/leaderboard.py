"""The leaderboard: policies by their score, in `leaderboard.json` and `leaderboard.md`.

A student's folder has one with the versions of the policy. A teacher makes one of all submissions:

    python -m tracellm.lab.labs.lab12_policy.leaderboard SUBMISSIONS [--seed SEED] [--out DIR]
"""

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tracellm.lab.checks import make_cases
from tracellm.lab.folder import open_folder
from tracellm.lab.grading import PUBLIC_SEED, Grade, grade
from tracellm.lab.labs.lab12_policy.checks import CHECKS, Workload, is_complete, run_fcfs
from tracellm.lab.labs.lab12_policy.workloads import measure
from tracellm.lab.loader import LAB_FILE, LoadError

__all__ = ["FIGURES", "Entry", "figures_of", "main", "make_entry", "version_of", "write_board"]

FIGURES = ("slowdown", "p95", "longest", "ttft", "fairness", "total")
"""Figures of a run; of `fairness` more is better, of all others less."""

_POLICY = "policy.py"
_NUMBER = 12
_FILE = "leaderboard.json"


class Entry(msgspec.Struct, frozen=True):
    """A policy, its score and its figures."""

    name: str
    score: float
    """The geometric mean of the gains over FCFS in each workload's own figure, times 100."""
    passed: int
    """Passed cases of the checks; -1 for FCFS, which is not checked."""
    figures: dict[str, dict[str, float]]
    """Mean figures by workload."""

    @staticmethod
    def fcfs(grade: Grade, seed: str = PUBLIC_SEED) -> "Entry":
        """Return the entry of first come, first served."""
        return Entry(
            "FCFS", 100.0, -1, {check.short_en: _round(fcfs) for check, (_, fcfs) in figures_of(grade, seed).items()}
        )


def _round(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in figures.items()}


def _runs(grade: Grade, seed: str) -> list[tuple[Workload, Any, Any]]:
    """Return the workloads of a grade with cases and outputs."""
    return [
        (result.check, case, output)
        for result in grade.results
        if isinstance(result.check, Workload)
        for case, output in zip(make_cases(result.check, seed), result.outputs, strict=True)
    ]


def figures_of(grade: Grade, seed: str = PUBLIC_SEED) -> dict[Workload, tuple[dict[str, float], dict[str, float]]]:
    """Return the mean figures of the policy and of FCFS by workload; all requests must have ended."""
    found: dict[Workload, list[tuple[dict[str, float], dict[str, float]]]] = {}
    for check, case, output in _runs(grade, seed):
        found.setdefault(check, []).append((measure(case, output), measure(case, run_fcfs(case))))
    return {
        check: (_mean([mine for mine, _ in pairs]), _mean([fcfs for _, fcfs in pairs]))
        for check, pairs in found.items()
    }


def _mean(runs: list[dict[str, float]]) -> dict[str, float]:
    return {figure: sum(run[figure] for run in runs) / len(runs) for figure in FIGURES}


def make_entry(name: str, grade: Grade, seed: str = PUBLIC_SEED) -> Entry | None:
    """Return the entry of a graded policy; None if a request did not end."""
    runs = _runs(grade, seed)
    if not all(is_complete(case, output) for _, case, output in runs):
        return None
    gains = []
    for check, case, output in runs:
        figure = check.figure or "total"
        mine, fcfs = measure(case, output)[figure], measure(case, run_fcfs(case))[figure]
        gains.append(math.log(mine / fcfs) if figure == "fairness" else math.log(fcfs / mine))
    score = round(100 * math.exp(sum(gains) / len(gains)), 1)
    return Entry(
        name,
        score,
        grade.passed,
        {check.short_en: _round(mine) for check, (mine, _) in figures_of(grade, seed).items()},
    )


def version_of(folder: Path) -> str:
    """Return the folder's name and the first digits of the policy's hash."""
    return f"{folder.resolve().name} {hashlib.sha256((folder / _POLICY).read_bytes()).hexdigest()[:8]}"


def write_board(folder: Path, entries: Sequence[Entry]) -> Path:
    """Add entries to the leaderboard of a folder, those of the same name replaced; return the table's path."""
    path = folder / _FILE
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=list[Entry])
    except (OSError, msgspec.MsgspecError):
        kept = []
    by_name = {entry.name: entry for entry in (*kept, *entries)}
    board = sorted(by_name.values(), key=lambda entry: (-entry.score, entry.name))
    data = json.dumps(msgspec.to_builtins(board), indent=1, ensure_ascii=False)
    path.write_text(data + "\n", encoding="utf-8")
    table = path.with_suffix(".md")
    table.write_text(_table(board), encoding="utf-8")
    return table


def _table(board: Sequence[Entry]) -> str:
    figures = {check.short_en: check.figure or "total" for check in CHECKS if isinstance(check, Workload)}
    columns = ["", "policy", "score", "cases", *(f"{name}: {figure}" for name, figure in figures.items())]
    rows = [
        [
            str(place),
            entry.name,
            f"{entry.score:.1f}",
            str(entry.passed) if entry.passed >= 0 else "",
            *(
                f"{entry.figures[name][figure]:.3f}" if name in entry.figures else ""
                for name, figure in figures.items()
            ),
        ]
        for place, entry in enumerate(board, start=1)
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in (columns, ["---"] * len(columns), *rows))


def main(arguments: Sequence[str] | None = None) -> None:
    """Grade all submissions in a directory, and write their leaderboard."""
    parser = argparse.ArgumentParser(description="Write the leaderboard of lab 12.")
    parser.add_argument("submissions", type=Path, help="directory with a lab folder for each student")
    parser.add_argument("--seed", default=PUBLIC_SEED, help="seed of the workloads; default: the public cases")
    parser.add_argument("--out", type=Path, default=Path(), help="directory of leaderboard.json and leaderboard.md")
    options = parser.parse_args(arguments)
    entries: list[Entry] = []
    for file in sorted(options.submissions.glob(f"*/{LAB_FILE}")):
        try:
            folder = open_folder(file.parent)
        except LoadError as error:
            sys.stdout.write(f"{error}\n")
            continue
        if folder.lab.number != _NUMBER:
            continue
        graded = grade(folder.lab, folder.path, options.seed, shrink=False)
        entry = make_entry(folder.path.name, graded, options.seed)
        if entry is None:
            sys.stdout.write(f"{folder.path}: no figures, as not every request ends\n")
        else:
            entries += [entry, Entry.fcfs(graded, options.seed)]
    (options.out / _FILE).unlink(missing_ok=True)
    sys.stdout.write(write_board(options.out, entries).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
