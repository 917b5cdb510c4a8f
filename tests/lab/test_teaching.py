"""The teacher's commands: submissions are read without trust, marked, shown, and compared."""

import csv
import io
import json
import zipfile
from pathlib import Path

import pytest

from tests.lab.support import folder_of, mutant_folder, solution_folder, solutions
from tracellm.cli.app import run_command
from tracellm.lab.exposing import CaseError, expose, given_mutants
from tracellm.lab.folder import make_folder
from tracellm.lab.lab import Lab, find_lab
from tracellm.lab.teaching.marking import mark
from tracellm.lab.teaching.similarity import compare_submissions
from tracellm.lab.teaching.submissions import Submission, claimed_lab, find_submissions, stage

FOUND = find_lab(5)
assert FOUND is not None
LAB: Lab = FOUND


def pack(folder: Path, target: Path, state: object = None, **extra: bytes) -> Path:
    """Write the lab's files of a folder into a zip file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as archive:
        for file in LAB.files:
            archive.write(folder / file.name, file.name)
        archive.writestr("lab.json", json.dumps({"lab": 5, "seed": "0a1b2c3d"} if state is None else state))
        for name, content in extra.items():
            archive.writestr(name.replace("__", "."), content)
    return target


def run(*arguments: str) -> int:
    """Run `tracellm lab` and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        run_command(["lab", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def handed_in(tmp_path: Path) -> Path:
    """Return a directory with submissions: right ones, broken ones, and some that are no submissions at all."""
    out = tmp_path / "submissions"
    pack(solution_folder(LAB, solutions(LAB)[0], tmp_path / "a"), out / "ada.zip")
    mutant = next(one for one in LAB.mutants if one.name == "touch-leaves-queue")
    pack(mutant_folder(LAB, mutant, tmp_path / "b"), out / "=bob.zip", {"lab": 5, "seed": "x" * 9000, "answers": [1]})
    (out / "broken.zip").write_bytes(b"PK\x03\x04 no zip file")
    (out / "empty").mkdir()
    folder_of(LAB, out / "eve 2")
    (out / "notes.txt").write_text("not a submission")
    return out


def test_grading_writes_a_row_and_a_page_for_each(
    handed_in: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    """Broken submissions get zero and a verdict; the others are marked as if those were not there, twice the same."""
    written = []
    for name in ("one", "two"):
        assert run("grade", str(handed_in), "--seed", "s", "--out", str(tmp_path / name / "grades.csv")) == 0
        written.append({path.name: path.read_text() for path in (tmp_path / name).rglob("*.*") if path.is_file()})
    assert written[0] == written[1]
    assert "Isolation:" in capfd.readouterr().out
    rows = {row["student"]: row for row in csv.DictReader(io.StringIO(written[0]["grades.csv"]))}
    assert list(rows) == ["_bob", "ada", "broken", "empty", "eve_2"]
    assert (rows["ada"]["public"], rows["ada"]["hidden"], rows["ada"]["verdict"]) == ("50", "20", "all cases passed")
    assert 0 < float(rows["_bob"]["public"]) < 50
    assert "is in the free queue, and request" in rows["_bob"]["verdict"]
    assert "cannot be read" in rows["broken"]["verdict"]
    assert rows["empty"]["verdict"] == "kv_cache_utils.py is missing"
    assert {rows[name]["public"] for name in ("broken", "empty")} == {"0"}
    assert set(written[0]) == {"grades.csv", "similarity.csv", "index.html", *(f"{name}.html" for name in rows)}
    for page in ("_bob.html", "index.html"):
        assert "http" not in written[0][page].replace("http-equiv", "")
        assert "<script" not in written[0][page]


def test_a_page_is_in_the_readers_language(handed_in: Path, tmp_path: Path) -> None:
    """`--lang zh` writes the CSV's verdicts and the pages in Chinese."""
    out = tmp_path / "out" / "grades.csv"
    assert run("grade", str(handed_in), "--seed", "s", "--out", str(out), "--lang", "zh") == 0
    assert "全部用例通过" in out.read_text()
    assert "隐藏用例" in (out.parent / "pages" / "_bob.html").read_text()


def test_the_lab_must_be_clear(handed_in: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    """Submissions that name several labs are graded only with --lab; none, and no seed, are refused."""
    pack(folder_of(LAB, tmp_path / "c"), handed_in / "zoe.zip", {"lab": 0})
    assert run("grade", str(handed_in), "--seed", "s") == 2
    assert "give --lab N" in capfd.readouterr().err
    (tmp_path / "none").mkdir()
    assert run("grade", str(tmp_path / "none"), "--seed", "s") == 2
    assert run("grade", str(handed_in), "--lab", "5") == 2
    assert "need a seed" in capfd.readouterr().err


def test_another_lab_in_lab_json_changes_nothing(tmp_path: Path) -> None:
    """The claim is noted, and the lab that the teacher grades is graded."""
    state = {"lab": 0, "seed": "0a1b2c3d", "files": {"os": "x.py"}, "hints": -1, "score": {"passed": 99}}
    path = pack(folder_of(LAB, tmp_path / "a"), tmp_path / "s.zip", state)
    found = mark(Submission(path, "s"), LAB, None)
    assert found.score.public.done == found.score.public.total
    assert "lab.json names lab 0; graded as lab 5" in [note.en for note in found.notes]


@pytest.mark.parametrize("seed", [None, 7, "public", "0" * 9, ["0a1b2c3d"]])
def test_predictions_need_a_seed_of_the_command(tmp_path: Path, seed: object) -> None:
    """Answers under a seed that `lab start` cannot have drawn do not count."""
    state = {"lab": 5, "seed": seed, "answers": {"one": "1", "two": [2], "three": "x" * 999}}
    staged = stage(
        Submission(pack(folder_of(LAB, tmp_path / "a"), tmp_path / "s.zip", state), "s"), LAB, tmp_path / "b"
    )
    assert staged.folder.answers == {}
    assert "seed" in [problem.key for problem in staged.problems]


def test_answers_of_odd_types_are_left_out(tmp_path: Path) -> None:
    """Only short texts and whole numbers are answers."""
    answers = {"a": "1", "b": 2, "c": [3], "d": None, "e": 1.5, "f": True, "g": "x" * 999, "h": {"i": 1}}
    state = {"lab": 5, "seed": "0a1b2c3d", "answers": answers}
    staged = stage(
        Submission(pack(folder_of(LAB, tmp_path / "a"), tmp_path / "s.zip", state), "s"), LAB, tmp_path / "b"
    )
    assert staged.folder.answers == {"a": "1", "b": 2}


def test_names_that_lead_out_of_a_zip_file_are_not_read(tmp_path: Path) -> None:
    """Entries with `..`, absolute names and links are not the lab's files; nothing is unpacked."""
    path = tmp_path / "s.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("../block_pool.py", "/block_pool.py", "a/b/block_pool.py", "..\\block_pool.py"):
            archive.writestr(name, "evil = 1")
        link = zipfile.ZipInfo("kv_cache_utils.py")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("lab.json", "[" * 100_000)
    staged = stage(Submission(path, "s"), LAB, tmp_path / "b")
    assert sorted(item.name for item in (tmp_path / "b").iterdir()) == ["lab.json"]
    assert [problem.key for problem in staged.problems] == ["no_file", "missing", "other_lab"]
    assert claimed_lab(Submission(path, "s")) is None


def test_links_and_large_files_of_a_folder_are_not_read(tmp_path: Path) -> None:
    """A link, a directory or a file of many megabytes in a file's place is a problem in words."""
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "block_pool.py").symlink_to("/etc/passwd")
    (folder / "kv_cache_utils.py").write_bytes(b"#" * (2 << 20))
    (folder / "exposed.json").mkdir()
    staged = stage(Submission(folder, "s"), LAB, tmp_path / "b")
    assert sorted(problem.key for problem in staged.problems) == ["no_file", "no_file", "other_lab", "too_large"]


def test_a_zip_bomb_is_read_up_to_the_limit(tmp_path: Path) -> None:
    """A file that unpacks to a hundred megabytes is refused."""
    path = tmp_path / "s.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("block_pool.py", b"#" * (100 << 20))
    keys = [problem.key for problem in stage(Submission(path, "s"), LAB, tmp_path / "b").problems]
    assert "too_large" in keys


def test_names_are_safe_and_unique(tmp_path: Path) -> None:
    """Names of files become names of pages: no separators, no formulas, no `index`, none twice."""
    for name in ("=1+2.zip", "index.zip", "a b.zip", "a_b.zip", "李雷.zip", "x.ZIP", ".hidden.zip"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "link").symlink_to("/etc")
    names = [submission.name for submission in find_submissions(tmp_path)]
    assert sorted(names) == ["_1+2", "a_b", "a_b-2", "index_", "x", "李雷"]


def test_unusual_code_is_noted(tmp_path: Path) -> None:
    """Names that a lab does not need are listed for the teacher, and change no points."""
    pool = LAB.files[1]
    sources = {pool.module: pool.source() + "\nimport ctypes\nimport sys\nsys.modules.get('x')\n"}
    path = pack(folder_of(LAB, tmp_path / "a", sources), tmp_path / "s.zip")
    found = mark(Submission(path, "s"), LAB, None)
    assert found.score.public.earned == 50
    assert [note.en.split(",")[0] for note in found.notes] == ["uses ctypes", "uses modules"]


@pytest.mark.parametrize(
    "case",
    [None, 7, [], {}, {"num_blocks": 10**30, "operations": []}, {"num_blocks": "8", "operations": 3}, "\ud800"],
)
def test_an_odd_case_exposes_nothing(case: object) -> None:
    """Cases of another shape prove nothing, and do not stop the grader."""
    with pytest.raises(CaseError):
        expose(LAB, given_mutants(LAB)[0], LAB.checks[-1].name, case)


def test_renamed_and_reordered_code_is_found(tmp_path: Path) -> None:
    """Other names, order and layout do not hide a copy; independent solutions are not alike."""
    sources = {
        path.name: {file.module: (path / file.name).read_text() for file in LAB.files} for path in solutions(LAB)
    }
    seeds = {name: f"{number:08}" for number, name in enumerate(sources)}
    assert compare_submissions(LAB, sources, seeds) == []
    queue, pool = (file.module for file in LAB.files)
    copied = sources["terse"][pool].replace("one", "element").replace("real", "those").replace("known", "was")
    methods = copied.split("    def ")
    copied = "# my own work\n" + "    def ".join([methods[0], *(f"{part.rstrip()}\n\n\n" for part in methods[:0:-1])])
    sources["copy"] = {queue: sources["terse"][queue].replace("left", "a").replace("right", "b"), pool: copied}
    seeds["copy"] = seeds["lists"]
    pairs = compare_submissions(LAB, sources, seeds)
    assert [(pair.one, pair.other, pair.reason) for pair in pairs] == [
        ("copy", "terse", "code"),
        ("copy", "lists", "seed"),
    ]
    assert pairs[0].share > 0.9


@pytest.mark.parametrize(("lang", "words"), [("en", "Never write"), ("zh", "都不要编写")])
def test_a_folder_has_a_page_for_assistants(tmp_path: Path, lang: str, words: str) -> None:
    """AGENTS.md lists the functions that are the student's to write, and the invariant."""
    make_folder(LAB, tmp_path / "lab", lang)
    page = (tmp_path / "lab" / "AGENTS.md").read_text()
    assert words in page
    assert LAB.invariant[lang] in page
    assert all(f"`{name}`" in page for file in LAB.files for name in file.functions)
    assert "$" not in page
