"""What holds for every lab: its starter, its checks, other solutions, its mutants.

`TRACELLM_LABS=all` runs the reference on 500 seeds and grades every mutant, as `make test-labs` does.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.lab.support import folder_of, mutant_folder, solution_folder, solutions
from tracellm.lab.checks import make_cases
from tracellm.lab.grading import grade
from tracellm.lab.lab import Lab, LabFile, Mutant, load_labs
from tracellm.lab.source import put_bodies, take_bodies

ALL = os.environ.get("TRACELLM_LABS") == "all"
LABS = load_labs()
WRITING = [lab for lab in LABS if lab.files]
"""Labs in which students write code."""

FILES = [pytest.param(lab, file, id=f"{lab.number}-{file.name}") for lab in WRITING for file in lab.files]
MUTANTS = [
    pytest.param(lab, mutant, id=f"{lab.number}-{mutant.name}")
    for lab in WRITING
    for index, mutant in enumerate(lab.mutants)
    if ALL or index % 6 == 0
]


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


@pytest.mark.parametrize("lab", WRITING, ids=name_of)
def test_the_reference_passes_with_any_seed(lab: Lab) -> None:
    """No seed makes a case that the engine fails; cases and outputs are plain data."""
    if lab.processes:
        pytest.skip("each case starts processes; the public cases are run by other tests")
    for seed in range(500 if ALL else 8):
        for check in lab.checks:
            for case in make_cases(check, str(seed)):
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
def test_solutions_in_another_style_pass(lab: Lab, tmp_path: Path) -> None:
    """At least three correct solutions that are written differently pass all public cases and those of three seeds."""
    found = solutions(lab)
    assert len(found) >= 3
    for number, solution in enumerate(found):
        folder = solution_folder(lab, solution, tmp_path / str(number))
        for seed in ("public", "1", "2", "3"):
            graded = grade(lab, folder, seed)
            failure = graded.first_failure
            assert failure is None, f"{solution.name}, seed {seed}: {failure and failure.failure.en}"


@pytest.mark.parametrize(("lab", "mutant"), MUTANTS)
def test_a_mutant_dies(lab: Lab, mutant: Mutant, tmp_path: Path) -> None:
    """The public cases fail on a broken engine."""
    graded = grade(lab, mutant_folder(lab, mutant, tmp_path / "lab"), shrink=False)
    assert graded.passed < graded.total, f"{mutant.name}: {mutant.says.en}"


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
