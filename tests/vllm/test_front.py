"""The front half of a vLLM: its client, request spans, loops without a name, files."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.probes.tracing import outline, record
from tests.report.two_runs import Recorder
from tests.vllm.small_vllm import small_vllm
from tracellm.engine.sample.sampling_params import SamplingParams
from tracellm.probes.catalog.vllm import CATALOG, startup
from tracellm.probes.catalog.vllm.request import HEADER
from tracellm.probes.context import call_context as state
from tracellm.probes.context.exceptions import is_an_end
from tracellm.report.console.boxes import client_rows
from tracellm.report.facts.startup import client_choice
from tracellm.trace import names
from tracellm.trace.compare.calls import call_pairs
from tracellm.trace.model import Span, Trace

CONFIG = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_size=1))


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The small package's modules."""
    with small_vllm(tmp_path / "installed") as modules:
        yield modules


def request(name: str, callers: str | None = None, **more: Any) -> Any:
    """A request as the engine core gets it; later versions add the caller's id."""
    given = {"request_id": name, "external_req_id": callers or name, "prompt_token_ids": [5, 6], "priority": 0}
    return SimpleNamespace(**given, sampling_params=SamplingParams(max_tokens=3), trace_headers=None, **more)


def lives(trace: Trace) -> list[Span]:
    """Return the request spans."""
    return [span for span in trace.spans if span.name == names.REQUEST_SPAN]


@pytest.mark.parametrize(
    ("multiprocess", "asyncio_mode", "client", "rule"),
    [
        (False, False, "InprocClient", "not multiprocess_mode and not asyncio_mode"),
        (True, False, "SyncMPClient", "multiprocess_mode and not asyncio_mode"),
        (False, True, "none", "asyncio_mode and not multiprocess_mode"),
    ],
)
def test_the_client_and_its_rule(
    vllm: dict[str, Any], tmp_path: Path, multiprocess: bool, asyncio_mode: bool, client: str, rule: str
) -> None:
    """The choice is recorded with inputs and rule, also without a client."""
    make = lambda: vllm["core_client"].EngineCoreClient.make_client(multiprocess, asyncio_mode, CONFIG, dict, False)  # noqa: E731
    trace = record(tmp_path / "run", make, CATALOG)
    [span] = [span for span in trace.spans if span.name == "EngineCoreClient.make_client"]
    actual = span.attributes
    assert (actual[names.CLIENT_CHOICE], actual[names.CLIENT_RULE], actual[names.CLIENT_EXECUTOR]) == (
        client,
        rule,
        "dict",
    )
    assert (actual[names.CLIENT_MULTIPROCESS], actual[names.CLIENT_ASYNCIO]) == (multiprocess, asyncio_mode)


