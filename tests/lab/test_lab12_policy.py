"""The leaderboard of lab 12, and its workloads."""

import json
from pathlib import Path

import pytest

from tests.lab.support import SOLUTIONS, folder_of, solution_folder
from tracellm.lab.checks import make_cases
from tracellm.lab.lab import find_lab
from tracellm.lab.labs.lab12_policy.checks import CHECKS, Workload, run_fcfs
from tracellm.lab.labs.lab12_policy.leaderboard import Entry, main, write_board
from tracellm.lab.labs.lab12_policy.workloads import MAX_NUM_SEQS, REQUEST, STEP, TOKEN, alone, measure, run_workload
from tracellm.lab.source import put_bodies

LAB = find_lab(12)
assert LAB is not None
WORKLOADS = [check for check in CHECKS if isinstance(check, Workload)]


def test_a_request_alone_takes_what_the_formula_says() -> None:
    """A request in an empty engine has a slowdown of 1: two chunks of its prompt, and a step per further token."""
    request = {"at": 0.5, "prompt": 300, "max_tokens": 3, "output": 3}
    case = {"num_blocks": 40, "requests": [request]}
    assert alone(request) == pytest.approx(4 * (STEP + REQUEST) + (300 + 2) * TOKEN)
    assert measure(case, run_fcfs(case))["slowdown"] == pytest.approx(1)


@pytest.mark.parametrize("check", WORKLOADS, ids=lambda check: check.name)
def test_shares_add_up_to_the_time_of_the_steps(check: Workload) -> None:
    """Under FCFS every request ends, and no tenant's share is longer than the run."""
    for case in make_cases(check, "7"):
        output = run_fcfs(case)
        assert output["problem"] is None
        assert [got for _, _, got in output["requests"]] == [one["output"] for one in case["requests"]]
        assert 0 < sum(output["shares"].values()) <= measure(case, output)["total"]


def test_the_tight_workload_preempts() -> None:
    """The workload with few blocks puts requests back into the queue, which the others do not."""
    from tracellm.engine.core.request import Request
    from tracellm.engine.core.sched.request_queue import FCFSRequestQueue

    returned: list[str] = []

    class Counting(FCFSRequestQueue):
        def prepend_request(self, request: Request) -> None:
            returned.append(request.request_id)
            super().prepend_request(request)

    counts = {}
    for check in WORKLOADS:
        returned.clear()
        for case in make_cases(check, "public"):
            run_workload(case, Counting)
        counts[check.short_en] = len(returned)
    assert counts.pop("mixed") > MAX_NUM_SEQS
    assert set(counts.values()) == {0}


def test_the_leaderboard_is_sorted_and_keeps_one_entry_per_name(tmp_path: Path) -> None:
    """Entries are sorted by score and name; an entry of the same name is replaced; a damaged file begins anew."""
    (tmp_path / "leaderboard.json").write_text("[1")
    for name, score in (("b", 90.0), ("c", 120.0), ("a", 90.0), ("b", 95.0)):
        write_board(tmp_path, [Entry(name, score, 3, {})])
    board = json.loads((tmp_path / "leaderboard.json").read_text())
    assert [(entry["name"], entry["score"]) for entry in board] == [("c", 120.0), ("b", 95.0), ("a", 90.0)]
    rows = (tmp_path / "leaderboard.md").read_text().splitlines()
    assert [row.split(" | ")[1] for row in rows[2:]] == ["c", "b", "a"]


def test_a_teacher_gets_a_leaderboard_of_all_submissions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All submissions are graded with the teacher's seed; one that loses requests is left out and named."""
    assert LAB is not None
    (file,) = LAB.files
    folder_of(LAB, tmp_path / "all" / "ann")
    solution_folder(LAB, SOLUTIONS / LAB.folder.name / "ratio", tmp_path / "all" / "ben")
    loses = put_bodies(file.starter(), {})
    folder_of(LAB, tmp_path / "all" / "cem", {file.module: loses})
    (tmp_path / "out").mkdir()
    main([str(tmp_path / "all"), "--seed", "teacher", "--out", str(tmp_path / "out")])
    board = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert {entry["name"] for entry in board} == {"ann", "ben", "FCFS"}
    assert board[-1]["name"] == "FCFS"
    assert "cem" in capsys.readouterr().out
