"""Recording of an engine core in its own process: one trace has both sides."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.clients.in_thread import engines_in_threads
from tests.engine.core_requests import core_request
from tracellm import LLM, SamplingParams
from tracellm.probes.catalog import CATALOG
from tracellm.probes.install.selection import Selection
from tracellm.probes.recording import Recording
from tracellm.report.facts.requests import requests
from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder
from tracellm.trace.steps import steps

PARAMS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
HEADERS = [{"traceparent": f"00-{digit * 32}-{digit * 16}-01"} for digit in "12"]


@dataclass
class Run:
    """A recorded run, the spans of its live log, and its outputs."""

    trace: Trace
    heard: list[Span]
    stats: dict[str, Any]
    outputs: list[Any]
    bare: list[Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run two prompts through a SyncMPClient with a recording, and in this process without one."""
    folder = tmp_path_factory.mktemp("run")
    heard: list[Span] = []
    prompts = ["The sky is", "One, two,"]
    with Recording(folder, script="script.py", listener=heard.append) as recording:
        llm = LLM(num_gpu_blocks_override=64, multiprocess_mode=True)
        outputs = llm.generate(prompts, PARAMS, use_tqdm=False)
        llm.llm_engine.engine_core.shutdown()
    bare = LLM(num_gpu_blocks_override=64).generate(prompts, PARAMS, use_tqdm=False)
    return Run(RunFolder.open(folder).trace, heard, recording.stats, outputs, bare)


def test_nothing_went_wrong(run: Run):
    """No probe failed or was missing in either process, and the tokens are those of the in-process engine."""
    assert (run.stats["problems"], run.stats["missing"]) == ([], [])
    assert run.stats["calls"] == len(run.trace.spans) - 2  # requests' lives are not calls
    tokens = [[output.outputs[0].token_ids for output in outputs] for outputs in (run.outputs, run.bare)]
    assert tokens[0] == tokens[1]


def test_one_tree_over_both_processes(run: Run):
    """Every call is below the script; the engine core's calls are below the call that started its process."""
    assert run.trace.orphans == []
    assert [root.name for root in run.trace.roots] == ["script.py", "llm_request", "llm_request"]
    [core] = run.trace.named("EngineCoreProc.run_engine_core")
    path, span = [core.name], core
    while (parent := run.trace.parent(span)) is not None:
        span = parent
        path.insert(0, span.name)
    assert [name for name in path if not name.startswith("CoreEngineProcManager.")] == [
        "script.py", "LLM.__init__", "LLMEngine.from_engine_args", "LLMEngine.__init__",
        "EngineCoreClient.make_client", "SyncMPClient.__init__", "MPClient.__init__", "MPClient.launch_core_engines",
        "EngineCoreProc.run_engine_core",
    ]  # fmt: skip
    assert core.trace_id == run.trace.roots[0].trace_id
    assert core.process is not None
    assert core.process.name == "EngineCore_0"


def test_its_memory_is_taken_at_the_start(run: Run):
    """A long-lived process writes to its whole KV cache before its first request, so its memory does not grow later."""
    asked = [span.attributes[names.ARGUMENTS] for span in run.trace.named("UniProcExecutor.collective_rpc")]
    taken, steps_begin = asked.index(["method=prefault_kv_cache"]), asked.index(["method=execute_model"])
    assert taken < steps_begin


def test_no_call_failed(run: Run):
    """Ending the engine core is no failure, and all its calls have ended."""
    assert [span.name for span in run.trace.spans if span.error is not None or span.open] == []


def test_loops(run: Run):
    """Calls that last as long as the engine are marked, and run in their threads."""
    loops = {span.name: span for span in run.trace.spans if span.attributes.get(names.CALL_KIND) == "loop"}
    assert set(loops) == {
        "SyncMPClient.process_outputs_socket", "EngineCoreProc.process_input_sockets",
        "EngineCoreProc.process_output_sockets", "EngineCoreProc.run_busy_loop", "EngineCoreProc._process_input_queue",
    }  # fmt: skip
    inputs = loops["EngineCoreProc.process_input_sockets"]
    assert inputs.attributes[names.THREAD_NAME] == "process_input_sockets"
    starter = run.trace.parent(inputs)
    assert starter is not None
    assert starter.name == "EngineCoreProc.__init__"


def test_requests_are_linked_from_the_other_process(run: Run):
    """A request's life is created once, at its submission; the engine core's steps link to it."""
    lives = run.trace.named(names.REQUEST_SPAN)
    assert len(lives) == len({life.trace_id for life in lives}) == 2
    assert {life.process and life.process.name for life in lives} == {"main"}
    for step in steps(run.trace):
        assert step.span.process is not None
        assert step.span.process.name == "EngineCore_0"
        links = {link.attributes[names.REQUEST_ID]: (link.trace_id, link.span_id) for link in step.span.links}
        expected = {life.attributes[names.REQUEST_ID]: (life.trace_id, life.span_id) for life in lives}
        assert links == {one.request_id: expected[one.request_id] for one in step.requests}
    for life, output in zip(lives, run.outputs, strict=True):
        assert life.attributes[names.REQUEST_OUTPUT] == output.outputs[0].text
        assert life.attributes[names.GEN_AI_FINISH_REASONS] == ["length"]
    assert [fact.steps for fact in requests(run.trace.spans)] == [4, 4]


