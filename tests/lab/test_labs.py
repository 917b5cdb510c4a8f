"""Requirements of every lab: its starter, its checks, other solutions, its mutants.

`TRACELLM_LABS=all`, which `make test-labs` sets, runs the reference on 500 seeds, and grades every solution and every
mutant; without it a sample is graded.
"""

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.lab.support import folder_of, mutant_folder, solution_folder, solutions
from tracellm.lab.checks import make_case, make_cases
from tracellm.lab.exposing import given_mutants
from tracellm.lab.grading import grade, judge
from tracellm.lab.lab import Lab, LabFile, Mutant, load_labs
from tracellm.lab.museum import exhibits
from tracellm.lab.sandbox.run import run_cases
from tracellm.lab.source import put_bodies, take_bodies

ALL = os.environ.get("TRACELLM_LABS") == "all"
MUTANTS_PAGE = Path(__file__).parents[2] / "docs" / "course" / "mutants.md"
LABS = load_labs()
WRITING = [lab for lab in LABS if lab.files]
"""Labs in which students write code."""

FILES = [pytest.param(lab, file, id=f"{lab.number}-{file.name}") for lab in WRITING for file in lab.files]
MUTANTS = [
    pytest.param(lab, mutant, id=f"{lab.number}-{mutant.name}")
    for lab in WRITING
    for index, mutant in enumerate(lab.mutants)
    if ALL or index % 12 == lab.number % 12
]
SOLUTIONS = [
    pytest.param(lab, solution, id=f"{lab.number}-{solution.name}")
    for lab in WRITING
    for index, solution in enumerate(solutions(lab))
    if ALL or index == lab.number % 3
]
SEEDS = ("public", "1", "2", "3") if ALL else ("public",)


def name_of(lab: Lab) -> str:
    """Return a lab's name for test ids."""
    return lab.slug


@pytest.mark.parametrize(("lab", "file"), FILES)
def test_a_starter_with_the_reference_bodies_is_the_engines_file(lab: Lab, file: LabFile) -> None:
    """A starter into which the engine's bodies are put is the engine's file, byte for byte."""
    bodies = take_bodies(file.source(), file.functions, file.removed)
    assert put_bodies(file.starter(), bodies) == file.source()
    assert len(bodies) == len(file.functions) + len(file.removed)


def statements(node: ast.AST) -> Iterator[str]:
    """Return the simple statements below a node as normalized text, without docstrings."""
    for child in ast.walk(node):
        if isinstance(child, ast.stmt) and not hasattr(child, "body"):
            is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if not is_docstring:
                yield ast.unparse(child)


@pytest.mark.parametrize(("lab", "file"), FILES)
def test_no_statement_of_the_reference_is_left_in_a_starter(lab: Lab, file: LabFile) -> None:
    """An emptied function has only its docstring, and no longer statement of its body occurs in the starter."""
    whole, starter = ast.parse(file.source()), ast.parse(file.starter())
    before, after = list(statements(whole)), list(statements(starter))
    cut = {text for text in before if before.count(text) > after.count(text)}
    left = {text for text in cut if text in after and len(text) > 40 and not text.startswith(("raise", "return"))}
    shared = {text for body in take_bodies(file.source(), file.twins).values() for text in body.splitlines()}
    assert left - {text.strip() for text in shared} == set()
    empty = "raise NotImplementedError"
    assert after.count(empty) - before.count(empty) == len(file.functions)


@pytest.mark.usefixtures("forked_students")
@pytest.mark.parametrize("lab", WRITING, ids=name_of)
def test_the_untouched_starter_fails_every_check(lab: Lab, tmp_path: Path) -> None:
    """Each check fails on the starter, with a message that names a function that is not written."""
    sources = {file.module: file.starter() for file in lab.files}
    graded = grade(lab, folder_of(lab, tmp_path / "lab", sources), shrink=False)
    assert [result.check.name for result in graded.results if result.passed == result.total] == []
    assert graded.first_failure is not None
    assert "is not written yet" in graded.first_failure.failure.en


@pytest.mark.parametrize("lab", WRITING, ids=name_of)
def test_the_reference_passes(lab: Lab, tmp_path: Path) -> None:
    """The engine's own files pass all public cases in the student's process."""
    graded = grade(lab, folder_of(lab, tmp_path / "lab"))
    assert graded.first_failure is None
    assert graded.passed == graded.total > 0


