"""Spans of finished requests that an engine with `otlp_traces_endpoint` sends, as vLLM sends them."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracellm
from tests.otel.collecting import Collecting, collecting, values
from tests.real_vllm import ask_vllm
from tests.server.app import App
from tracellm import LLM, AsyncLLM, SamplingParams
from tracellm.engine.config.errors import EngineError
from tracellm.trace import names
from tracellm.trace.run_folder import RunFolder

_TRACE_ID, _CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_PARENT = {"traceparent": f"00-{_TRACE_ID}-{_CALLER}-01"}
_ARGUMENTS: dict[str, Any] = {"max_model_len": 64, "num_gpu_blocks_override": 32}
_PARAMS: dict[str, Any] = {"max_tokens": 3, "temperature": 0.5, "seed": 0, "ignore_eos": True}
_SERVER = 2  # SPAN_KIND_SERVER
_IN_VLLM = """
import json, sys
from vllm import LLM, SamplingParams

llm = LLM(sys.argv[1], dtype="float32", enforce_eager=True, max_model_len=64, block_size=32, disable_log_stats=False,
          otlp_traces_endpoint=sys.argv[2])
llm.generate("Hello", SamplingParams(**json.loads(sys.argv[3])))
"""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    """A collector, for exporters that send soon, by HTTP."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with collecting() as state:
        yield state


def endpoint(receiver: Collecting) -> str:
    """Return the value of `otlp_traces_endpoint`."""
    return f"{receiver.endpoint}/v1/traces"


def requests(receiver: Collecting) -> list[Any]:
    """Return kind and attributes, with their types, of each `llm_request`; a later vLLM sends other spans too."""
    return [
        (span.kind, {name: type(value) for name, value in values(iter(span.attributes)).items()})
        for span in receiver.spans
        if span.name == "llm_request"
    ]


def test_a_span_has_the_request_and_its_times(receiver: Collecting) -> None:
    """A finished request is a span from its arrival, with its parameters, its tokens and the times of its metrics."""
    llm = LLM(**_ARGUMENTS, otlp_traces_endpoint=endpoint(receiver))
    [output] = llm.generate("Hello", SamplingParams(**_PARAMS), use_tqdm=False)
    receiver.wait_for("llm_request")
    [span] = receiver.spans
    stats = output.metrics
    assert stats is not None
    assert span.kind == _SERVER
    assert abs(span.start_time_unix_nano - stats.arrival_time * 1e9) < 1e3
    sent: dict[str, Any] = values(iter(span.attributes))
    assert sent.pop("gen_ai.latency.e2e") >= sent["gen_ai.latency.time_to_first_token"]
    assert sent == {
        "gen_ai.request.id": "0",
        "gen_ai.request.n": 1,
        "gen_ai.request.max_tokens": 3,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.usage.prompt_tokens": len(output.prompt_token_ids or ()),
        "gen_ai.usage.completion_tokens": 3,
        "gen_ai.latency.time_in_queue": stats.queued_time,
        "gen_ai.latency.time_to_first_token": stats.first_token_latency,
        "gen_ai.latency.time_in_model_prefill": stats.prefill_time,
        "gen_ai.latency.time_in_model_decode": stats.decode_time,
        "gen_ai.latency.time_in_model_inference": stats.inference_time,
    }


def test_a_request_of_a_trace_is_a_child_of_its_caller(receiver: Collecting) -> None:
    """The span of an HTTP request with a `traceparent` header belongs to the caller's trace."""
    with asyncio.Runner() as runner:
        engine = AsyncLLM(**_ARGUMENTS, otlp_traces_endpoint=endpoint(receiver))
        try:
            app = App.make(runner, engine)
            assert app.post("/v1/completions", {"prompt": "Hello", **_PARAMS}, **_PARENT).status_code == 200
        finally:
            engine.shutdown()
    receiver.wait_for("llm_request")
    [span] = receiver.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (_TRACE_ID, _CALLER)


def test_a_recording_has_each_request_once(receiver: Collecting, tmp_path: Path) -> None:
    """A recording does not take the engine's own span for the program's."""
    with tracellm.explain(tmp_path / "run", lang="en"):
        llm = LLM(**_ARGUMENTS, otlp_traces_endpoint=endpoint(receiver))
        llm.generate("Hello", SamplingParams(**_PARAMS), use_tqdm=False)
    receiver.wait_for("llm_request")
    [request] = RunFolder.open(tmp_path / "run").trace.named(names.REQUEST_SPAN)
    assert request.attributes[names.REQUEST_ID] == "0"


def test_without_an_endpoint_nothing_is_imported() -> None:
    """An engine without the option has no tracer."""
    assert LLM(**_ARGUMENTS).llm_engine.output_processor.tracer is None


@pytest.mark.parametrize(
    ("protocol", "hidden", "words"),
    [
        (
            "grpc",
            "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
            r"pip install 'tracellm\[otel-grpc\]', or",
        ),
        ("http/protobuf", "opentelemetry.exporter.otlp.proto.http.trace_exporter", r"pip install 'tracellm\[otel\]'"),
        ("http/json", "nothing", "^Unsupported OTLP protocol 'http/json' is configured: set OTEL_EXPORTER_OTLP_TRACES"),
    ],
)
def test_what_is_missing_is_named(protocol: str, hidden: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing exporter or an unknown protocol is an error with what to do, before the model is loaded."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    monkeypatch.setitem(sys.modules, hidden, None)
    with pytest.raises(EngineError, match=words):
        LLM(**_ARGUMENTS, otlp_traces_endpoint="http://127.0.0.1:1/v1/traces")


def test_the_attributes_are_those_of_a_real_vllm(receiver: Collecting, tmp_path: Path) -> None:
    """The span of the same request in a real vLLM has the same kind and attributes, with the same types."""
    variables = {name: os.environ[name] for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_BSP_SCHEDULE_DELAY")}
    arguments = (Path(tracellm.__file__).parent / "tiny", endpoint(receiver), json.dumps(_PARAMS))
    ask_vllm(_IN_VLLM, *arguments, cwd=tmp_path, VLLM_CPU_KVCACHE_SPACE="1", **variables)
    receiver.wait_for("llm_request")
    LLM(**_ARGUMENTS, otlp_traces_endpoint=endpoint(receiver)).generate("Hello", SamplingParams(**_PARAMS))
    with receiver.came:
        receiver.came.wait_for(lambda: len(requests(receiver)) == 2, timeout=60)
    theirs, ours = requests(receiver)
    assert ours == theirs
