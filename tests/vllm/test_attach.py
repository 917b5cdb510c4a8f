"""A real vLLM recorded unchanged: every process it starts joins, and its tokens stay the same."""

from pathlib import Path

import pytest

from scripts.vllm_runs import printed
from tests.real_vllm import InOneProcess
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder

MODES = ["in_process", "spawn", "fork"]


@pytest.fixture(scope="module")
def folders(in_one_process: InOneProcess, two_processes: Path) -> dict[str, Path]:
    """Return a run folder for each of MODES."""
    return {
        "in_process": in_one_process.folder / "scheduled",
        "spawn": two_processes,
        "fork": in_one_process.folder / "fork",
    }


def test_the_tokens_are_the_same(in_one_process: InOneProcess, two_processes: Path):
    """A recording changes no token, greedy or seeded, in process or in spawned or forked ones."""
    actual = in_one_process.results
    assert [len(tokens) for tokens in actual["prompts"]] == [8, 8, 5]
    assert actual["fork"] == actual["prompts"]
    assert [len(tokens) for tokens in actual["calls"][:4]] == [40, 40, 40, 3]
    assert actual["scheduled"]["outputs"] == actual["calls"]
    assert actual["printed"] == printed(two_processes) != ""


@pytest.mark.parametrize("mode", MODES)
def test_every_process_joins(folders: dict[str, Path], mode: str):
    """Each process has a file without problems, and all calls are one tree below the script."""
    run = RunFolder.open(folders[mode])
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
def test_what_was_going_on_when_a_process_joined_is_there(folders: dict[str, Path], mode: str):
    """A process joins before its work begins: its record has the calls from its loop to the engine's creation."""
    spans = RunFolder.open(folders[mode]).trace.spans
    made = {span.method for span in spans if span.attributes[names.LIFELINE].startswith("EngineCore")}
    assert {"make_client", "__init__"} <= made
    if mode == "spawn":
        assert "run_engine_core" in made


def test_a_chat_is_a_request_like_any_other(in_one_process: InOneProcess):
    """`LLM.chat` is recorded as the script's call; the life of its request has question and answer."""
    spans = RunFolder.open(in_one_process.folder / "fork").trace.spans
    [chat] = [span for span in spans if span.name == "LLM.chat"]
    *_, life = [span for span in spans if span.name == names.REQUEST_SPAN]
    assert chat.start_ns < life.start_ns < life.end_ns < chat.end_ns
    actual = {"prompt": life.attributes[names.REQUEST_PROMPT_TOKENS], "text": life.attributes[names.REQUEST_OUTPUT]}
    assert actual == in_one_process.results["chat"]
    assert actual["text"] != ""