def test_what_is_said_of_a_vllms_client_is_its_own(
    vllm: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports show vLLM's own rule for each client, and whether the environment chose it, even if by vLLM's default."""
    make = lambda: vllm["core_client"].EngineCoreClient.make_client(True, False, CONFIG, dict, False)  # noqa: E731
    choice = client_choice(record(tmp_path / "run", make, CATALOG).spans)
    assert choice is not None
    assert choice.is_real_vllm
    said = "\n".join(line for row in client_rows(choice, "en") for line in row.lines)
    for words in (
        "vLLM's default: VLLM_ENABLE_V1_MULTIPROCESSING is not set",
        "This is vLLM's default",
        "vllm serve MODEL",
    ):
        assert words in said
    assert "multiprocess_mode=True)" not in said
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    choice = client_choice(record(tmp_path / "set", make, CATALOG).spans)
    assert choice is not None
    said = " ".join(line for row in client_rows(choice, "en") for line in row.lines)
    assert "multiprocess_mode = True: VLLM_ENABLE_V1_MULTIPROCESSING=1 in the environment" in said


def test_a_life_begins_and_ends_under_both_of_its_names(vllm: dict[str, Any], tmp_path: Path) -> None:
    """An output with the caller's id belongs to the request with the engine's id."""

    def run() -> None:
        processor = vllm["output_processor"].OutputProcessor()
        processor.add_request(request("7-ab12", "7"), "hello")
        processor.process_outputs([SimpleNamespace(request_id="7-ab12", new_token_ids=[1], finish_reason=None)])
        processor.process_outputs([SimpleNamespace(request_id="7-ab12", new_token_ids=[1, 2], finish_reason="length")])

    [life] = lives(record(tmp_path / "run", run, CATALOG))
    actual = life.attributes
    assert (actual[names.REQUEST_ID], actual[names.GEN_AI_RESPONSE_ID]) == ("7-ab12", "7")
    assert (actual[names.REQUEST_PROMPT], actual[names.REQUEST_OUTPUT]) == ("hello", "abc")
    assert (actual[names.GEN_AI_OUTPUT_TOKENS], actual[names.GEN_AI_FINISH_REASONS]) == (2, ["length"])
    assert actual[names.REQUEST_PARAMS] == ["max_tokens=3"]


def test_outputs_of_one_request_are_told_apart(vllm: dict[str, Any], tmp_path: Path) -> None:
    """With n=2 each output ends the span of the request that made it."""

    def run() -> None:
        processor = vllm["output_processor"].OutputProcessor()
        parent = SimpleNamespace(request_id="7-ab12", external_req_id="7", n=2)
        for index in range(2):
            processor.add_request(request(f"{index}_7-ab12", "7"), "hello", parent, index)
        for name, reason in (("1_7-ab12", "stop"), ("0_7-ab12", "length")):
            processor.process_outputs([SimpleNamespace(request_id=name, new_token_ids=[1], finish_reason=reason)])

    found = {life.attributes[names.REQUEST_ID]: life.attributes for life in lives(record(tmp_path, run, CATALOG))}
    assert {name: actual[names.GEN_AI_FINISH_REASONS] for name, actual in found.items()} == {
        "1_7-ab12": ["stop"],
        "0_7-ab12": ["length"],
    }
    assert {(actual[names.REQUEST_PARENT], actual[names.GEN_AI_CHOICES]) for actual in found.values()} == {("7", 2)}


def test_a_request_for_embeddings_has_a_life(vllm: dict[str, Any], tmp_path: Path) -> None:
    """A request without sampling parameters is recorded without them."""

    def run() -> None:
        asked = request("3")
        asked.sampling_params = None
        vllm["output_processor"].OutputProcessor().add_request(asked, "hello")

    [life] = lives(record(tmp_path, run, CATALOG))
    assert life.attributes[names.GEN_AI_OPERATION] == "embeddings"


def test_a_requests_place_travels_beside_vllms_own_tracing(vllm: dict[str, Any], tmp_path: Path) -> None:
    """The request span is in the client's trace, and `traceparent` stays unchanged."""
    header, given = "00-" + "a" * 32 + "-" + "b" * 16 + "-01", {}

    def run() -> None:
        asked = request("3")
        asked.trace_headers = {"traceparent": header}
        vllm["output_processor"].OutputProcessor().add_request(asked, "hello")
        given.update(asked.trace_headers)

    [life] = lives(record(tmp_path, run, CATALOG))
    assert given == {"traceparent": header, HEADER: f"00-{life.trace_id}-{life.span_id}-01"}
    assert (life.trace_id, life.parent_span_id) == ("a" * 32, "b" * 16)


def test_more_said_to_a_request_that_runs_begins_no_life(vllm: dict[str, Any], tmp_path: Path) -> None:
    """A second request with the same id leaves the span of the first unchanged."""
    headers = []

    def run() -> None:
        processor = vllm["output_processor"].OutputProcessor()
        for asked in (request("3"), request("3")):
            with suppress(ValueError):
                processor.add_request(asked, "hello")
            headers.append(asked.trace_headers)

    assert len(lives(record(tmp_path, run, CATALOG))) == 1
    assert [asked is None for asked in headers] == [False, True]


def test_loops_without_a_name_are_recorded(vllm: dict[str, Any], tmp_path: Path) -> None:
    """Tasks that the first request starts are recorded as vLLM's code."""

    async def generate() -> None:
        client = vllm["core_client"].AsyncMPClient()
        llm = vllm["async_llm"].AsyncLLM()
        llm.engine_core = client
        await llm.add_request()
        await llm.add_request()
        await asyncio.gather(client.resources.output_queue_task, llm.output_handler)
        assert asyncio.get_running_loop().get_task_factory() is None

    trace = record(tmp_path, lambda: asyncio.run(generate()), CATALOG)
    assert outline(trace).splitlines() == [
        "script.py",
        "  AsyncLLM.add_request",
        "    AsyncLLM._run_output_handler",
        "    AsyncLLM.output_handler",
        "      AsyncMPClient.get_output_async",
        "    AsyncMPClient.process_outputs_socket",
        "      AsyncMPClient.get_output_async",
        "  AsyncLLM.add_request",
        "    AsyncLLM._run_output_handler",
    ]
    [handler] = [span for span in trace.spans if span.method == "output_handler"]
    assert handler.attributes[names.CODE_FUNCTION] == "vllm.v1.engine.async_llm.AsyncLLM.output_handler"
    assert handler.attributes[names.CODE_FILE] == "vllm/v1/engine/async_llm.py"
    assert (handler.attributes[names.CODE_LINE], handler.attributes[names.CALL_KIND]) == (11, "loop")


def test_a_loop_is_told_where_it_was_begun_whatever_was_under_way_in_an_earlier_recording(
    vllm: dict[str, Any], tmp_path: Path
) -> None:
    """A trace left over from an earlier recording does not affect a loop of this one."""
    spot = state.current_context()
    before = spot[state.THREAD_CONTEXT]
    state.context_var.set(
        state.new_context(state.new_thread_context(before, state.TraceScope("1" * 32, "2" * 16, recording=-1)))
    )
    try:
        test_loops_without_a_name_are_recorded(vllm, tmp_path)
    finally:
        state.context_var.set(spot)


def test_a_task_of_somebody_elses_is_left_as_it_is() -> None:
    """Only the announced task runs in a stand-in, and the task factory is restored."""
    from tracellm.probes.catalog.vllm import closures

    async def run() -> None:
        closures.stand_in("output_handler")
        task = asyncio.get_running_loop().create_task(asyncio.sleep(0, "slept"))
        assert getattr(task.get_coro(), "__name__", None) == "sleep"
        assert asyncio.get_running_loop().get_task_factory() is None
        assert await task == "slept"

    asyncio.run(run())


def test_the_thread_that_receives_has_a_loop_of_its_own(vllm: dict[str, Any], tmp_path: Path) -> None:
    """Calls of a SyncMPClient's thread are within `process_outputs_socket`."""
    trace = record(tmp_path, vllm["core_client"].SyncMPClient, CATALOG)
    [loop] = [span for span in trace.spans if span.name == "SyncMPClient.process_outputs_socket"]
    [within] = [span for span in trace.spans if span.name == "SyncMPClient.add_request"]
    assert within.parent_span_id == loop.span_id
    assert loop.attributes[names.THREAD_NAME] == "EngineCoreOutputQueueThread"


def test_a_context_manager_is_a_call_until_its_block_ends(vllm: dict[str, Any], tmp_path: Path) -> None:
    """A context manager is recorded up to its block, and passes its value on."""

    def run() -> None:
        with vllm["utils"].launch_core_engines(None) as launched:
            assert launched == "launched"
            vllm["core_client"].InprocClient()

    trace = record(tmp_path, run, CATALOG)
    assert outline(trace) == (
        "script.py\n  launch_core_engines\n    CoreEngineProcManager.__init__\n  InprocClient.__init__"
    )
    [launch] = [span for span in trace.spans if span.name == "launch_core_engines"]
    [within] = [span for span in trace.spans if span.name == "InprocClient.__init__"]
    assert launch.start_ns < within.start_ns < within.end_ns < launch.end_ns


def test_secrets_are_not_recorded() -> None:
    """The value of a secret argument is not recorded."""
    [entry] = [one for one in CATALOG if one.target == "vllm.entrypoints.llm:LLM.__init__"]
    assert entry.capture is not None
    assert entry.attributes is not None
    facts = entry.capture((None, "tiny"), {"hf_token": "hf_abc", "seed": 3}, None)
    assert entry.attributes(facts)[names.ARGUMENTS] == ["model=tiny", "hf_token=...", "seed=3"]


def test_weights_are_counted_in_the_files_headers(tmp_path: Path) -> None:
    """Bytes and tensors of safetensors files are counted; other files have no tensor count."""
    header = json.dumps({"__metadata__": {}, "a": {}, "b": {}}).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + b"0123")
    assert startup._num_tensors([str(file)]) == 2
    assert startup._num_bytes([str(file)]) == 8 + len(header) + 4
    assert startup._num_tensors([str(file), str(tmp_path / "model.bin")]) is None