def test_tokens_have_texts(run: Run):
    """Tokens have texts, although the engine core has only token ids."""
    for life, output in zip(run.trace.named(names.REQUEST_SPAN), run.outputs, strict=True):
        name = life.attributes[names.REQUEST_ID]
        sampled = [one for step in steps(run.trace) for one in step.sampled if one.request_id == name]
        assert [one.token_id for one in sampled] == output.outputs[0].token_ids
        assert "".join(one.text for one in sampled if one.text and one.text[:2] != "<|") == output.outputs[0].text


def test_messages(run: Run):
    """Every message is sent and received once, with the same id, type and number of bytes."""
    ends: dict[str, dict[str, tuple[Any, ...]]] = {"send": {}, "receive": {}}
    for span in run.trace.spans:
        if names.MESSAGE_ID in span.attributes:
            actual = [span.attributes[name] for name in (names.MESSAGE_TYPE, names.MESSAGE_BYTES, names.MESSAGE_FRAMES)]
            ends[span.attributes[names.MESSAGE_OPERATION]][span.attributes[names.MESSAGE_ID]] = tuple(actual)
    assert ends["send"] == ends["receive"]
    assert {"ADD 0", "ADD 1"} < set(ends["send"])
    assert {kind for kind, *_ in ends["send"].values()} == {"ADD", "OUTPUTS"}
    assert len(run.trace.messages) == len(ends["send"])


def test_outputs_name_the_step_that_made_them(run: Run):
    """Only the sent message with a step's outputs has the step's number."""
    named = [span for span in run.trace.spans if names.MESSAGE_STEP in span.attributes]
    assert named == [one.send for one in run.trace.messages if one.send.attributes[names.MESSAGE_TYPE] == "OUTPUTS"]
    made = {step.index: step.span for step in steps(run.trace) if step.sampled}
    assert [span.attributes[names.MESSAGE_STEP] for span in named] == sorted(made)
    assert all(made[span.attributes[names.MESSAGE_STEP]].end_ns <= span.start_ns for span in named)


def test_the_live_log_hears_both(run: Run):
    """The live log receives each ended span of both processes once, children first."""
    assert sorted(span.span_id for span in run.heard) == sorted(span.span_id for span in run.trace.spans)
    order = {span.span_id: place for place, span in enumerate(run.heard)}
    for span in run.trace.named("EngineCore._schedule", "EngineCore.step_fn"):
        assert span.parent_span_id is not None
        assert order[span.span_id] < order[span.parent_span_id]
    heard = [span.name for span in run.heard]
    assert heard.index("DefaultModelLoader.load_weights") < heard.index("EngineCoreClient.make_client")
    assert heard[-1] == "script.py"


def test_headers_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A request with a traceparent belongs to that trace, below that span; its other headers stay."""
    trace_id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    llm = LLM(num_gpu_blocks_override=64)
    seen: list[Any] = []
    add, engine = llm.llm_engine.engine_core.add_request, llm.llm_engine

    def notes(request: Any) -> None:
        seen.append(request.trace_headers)
        add(request)

    with Recording(tmp_path, selection=Selection("request")) as recording:
        request = engine.processor.process_inputs("7", {"prompt_token_ids": [1, 2]}, PARAMS)
        request.trace_headers = {"traceparent": f"00-{trace_id}-{parent}-00", "tracestate": "x=1"}
        monkeypatch.setattr(engine.engine_core, "add_request", notes)
        engine.add_request("7", request, PARAMS)
        while engine.has_unfinished_requests():
            engine.step()
    assert recording.stats["problems"] == []
    trace = RunFolder.open(tmp_path).trace
    [life] = trace.named(names.REQUEST_SPAN)
    assert (life.trace_id, life.parent_span_id) == (trace_id, parent)
    assert seen == [{"traceparent": f"00-{trace_id}-{life.span_id}-01", "tracestate": "x=1"}]
    assert trace.orphans == []


def test_an_id_that_is_used_again_at_once(tmp_path: Path):
    """Two requests with the same id have separate lives, each linked to its own steps."""
    with Recording(tmp_path, selection=Selection("step")) as recording, engines_in_threads():
        llm = LLM(num_gpu_blocks_override=64, multiprocess_mode=True)
        client = llm.llm_engine.engine_core
        client.add_request(core_request("7", [1, 2], LONG, trace_headers=HEADERS[0]))
        client.get_output()
        client.abort_requests(["7"])
        client.add_request(core_request("7", [1, 2], PARAMS, trace_headers=HEADERS[1]))
        while not any(output.finished for output in client.get_output().outputs):
            pass
        client.shutdown()
    assert recording.stats["problems"] == []
    trace = RunFolder.open(tmp_path).trace
    assert trace.named(names.REQUEST_SPAN) == []  # no submission was recorded
    links = [link.span_id for step in trace.named("EngineCore.step_fn") for link in step.links]
    assert set(links) == {"1" * 16, "2" * 16}
    assert links.count("2" * 16) == PARAMS.max_tokens


@pytest.mark.parametrize(("counts", "loads"), [([[2, 3], [0, 1]], [11, 1]), ([[2, 3, 0.5], [0, 1, 0.0]], [5, 1])])
def test_loads_of_engine_cores(counts: list[list[float]], loads: list[int]):
    """The loads are those of the version: 0.11.1 weighs waiting requests, 0.32 also counts the KV cache's usage."""
    (entry,) = [entry for entry in CATALOG if entry.target.endswith("get_core_engine_for_request")]
    client = SimpleNamespace(core_engines=[b"0", b"1"], lb_engines=counts)
    assert entry.capture is not None
    facts = entry.capture((client, None), {}, b"1")
    assert facts == {names.DATA_PARALLEL_RANK: 1, names.DATA_PARALLEL_LOADS: loads}
