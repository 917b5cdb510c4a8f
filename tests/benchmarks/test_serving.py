"""benchmarks/serving.py: the order of the servers, the ratios, and a measurement by a real vLLM's client."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.serving import FIGURES, Load, rows, turns
from tests.real_vllm import require_vllm

ROOT = Path(__file__).parents[2]


def test_each_round_begins_with_the_next_server() -> None:
    """Every server is measured once in a round, and no server is always the first."""
    assert list(turns(["a", "b", "c"], 4)) == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_ratios_are_medians_of_rounds() -> None:
    """A ratio compares figures of one round, and the table has the median of all rounds; vLLM itself has none."""
    ours, theirs = [10.0, 40.0, 30.0], [20.0, 20.0, 10.0]
    results = {
        name: [dict.fromkeys(FIGURES, value) for value in values]
        for name, values in (("tracellm", ours), ("vllm", theirs))
    }
    first, second = rows(Load(4, None, 0), results)
    assert first == ["4 concurrent", "tracellm", *["30.0 (2.00×)"] * len(FIGURES)]
    assert second == ["4 concurrent", "vllm", *["20.0"] * len(FIGURES)]


@pytest.mark.parametrize(
    ("load", "text", "options"),
    [
        (Load(16, None, 0), "16 concurrent", ["--request-rate=inf", "--max-concurrency=16"]),
        (Load(None, 2.0, 1), "2.00 a second, neighbours: 1", ["--request-rate=2.0"]),
    ],
)
def test_a_load(load: Load, text: str, options: list[str]) -> None:
    """A load has a title for the table and the options of `vllm bench serve`."""
    assert str(load) == text
    assert load.options == options


def test_the_client_of_a_real_vllm_measures_the_server() -> None:
    """`vllm bench serve` measures a `tracellm serve` under two concurrent requests, and /proc its CPU time."""
    options = ["--servers=tracellm", "--concurrency=2", "--repeats=1", "--requests=32", "--output-len=3", "--json"]
    command: list[str | Path] = [
        sys.executable,
        ROOT / "benchmarks" / "serving.py",
        f"--vllm={require_vllm()}",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]["tracellm"]
    assert result.keys() == FIGURES.keys()
    assert min(result.values()) > 0
