"""`tracellm lab`: a student's way through lab 5, and the refusals."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.lab.support import mutant_folder
from tracellm.lab.exposing import given_mutants
from tracellm.lab.folder import open_folder
from tracellm.lab.lab import find_lab, load_labs
from tracellm.lab.scoring import asked
from tracellm.report.facts.engines import engines
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder

_FOLDER = "lab-05-block-pool"
_CHECK = "any-operations-keep-the-invariant"


@pytest.fixture
def lab(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Run `tracellm lab` in a directory of its own; return its status and all output."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        said = command("lab", *arguments)
        return said.status, said.out + said.err

    return call


@pytest.fixture
def started(lab: Callable[..., tuple[int, str]], tmp_path: Path) -> Path:
    """Start lab 5; return its folder."""
    assert lab("start", "5")[0] == 0
    return tmp_path / _FOLDER


def solve(folder: Path, *files: str) -> None:
    """Write the engine's own files, or some of them, into a lab's folder."""
    known = find_lab(5)
    assert known is not None
    for file in known.files:
        if not files or file.name in files:
            (folder / file.name).write_text(file.source(), encoding="utf-8")


def test_the_list_has_every_lab(lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """`lab list` has a row for each lab, in both languages, and the state of those in the directory."""
    status, out = lab("list")
    assert status == 0
    assert [one.title.en for one in load_labs() if one.title.en not in out] == []
    assert f"started, in {_FOLDER}" in out
    assert "块池" in lab("list", "--lang", "zh")[1]


def test_a_lab_starts_with_the_invariant(lab: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """`lab start` writes starters and README, states the invariant, and refuses to overwrite them."""
    status, out = lab("start", "5")
    assert status == 0
    assert "Each block but the null block is either in the free queue or owned" in out
    assert "raise NotImplementedError  # BlockPool.touch" in (tmp_path / _FOLDER / "block_pool.py").read_text()
    status, out = lab("start", "5")
    assert status == 2
    assert f"{_FOLDER} exists" in out


def test_check_names_what_is_missing(lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """`lab check` fails on the starter, names the function that is not written, and what was not checked."""
    status, out = lab("check", "5")
    assert status == 1
    assert "is not written yet (kv_cache_utils.py:" in out
    assert "Public cases: 0 of" in out
    assert "Not checked: hidden cases (20 points)" in out


def test_check_shows_the_smallest_case(lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """A wrong result is described with blocks and requests, for a case made small; --case prints that case."""
    solve(started)
    path = started / "block_pool.py"
    path.write_text(path.read_text().replace("self.free_block_queue.append_n(freed)", "pass"), encoding="utf-8")
    status, out = lab("check", "5")
    assert status == 1
    assert "made smaller" in out
    assert "has no owner and is not in the free queue: it is lost" in out
    failed = next(line.split()[-1] for line in out.splitlines() if line.startswith("Details: "))
    detailed = lab("check", "5", "--case", failed)[1]
    assert '"operations": [' in detailed


def test_a_solved_lab_passes(lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """All public cases pass with the engine's own code, `list` shows it, and `reveal` prints that code only now."""
    assert lab("reveal", "5")[0] == 2
    assert "def get_new_blocks" not in lab("reveal", "5")[1]
    solve(started)
    status, out = lab("check", "5", "--lang", "zh")
    assert status == 0
    assert "50 分" in out
    total = open_folder(started).score["total"]
    assert f"{total} of {total} cases, in {_FOLDER}" in lab("list")[1]
    assert "self.free_block_queue.append_n(freed)" in lab("reveal", "5")[1]


def test_a_case_can_be_printed_and_exposes_a_broken_engine(
    lab: Callable[..., tuple[int, str]], started: Path, tmp_path: Path
) -> None:
    """A changed public case exposes a broken engine; the public case is refused, and a harmless one exposes nothing."""
    known = find_lab(5)
    assert known is not None
    case = lab("check", "5", "--case", f"{_CHECK}:1", "--json")[1]
    Path("case.json").write_text(case, encoding="utf-8")
    status, out = lab("expose", "5", "1", "case.json")
    assert status == 2
    assert f"this is a public case, {_CHECK}:1; change it" in out
    entry = json.loads(case)
    shorter = entry["case"] | {"operations": entry["case"]["operations"][:-1]}
    Path("case.json").write_text(json.dumps(entry | {"case": shorter}), encoding="utf-8")
    status, out = lab("expose", "5", "case.json")
    assert status == 0
    listed = lab("expose", "5")[1]
    for number in range(1, len(given_mutants(known)) + 1):
        is_exposed = f"Broken engine {number} is exposed:" in out
        assert is_exposed != (f"Broken engine {number} behaves correctly" in out)
        assert (f"broken engine {number}: exposed" in listed) == is_exposed
    Path("case.json").write_text(json.dumps(entry | {"case": entry["case"] | {"operations": []}}), encoding="utf-8")
    status, out = lab("expose", "5", "1", "case.json")
    assert (status, out.strip()) == (1, "Broken engine 1 behaves correctly on this case.")


