"""A real vLLM is explained unchanged: every process that it starts joins, and it generates what it generates anyway."""

import json
from pathlib import Path

import pytest

from tests.real_vllm import in_vllm
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder

TINY = Path(__file__).parents[2] / "tracellm" / "tiny"
MODES = ["in_process", "spawn", "fork"]


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folders of attach_work.py."""
    folder = tmp_path_factory.mktemp("attach")
    script = Path(__file__).with_name("attach_work.py")
    done = in_vllm([script, TINY, folder], folder, VLLM_CPU_KVCACHE_SPACE="1", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_the_tokens_are_the_same(explained: Path):
    """Greedy and seeded, in process and in several that were spawned or forked: recording changes no token."""
    told = json.loads((explained / "tokens.json").read_text())
    assert [len(tokens) for tokens in told["plain"]] == [8, 8, 5]
    assert told == dict.fromkeys(["plain", *MODES], told["plain"])


@pytest.mark.parametrize("mode", MODES)
def test_every_process_joins(explained: Path, mode: str):
    """Each has a file, and nothing went wrong in any; what they did is one tree, below the script."""
    run = RunFolder.open(explained / mode)
    assert run.problems == []
    probes = run.manifest["probes"]
    assert (probes["problems"], probes["missing"]) == ([], [])
    assert probes["engine"]["name"] == "vllm"
    started = [one["name"] for one in run.manifest["processes"]][1:]
    assert (started == []) == (mode == "in_process")
    assert all(name.startswith(("EngineCore", "VllmWorker")) for name in started)
    assert len({span.trace_id for span in run.trace.spans if span.name == "EngineCore.step_fn"}) == 1
    known = {span.span_id for span in run.trace.spans}
    lost = [one for one in run.trace.spans if one.parent_span_id is not None and one.parent_span_id not in known]
    assert lost == []


@pytest.mark.parametrize("mode", MODES)
def test_what_was_going_on_when_a_process_joined_is_there(explained: Path, mode: str):
    """A process joins before its work begins: from the loop that it is started for, down to the engine's making."""
    spans = RunFolder.open(explained / mode).trace.spans
    made = {span.method for span in spans if span.attributes[names.LIFELINE].startswith("EngineCore")}
    assert {"make_client", "__init__"} <= made
    if mode == "spawn":
        assert "run_engine_core" in made
