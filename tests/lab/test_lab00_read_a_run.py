"""Lab 0: right answers and a good diagram pass, other students' answers do not, and messages have the numbers."""

from pathlib import Path

import pytest

from tracellm.lab.folder import LabFolder, make_folder
from tracellm.lab.grading import Grade, grade
from tracellm.lab.lab import find_lab
from tracellm.lab.labs.lab00_read_a_run.checks import QUESTIONS
from tracellm.lab.labs.lab00_read_a_run.runs import make_numbers, make_run
from tracellm.lab.sandbox.limits import Limits

DIAGRAM = """\
sequenceDiagram
    Script->>LLM: generate
    LLM->>LLMEngine: add_request
    LLMEngine->>InprocClient: add_request
    InprocClient->>EngineCore: add_request
    EngineCore->>Scheduler: add_request
    LLM->>LLMEngine: step
    LLMEngine->>InprocClient: get_output
    InprocClient->>EngineCore: step
    EngineCore->>Scheduler: schedule
    EngineCore->>UniProcExecutor: execute_model
    UniProcExecutor->>GPUModelRunner: execute_model
    GPUModelRunner->>Model: forward
    GPUModelRunner->>Sampler: forward
    EngineCore->>Scheduler: update_from_output
    LLMEngine->>OutputProcessor: process_outputs
"""

SEEDS = ("1", "2", "3")

LIMITS = Limits(case_seconds=60, total_seconds=120, start_seconds=60)
"""Limits that hold on a busy machine too; the process only reads two files."""


def start(path: Path, seed: str) -> LabFolder:
    """Make a student's folder."""
    lab = find_lab(0)
    assert lab is not None
    return make_folder(lab, path, "en", seed=seed)


def fill(folder: LabFolder, answers: str, diagram: str = DIAGRAM) -> Grade:
    """Write both sheets, and grade them."""
    (folder.path / "answers.toml").write_text(answers, encoding="utf-8")
    (folder.path / "diagram.mmd").write_text(diagram, encoding="utf-8")
    return grade(folder.lab, folder.path, limits=LIMITS)


def answers_of(seed: str) -> str:
    """Return the right answers of a seed as an answer sheet."""
    return "\n".join(f"{question.key} = {question.answer(make_run(seed))!r}" for question in QUESTIONS)


def test_the_untouched_sheets_fail_every_check(tmp_path: Path) -> None:
    """A new folder has the questions with the numbers of its seed, and no check passes on it."""
    folder = start(tmp_path / "lab", "1")
    sheet = (folder.path / "answers.toml").read_text(encoding="utf-8")
    assert [question.key for question in QUESTIONS if question.ask(make_numbers("1"), "en") not in sheet] == []
    graded = grade(folder.lab, folder.path, limits=LIMITS)
    assert graded.passed == 0
    assert graded.first_failure is not None
    assert "not answered yet" in graded.first_failure.failure.en


@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_pass_and_copied_ones_do_not(seed: str, tmp_path: Path) -> None:
    """Right answers and a good diagram pass; of another seed's answers, at least 8 of 12 are wrong."""
    folder = start(tmp_path / "lab", seed)
    graded = fill(folder, answers_of(seed))
    failed = graded.first_failure
    assert failed is None, failed and failed.failure.en
    for other in SEEDS:
        if other != seed:
            copied = fill(folder, answers_of(other))
            assert sum(len(result.failed) for result in copied.results) >= 8
            assert len(copied.results[-1].failed) == 0


def test_a_wrong_answer_is_explained_by_the_run(tmp_path: Path) -> None:
    """The message has the student's answer, and request, step and cause in the run."""
    folder = start(tmp_path / "lab", "1")
    graded = fill(folder, answers_of("1").replace("preempted_request = '", "preempted_request = '9"))
    (failed,) = [case for result in graded.results for case in result.failed]
    run = make_run("1")
    step = next(step for step in run.steps if step.preempted)
    assert failed.failure.en.startswith("preempted_request: you answered 9")
    assert f"request {step.preempted[0]} was the first to be preempted, in step {step.index}" in failed.failure.en
    assert f"step {step.index}" in failed.failure.zh


def test_other_forms_of_an_answer_pass(tmp_path: Path) -> None:
    """Numbers may be strings, and capitals and spaces do not matter."""
    folder = start(tmp_path / "lab", "1")
    run = make_run("1")
    steps = len(run.steps)
    graded = fill(
        folder, answers_of("1").replace(f"steps = {steps}", f"steps = ' {steps}'").replace("Inproc", "inproc")
    )
    assert graded.first_failure is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("EngineCore->>Scheduler: schedule", "InprocClient->>Scheduler: schedule"), "line 10"),
        (("    LLM->>LLMEngine: step\n", ""), ""),
        (("GPUModelRunner->>Sampler: forward", "GPUModelRunner->>Sampler: sleep"), "never called"),
        (("    Script->>LLM: generate\n", "    Scheduler->>Scheduler: schedule\n" * 31), "45 calls"),
    ],
)
def test_a_wrong_diagram_is_explained(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    """A call on a wrong lifeline, an invented call and too many calls fail; a call that is left out does not matter."""
    folder = start(tmp_path / "lab", "1")
    graded = fill(folder, answers_of("1"), DIAGRAM.replace(*change))
    failures = [case.failure.en for result in graded.results for case in result.failed]
    assert bool(failures) == bool(message)
    assert all(message in failure for failure in failures[:1])


def test_damaged_sheets_get_a_message(tmp_path: Path) -> None:
    """A sheet that is no TOML, and a diagram without calls, fail with a sentence."""
    graded = fill(start(tmp_path / "lab", "1"), "steps = = 3", "nothing")
    failures = {case.check.name: case.failure.en for result in graded.results for case in result.failed}
    assert len(failures) == len(graded.results)
    assert failures["steps"].startswith("answers.toml is no TOML")
    assert failures["diagram-has-enough-calls"] == "diagram.mmd has no calls yet"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_answer_has_a_reason(lang: str) -> None:
    """Each question has a text in both languages, and its truth names the answer's numbers."""
    run = make_run("1")
    for question in QUESTIONS:
        assert question.ask(run.numbers, lang)
        assert question.truth(run, lang)
