"""The example of sampling: its output, and its explanation."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tracellm.report.steps_table import steps_table
from tracellm.trace.run_folder import RunFolder

EXAMPLE = Path(__file__).parents[2] / "examples" / "sampling.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folder of the example, with its output in `stdout.txt` beside it."""
    folder = tmp_path_factory.mktemp("sampling") / "run"
    command = [sys.executable, "-m", "tracellm", "run", "--explain", "--quiet", "--out", str(folder), str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8")
    assert (done.returncode, done.stderr) == (0, "")
    (folder.parent / "stdout.txt").write_text(done.stdout, encoding="utf-8")
    return folder


def test_it_prints_what_it_promises(folder: Path):
    """It prints three outputs, the most probable tokens, two outputs that a penalty changes, and JSON of a schema."""
    lines = (folder.parent / "stdout.txt").read_text(encoding="utf-8").splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        *(f"output {index}" for index in range(3)),
        *["likeliest"] * 3,
        "frequency_penalty=0.0",
        "frequency_penalty=2.0",
        "JSON",
    ]
    assert lines[6].partition(":")[2] != lines[7].partition(":")[2]
    answer = json.loads(lines[8].partition(":")[2])
    assert answer.keys() == {"city", "old"}
    assert answer["city"] in ("Paris", "Rome", "Oslo")


def test_its_explanation_tells_what_happened(folder: Path):
    """The steps name each request's processors, and the first request has three outputs."""
    run = RunFolder.open(folder)
    assert run.problems == []
    table = steps_table(run.trace)
    for said in ("requests 0_0, 1_0, 2_0 joined", "after temperature, top_k", "after frequency_penalty"):
        assert said in table
    assert "after structured_outputs" in table


def test_its_diagram_is_mermaid(folder: Path, parse_mermaid: Callable[[str], object]):
    """Mermaid accepts the diagram, in which a step computes and then samples."""
    diagram = (folder / "sequence.mmd").read_text(encoding="utf-8")
    parse_mermaid(diagram)
    assert "sample_tokens" in diagram