def test_predictions_count_once(lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """The first answer to a question counts, answers are revealed after the last one, with the reason."""
    questions = asked(open_folder(started))
    answers = [f"{one.name}={one.answer(case)}" for one, case in questions]
    out = lab("predict", "5", *answers[:-1])[1]
    assert "✓" not in out
    assert lab("predict", "5", answers[0])[0] == 2
    assert lab("predict", "5", f"{questions[-1][0].name}=no idea")[0] == 2
    out = lab("predict", "5", f"{questions[-1][0].name}=-1")[1]
    assert out.count("✓") == len(questions) - 1
    one, case = questions[-1]
    assert f"✗ {one.answer(case)}: {one.reason(case, 'en')}" in out


def test_hints_come_one_by_one(lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """Each `lab hint` prints the next of three; --level prints any."""
    shown = [lab("hint", "5")[1] for _ in range(3)]
    assert [f"Hint {number} of 3:" in out for number, out in enumerate(shown, start=1)] == [True] * 3
    assert lab("hint", "5", "--level", "1")[1] == shown[0]


def test_explain_records_the_students_code(lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """The recorded run executes the student's files under the engine's names, beside a run of the engine itself."""
    solve(started)
    status, out = lab("explain", "5")
    assert status == 0, out
    runs = started / "runs" / "script"
    yours, reference = (RunFolder.open(runs / name).trace for name in ("yours", "reference"))
    files = [{str(span.attributes.get(names.CODE_FILE)) for span in trace.spans} for trace in (yours, reference)]
    assert "block_pool.py" in files[0] - files[1]
    assert "tracellm/engine/core/kv_cache/block_pool.py" in files[1] - files[0]
    assert len(engines(yours)[0].steps) == len(engines(reference)[0].steps)
    assert (runs / "diff.html").is_file()
    assert lab("predict", "5", "next-block=1")[0] == 2  # too late


def test_explain_prints_the_traceback_of_a_run_that_fails(lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """If the student's code raises, `lab explain` prints the line in the student's file and the exception."""
    solve(started)
    path = started / "block_pool.py"
    path.write_text(path.read_text().replace("self.free_block_queue.append_n(freed)", "1 / 0"), encoding="utf-8")
    status, out = lab("explain", "5")
    assert status == 1
    assert "block_pool.py" in out
    assert "    1 / 0\n" in out
    assert "ZeroDivisionError: division by zero" in out


def test_report_names_each_folder(lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """`lab report` has a row for each folder, two of one lab included."""
    assert lab("start", "5", "--dir", "again")[0] == 0
    status, out = lab("report")
    assert status == 0
    assert [line.split()[1] for line in out.splitlines() if line.lstrip().startswith("5 ")] == ["again", _FOLDER]


def test_submit_packs_the_files(lab: Callable[..., tuple[int, str]], started: Path, tmp_path: Path) -> None:
    """The zip file has the files that students write, and the state; the report counts all folders."""
    assert lab("submit", "5")[0] == 0
    with zipfile.ZipFile(tmp_path / f"{_FOLDER}.zip") as archive:
        assert set(archive.namelist()) >= {"block_pool.py", "kv_cache_utils.py", "lab.json"}
    status, out = lab("report")
    assert status == 0
    assert "Hidden cases (20 points)" in out


def test_a_broken_engine_shows_in_the_check(lab: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """The files of a mutant are checked as a student's are."""
    known = find_lab(5)
    assert known is not None
    mutant_folder(known, known.mutants[0], tmp_path / _FOLDER)
    status, out = lab("check", "5")
    assert status == 1
    assert "✗" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "99"), "there is no lab 99"),
        (("check", "5", "--dir", "nowhere"), "`tracellm lab start 5` makes its folder"),
        (("check", "5", "--case", "no-such"), "no check no-such; the checks are"),
        (("check", "5", "--case", f"{_CHECK}:999"), "the number is 1 to"),
        (("check", "5", "--json"), "--json needs --case"),
        (("expose", "5", "99", "case.json"), "there is no broken engine 99"),
        (("expose", "5", "1"), "give one number and one file with a case"),
        (("expose", "5", "1", "missing.json"), "cannot read missing.json"),
        (("expose", "5", "1", "bad.json"), "bad.json is not a case"),
        (("predict", "5", "nonsense"), "is not an answer; write NAME=ANSWER"),
        (("hint", "5", "--level", "4"), "4"),
        (("museum", "999"), "there is no exhibit 999"),
    ],
)
def test_a_mistake_gets_one_sentence(
    arguments: tuple[str, ...], words: str, lab: Callable[..., tuple[int, str]], started: Path
) -> None:
    """Wrong numbers, names and files get exit status 2 and a sentence that names them, without a traceback."""
    Path("bad.json").write_text("[1]", encoding="utf-8")
    status, out = lab(*arguments)
    assert status == 2
    assert words in out
    assert "Traceback" not in out


@pytest.mark.parametrize("damage", ["{", "[]", '{"lab": 5}', '{"lab": 99, "seed": "1", "files": {}}'])
def test_a_damaged_folder_is_named(damage: str, lab: Callable[..., tuple[int, str]], started: Path) -> None:
    """A damaged lab.json, or that of a lab which does not exist, gets a sentence."""
    (started / "lab.json").write_text(damage, encoding="utf-8")
    status, out = lab("check", "5")
    assert status == 2
    assert "lab" in out
    assert "Traceback" not in out
