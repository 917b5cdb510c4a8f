"""Twists: each template makes a folder whose reference passes its checks, and the plain engine does not."""

import json
from pathlib import Path

import pytest

from tests.lab.support import folder_of
from tests.lab.test_teaching import pack, run
from tracellm.lab.folder import open_folder
from tracellm.lab.grading import grade
from tracellm.lab.lab import find_lab
from tracellm.lab.sandbox.limits import Limits
from tracellm.lab.teaching.twists import (
    TWIST_FILE,
    Twist,
    TwistError,
    hand_out,
    make_twist,
    open_twist,
    read_handout,
    templates,
)

NAMES = [name for name, (number, _) in templates().items() if find_lab(number) is not None]
SLOW = Limits(case_seconds=30, total_seconds=120, start_seconds=60)


def made(name: str, tmp_path: Path) -> tuple[Path, Twist]:
    """Make a twist's folder and open it."""
    make_twist(name, tmp_path / "twist", "seed")
    return tmp_path / "twist", open_twist(tmp_path / "twist", tmp_path / "work")


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_passes_and_the_plain_engine_fails(name: str, tmp_path: Path) -> None:
    """The twist's own files pass public and hidden cases; the engine's do not, though they pass the plain lab."""
    _, twist = made(name, tmp_path)
    assert twist.reference is not None
    for seed in ("public", "hidden"):
        graded = grade(twist.lab, twist.reference, seed, limits=SLOW, twist=twist)
        failed = graded.first_failure
        assert failed is None, failed.failure.en
    base = find_lab(twist.lab.number)
    assert base is not None
    plain = folder_of(base, tmp_path / "plain")
    for file in twist.lab.files:
        if not (plain / file.name).exists():
            (plain / file.name).write_text(next(one for one in (file,)).path.read_text())
    assert grade(twist.lab, plain, limits=SLOW, twist=twist, shrink=False).first_failure is not None


@pytest.mark.parametrize("name", NAMES)
def test_the_students_folder_has_no_reference(name: str, tmp_path: Path) -> None:
    """Students get the specification, starters and recorded outputs, and are checked without the reference."""
    folder, twist = made(name, tmp_path)
    hand_out(folder, twist, tmp_path / "students", "en")
    given = {path.name: path.read_text() for path in (tmp_path / "students").iterdir()}
    assert given["README.md"].startswith((folder / "README.md").read_text().rstrip())
    for file in twist.lab.files:
        if file.functions:
            assert given[file.name].count("raise NotImplementedError") == len(file.functions)
    opened = open_folder(tmp_path / "students")
    read = read_handout(opened)
    assert read is not None
    assert read.reference is None
    assert grade(read.lab, opened.path, limits=SLOW, twist=read, shrink=False).passed == 0
    for file in twist.lab.files:
        (opened.path / file.name).write_text(file.source())
    graded = grade(read.lab, opened.path, limits=SLOW, twist=read, shrink=False)
    assert graded.passed == graded.total
    with pytest.raises(TwistError):
        grade(read.lab, opened.path, "hidden", limits=SLOW, twist=read)


def test_submissions_are_graded_by_the_twist(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """`grade --twist` gives all points to the twist's reference, and fewer to the plain engine."""
    assert run("twist", "empty-blocks-first", "--out", str(tmp_path / "twist")) == 0
    assert run("hand-out", str(tmp_path / "twist"), "--out", str(tmp_path / "students")) == 0
    twist = open_twist(tmp_path / "twist", tmp_path / "work")
    assert twist.reference is not None
    pack(twist.reference, tmp_path / "submissions" / "right.zip")
    base = find_lab(5)
    assert base is not None
    pack(folder_of(base, tmp_path / "plain"), tmp_path / "submissions" / "plain.zip")
    out = tmp_path / "out" / "grades.csv"
    arguments = ("--seed", "s", "--twist", str(tmp_path / "twist"), "--out", str(out))
    assert run("grade", str(tmp_path / "submissions"), *arguments) == 0
    plain, right = out.read_text().splitlines()[1:]
    assert right.startswith("right,50,20,")
    assert "the free queue is" in plain
    assert "Empty blocks first" in (out.parent / "pages" / "right.html").read_text()
    capfd.readouterr()
    assert run("check", "5", "--dir", str(tmp_path / "students")) == 1
    assert "Public cases: 0 of " in capfd.readouterr().out


def test_a_twist_is_made_once_and_templates_are_listed(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Names of templates are listed by lab; an unknown one, and a folder with content, are refused."""
    assert run("twist") == 0
    assert "empty-blocks-first: Lab 5" in capfd.readouterr().out
    assert run("twist", "no-such", "--out", str(tmp_path / "x")) == 2
    assert run("twist", "empty-blocks-first", "--out", str(tmp_path / "x")) == 0
    assert run("twist", "empty-blocks-first", "--out", str(tmp_path / "x")) == 2
    assert "exists already" in capfd.readouterr().err


def test_a_reference_that_fails_stops_the_grading(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """A teacher's mistake in the reference is told to the teacher, not charged to the students."""
    make_twist("empty-blocks-first", tmp_path / "twist", "seed")
    path = tmp_path / "twist" / "reference" / "block_pool.py"
    path.write_text(path.read_text() + "\nraise ValueError('my mistake')\n")
    base = find_lab(5)
    assert base is not None
    pack(folder_of(base, tmp_path / "plain"), tmp_path / "submissions" / "plain.zip")
    assert run("grade", str(tmp_path / "submissions"), "--seed", "s", "--twist", str(tmp_path / "twist")) == 2
    assert "my mistake" in capfd.readouterr().err


def test_a_damaged_handout_is_refused(tmp_path: Path) -> None:
    """A student's twist.json that is no JSON, or lacks a part, ends in a sentence."""
    folder, twist = made("empty-blocks-first", tmp_path)
    hand_out(folder, twist, tmp_path / "students", "zh")
    for content in ("{", json.dumps({"files": 3})):
        (tmp_path / "students" / TWIST_FILE).write_text(content)
        with pytest.raises(TwistError):
            read_handout(open_folder(tmp_path / "students"))
