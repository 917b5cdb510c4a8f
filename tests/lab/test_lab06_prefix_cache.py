"""Tests of lab 6's recordings."""

import json
from pathlib import Path

from tracellm.lab.labs.lab06_prefix_cache.running import recordings

FIXTURE = Path(__file__).parents[1] / "fixtures" / "scheduler-cases.jsonl"
KEYS = ("new", "resumed", "blocks", "free_blocks")


def test_the_recordings_are_those_of_the_engines_tests() -> None:
    """Lab 6 has the recorded workloads with shared blocks, and of each step with new blocks what concerns blocks."""
    cases = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
    shared = {case["seed"]: case for case in cases if any(hits for step in case["steps"] for _, hits in step["new"])}
    assert recordings().keys() == shared.keys()
    for seed, recorded in recordings().items():
        case = shared[seed]
        steps = {
            str(number): {key: step[key] for key in KEYS}
            for number, step in enumerate(case["steps"], start=1)
            if step["new"] or step["resumed"] or step["blocks"]
        }
        assert recorded["steps"] == steps
        assert recorded["num_steps"] == len(case["steps"])
        assert all(case[key] == value for key, value in recorded.items() if key not in ("steps", "num_steps"))
