"""The benchmarks of probes and their tables in the documentation."""

import json
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.compared.process import EngineProcess
from benchmarks.overhead import RUNS, overhead_table
from benchmarks.pages import COST_PAGES, table, write_pages
from benchmarks.probe_cost import cost_tables
from benchmarks.probe_cost_names import COST_HEADS, GROUPS, LANGUAGES, NAMES
from tracellm.bench.workload import Workload

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures() -> Any:
    """Figures of one short round of the benchmark."""
    short = ["--calls", "5", "--repeats", "1", "--later", "50", "--held", "20", "--burst", "100"]
    done = subprocess.run(
        [sys.executable, "benchmarks/probe_cost.py", "--json", *short],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout)


def structure(text: str) -> list[str]:
    """Return the first cell of every row of the tables."""
    return re.findall(r"^\| ?(.*?) \|", text, re.MULTILINE)


def test_every_row_is_measured(figures: Any):
    """The benchmark has a figure for each row of the table, for bytes kept, and for later work."""
    assert set(figures["rows"]) == {f"{group}/{name}" for group, names in NAMES.items() for name in names}
    assert all(row["ns"] > 0 and row["low"] <= row["ratio"] <= row["high"] for row in figures["rows"].values())
    held = {name for name, row in figures["rows"].items() if row["bytes"] is not None}
    assert {"function/tuple", "function/probe", "function/null", "coroutine/probe"} <= held
    assert figures["later"]["spans"] == 51  # the calls, and the script itself
    assert figures["lost"] == {"burst": 100, "nowhere": 0, "file": 0}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_has_the_benchmarks_rows(figures: Any, lang: str):
    """The page has the rows and columns that the benchmark writes."""
    page = COST_PAGES[lang].read_text(encoding="utf-8")
    shown = re.search(r"<!-- made: probe-cost -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert shown is not None
    made = cost_tables(figures, lang)
    assert structure(shown[1]) == structure(made)
    assert shown[1].splitlines()[0] == made.splitlines()[0]
    assert len(structure(made)) == 2 + len(GROUPS) + sum(map(len, NAMES.values()))
    assert made.splitlines()[0].count("|") == len(COST_HEADS) + 1


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize(("place", "runs"), [("overhead", ["tiny", "qwen2"]), ("vllm-overhead", ["vllm"])])
def test_the_page_tells_of_whole_runs(place: str, runs: list[str], lang: str):
    """The tables of whole runs have the rows of benchmarks/overhead.py: each engine, model and detail."""
    page = COST_PAGES[lang].read_text(encoding="utf-8")
    shown = re.search(rf"<!-- made: {place} -->\n(.*?)<!-- end -->", page, re.DOTALL)
    assert shown is not None
    row = {"speed": 1.0, "slower": 1.0, "low": 1.0, "high": 1.0, "calls": 1}
    row |= {"us_per_call": 1.0, "longest_ms": 1.0, "us_per_span": 1.0}
    made = overhead_table({name: dict.fromkeys(RUNS[name].ways, row) for name in runs}, lang, "note")
    assert structure(shown[1]) == structure(made)


def test_what_recording_costs_is_measured_by_a_process_recorded_from_its_start(tmp_path: Path):
    """A recorded engine process reports its recording cost, and generates the tokens of an unrecorded one."""
    workload = Workload([[5, 6, 7]], [3])
    settings = {"model": str(ROOT / "tracellm" / "tiny"), "dtype": "float32", "max_model_len": 64, "max_num_seqs": 1}
    settings |= {"max_num_batched_tokens": 64, "kv_cache_bytes": 8 << 20, "text": True}
    with ExitStack() as stack:
        bare, recorded = (
            stack.enter_context(
                EngineProcess("tracellm_engine", sys.executable, {**settings, "recorded": way}, 1, tmp_path / str(way))
            )
            for way in (None, "step")
        )
        outputs = [engine.turn("", workload)["token_ids"] for engine in (bare, recorded)]
        cost = recorded.cost()
    assert outputs[0] == outputs[1]
    assert cost["calls"] > 10
    assert cost["spans"] >= cost["calls"]


def test_a_page_without_a_place(tmp_path: Path):
    """Figures replace those in their place of the page; a page without the place is refused."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- made: x -->\nold\n<!-- end -->\nafter\n")
    write_pages({"en": page}, "x", {"en": table(["a", "b"], [["1", "2"]])})
    assert page.read_text() == "before\n<!-- made: x -->\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n<!-- end -->\nafter\n"
    with pytest.raises(ValueError, match="no place for y"):
        write_pages({"en": page}, "y", {"en": ""})