def test_calls_of_two_engines_are_paired_by_their_names() -> None:
    """Calls of ours and of vLLM's are paired by class and method."""
    ours, theirs = Recorder(), Recorder()
    for recorder, package in ((ours, "tracellm.engine"), (theirs, "vllm.v1.engine")):
        called: dict[str, Any] = {names.CODE_FUNCTION: f"{package}.llm_engine.LLMEngine.step"}
        recorder.call("LLMEngine.step", **called)
    ours_core: dict[str, Any] = {names.CODE_FUNCTION: "tracellm.engine.core.core.EngineCore.step_fn"}
    ours.call("EngineCore.step_fn", **ours_core)
    core: dict[str, Any] = {names.CODE_FUNCTION: "vllm.v1.engine.core.EngineCore.step"}
    theirs.call("EngineCore.step_fn", lifeline="EngineCoreProc", **core)
    for recorder, kind, package in ((ours, "Worker", "tracellm.engine"), (theirs, "CPUWorker", "vllm.v1")):
        for owner in (kind, "WorkerWrapperBase"):
            function: dict[str, Any] = {names.CODE_FUNCTION: f"{package}.worker.{owner}.init_device"}
            recorder.call(f"{owner}.init_device", lifeline="Worker", **function)
    pairs = call_pairs(ours.trace(), theirs.trace())
    assert [(pair.lifeline, pair.method, pair.lifeline_b, pair.a, pair.b) for pair in pairs] == [
        ("LLMEngine", "step", "", 1, 1),
        ("EngineCore", "step_fn", "EngineCoreProc", 1, 1),
        ("Worker", "init_device", "", 1, 1),
        ("Worker", "init_device", "", 1, 1),
    ]


def test_a_class_in_another_module_is_the_same_class() -> None:
    """Between two versions of one engine, a method is paired if its class moved."""
    old, new = Recorder(), Recorder()
    for recorder, name, function in (
        (old, "Attention.forward", "vllm.attention.layer.Attention.forward"),
        (new, "Attention.forward", "vllm.layers.attention.Attention.forward"),
        (old, "LLM.add", "vllm.llm.LLM.add"),
        (new, "LLM.add", "vllm.offline.Mixin.add"),
    ):
        defined: dict[str, Any] = {names.CODE_FUNCTION: function}
        recorder.call(name, **defined)
    pairs = call_pairs(old.trace(), new.trace())
    assert [(pair.name, pair.a, pair.b) for pair in pairs] == [
        ("Attention.forward", 1, 1),
        ("LLM.add", 1, 0),
        ("LLM.add", 0, 1),
    ]


def test_a_worker_that_is_told_to_stop_has_not_failed() -> None:
    """vLLM's exception that ends a worker's loop is an error anywhere else."""
    error = RuntimeError("cancelled")
    assert is_an_end(error, loop=True)
    assert not is_an_end(error)
    assert not is_an_end(RuntimeError("out of memory"), loop=True)