@pytest.mark.parametrize("lab", [lab for lab in WRITING if not lab.processes], ids=name_of)
def test_the_reference_passes_with_any_seed(lab: Lab) -> None:
    """The engine passes one case of each check for each of 500 seeds; cases and outputs are plain data."""
    for seed in range(500 if ALL else 8):
        for check in lab.checks:
            case = make_case(check, str(seed), seed % check.cases)
            sent = msgspec.msgpack.decode(msgspec.msgpack.encode(case))
            assert sent == case
            output = msgspec.msgpack.decode(msgspec.msgpack.encode(check.run(sent)))
            expected = check.run(case) if check.uses_reference else None
            assert check.judge(case, output, expected) is None, f"{check.name}, seed {seed}"


@pytest.mark.parametrize("lab", WRITING, ids=name_of)
def test_cases_of_other_seeds_differ(lab: Lab) -> None:
    """Hidden cases are others than the public ones."""
    for check in lab.checks:
        assert make_cases(check, "public") == make_cases(check, "public")
        assert make_cases(check, "public") != make_cases(check, "teacher"), check.name


@pytest.mark.parametrize("lab", WRITING, ids=name_of)
def test_a_lab_has_three_other_solutions(lab: Lab) -> None:
    """At least three correct solutions in another style are kept for each lab."""
    assert len(solutions(lab)) >= 3


@pytest.mark.usefixtures("forked_students")
@pytest.mark.parametrize(("lab", "solution"), SOLUTIONS)
def test_a_solution_in_another_style_passes(lab: Lab, solution: Path, tmp_path: Path) -> None:
    """A correct solution that is written differently passes all public cases and those of other seeds."""
    folder = solution_folder(lab, solution, tmp_path / "lab")
    work = [(seed, check, case) for seed in SEEDS for check in lab.checks for case in make_cases(check, seed)]
    limits = replace(lab.limits, total_seconds=len(SEEDS) * lab.limits.total_seconds)
    cases = [(check.name, case) for _, check, case in work]  # of all seeds, in one process
    ran = run_cases(folder, lab.number, cases, processes=lab.processes, limits=limits, files=lab.files)
    for (seed, check, case), outcome in zip(work, ran.outcomes, strict=True):
        failure = judge(check, case, outcome)
        assert failure is None, f"{check.name}, seed {seed}: {failure and failure.en}"


@pytest.mark.usefixtures("forked_students")
@pytest.mark.parametrize(("lab", "mutant"), MUTANTS)
def test_a_mutant_dies(lab: Lab, mutant: Mutant, tmp_path: Path) -> None:
    """The public cases fail on a broken engine, and docs/course/mutants.md names the first check that fails."""
    row = re.escape(f"| `{mutant.name}` | {mutant.says.en} |") + " `(.+?)` "
    named = re.search(row, MUTANTS_PAGE.read_text(encoding="utf-8"))
    assert named is not None, "stale: run `make docs`"
    names = [check.name for check in lab.checks]
    checks = lab.checks[: names.index(named[1]) + 1]  # a mutant that hangs would take minutes in those after them
    failed = grade(lab, mutant_folder(lab, mutant, tmp_path / "lab"), checks=checks, shrink=False).first_failure
    assert failed is not None, f"{mutant.name}: {mutant.says.en}"
    assert failed.check.name == named[1], "stale: run `make docs`"


def test_the_course_has_150_mutants() -> None:
    """The labs have 150 mutants or more, thirty of them in the museum, and each lab has some that students expose."""
    assert sum(len(lab.mutants) for lab in LABS) >= 150
    assert len(exhibits()) >= 30
    assert [lab.number for lab in WRITING if not given_mutants(lab)] == []
    for lab in LABS:
        assert len({mutant.name for mutant in lab.mutants}) == len(lab.mutants)


@pytest.mark.parametrize("lab", LABS, ids=name_of)
def test_the_texts_of_a_lab_are_complete(lab: Lab) -> None:
    """A lab has a README with goal, reading and three hints in both languages, and its checks a sentence in each."""
    for lang, parts in (("en", ("## Goal", "## Reading", "## Hints")), ("zh", ("## 目标", "## 阅读", "## 提示"))):
        readme = lab.readme(lang)
        assert lab.invariant[lang] in readme
        assert [part for part in parts if part not in readme] == []
        assert len(lab.hints(lang)) == 3
    for check in lab.checks:
        assert check.en.endswith(".")
        assert check.zh.endswith("。")
