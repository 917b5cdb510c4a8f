"""The page's replay, held against what a real vLLM 0.11.1 decided: queues, tokens, blocks and slots of every step."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser, require_browser
from tests.engine.parity.cases import scheduler_cases
from tests.engine.parity.drive import MODEL

_SCRIPT = """
from tests.engine.parity.cases import scheduler_cases
from tests.engine.parity.drive import Library, make_llm
import tracellm
from tracellm.engine.sample import sampling_params

library = Library.of(tracellm, sampling_params)
for case in scheduler_cases():
    llm = make_llm(library, case)
    requests = case["batches"][0]["requests"]
    llm.generate(
        [{"prompt_token_ids": request["prompt_token_ids"]} for request in requests],
        [library.SamplingParams(**request["params"]) for request in requests],
        use_tqdm=False,
    )
"""


@pytest.fixture(scope="module")
def pages_steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """Run every recorded workload in one explained script, and return all steps as its page replays them."""
    require_browser()
    folder = tmp_path_factory.mktemp("truth")
    (folder / "cases.py").write_text(_SCRIPT, encoding="utf-8")
    assert MODEL.is_dir()
    subprocess.run(
        [sys.executable, "-m", "tracellm", "run", "--explain", "--quiet", "--detail=step", "--out=run", "cases.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        check=True,
        capture_output=True,
    )
    total = sum(len(case["recorded"][0]["steps"]) for case in scheduler_cases())
    with Browser() as browser:
        browser.open(folder / "run" / "report.html")
        assert browser.wait("document.documentElement.dataset.ready")
        all_steps = browser.run(f"return JSON.stringify([...Array({total}).keys()].map((i) => tracellm.step(i + 1)))")
        yield json.loads(all_steps)


def test_every_step_of_the_page_is_that_of_a_real_vllm(pages_steps: list[dict[str, Any]]):
    """Scheduled tokens, queues, block tables, free blocks and sampled tokens equal the recording of vLLM 0.11.1."""
    steps = iter(pages_steps)
    for case in scheduler_cases():
        (recorded,) = case["recorded"]
        tables: dict[str, list[int]] = {}
        ids: dict[str, str] = {}
        sampled: dict[str, list[int]] = {}
        for expected in recorded["steps"]:
            step = next(steps)
            number = len(ids)
            for request_id in sorted({*step["running"], *(one["id"] for one in step["waiting"])} - ids.keys(), key=int):
                ids[request_id] = str(number)
                number += 1
            assert {ids[key]: value for key, value in step["scheduled"].items()} == expected["scheduled"]
            assert [ids[key] for key in step["running"]] == expected["running"]
            assert [ids[one["id"]] for one in step["waiting"]] == expected["waiting"]
            assert all(one["reason"] for one in step["waiting"])
            assert step["free"] == expected["free_blocks"]
            assert step["prefill"] + step["decode"] == sum(expected["scheduled"].values())
            fresh = {request for request, _ in (*expected["new"], *expected["resumed"])}
            for request, blocks in expected["blocks"].items():
                tables[request] = blocks if request in fresh else [*tables[request], *blocks]
            shown = {ids[key]: blocks for key, blocks in step["blocks"].items()}
            for request in expected["scheduled"]:
                assert shown[request] == tables[request]
            for key, slots in step["slots"].items():
                size, table = case["settings"]["block_size"], shown[ids[key]]
                assert len(slots) == step["scheduled"][key]
                assert all(slot // size in table for slot in slots)
            assert all(one["text"] is not None for one in step["sampled"].values())
            for key, token in step["sampled"].items():
                sampled.setdefault(ids[key], []).append(token["token"])
        assert len(sampled) == len(case["batches"][0]["requests"])
    assert next(steps, None) is None
