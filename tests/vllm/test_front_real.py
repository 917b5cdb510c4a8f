"""A real vLLM's server, explained: one run of `vllm serve` with two requests over HTTP, and its recording.

The real vLLM runs in an environment of its own (tests/real_vllm.py).
"""

import json
import os
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.vllm_runs import VERSIONS
from scripts.vllm_server import free_port, serving
from tests.faults.processes import session_of, wait_until
from tests.real_vllm import require_vllm
from tracellm.trace import names
from tracellm.trace.expect import check, read
from tracellm.trace.model import Span, Trace
from tracellm.trace.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
TINY = ROOT / "tracellm" / "tiny"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
ARGUMENTS = ("--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager", "--max-model-len", "256")


@dataclass(frozen=True)
class Served:
    """The run, and the server's answers."""

    run: RunFolder
    chat: dict[str, Any]
    stream: list[dict[str, Any]]

    @property
    def trace(self) -> Trace:
        """All spans."""
        return self.run.trace

    def spans(self, name: str) -> list[Span]:
        """Return the spans of this name."""
        return [span for span in self.trace.spans if span.name == name]

    @property
    def lives(self) -> dict[str, Span]:
        """Return the requests' lives by prompt."""
        return {str(span.attributes[names.GEN_AI_OPERATION]): span for span in self.spans(names.REQUEST_SPAN)}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Run the explained server once, end it with Ctrl-C, and check that nothing is left."""
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    explain = ["-m", "tracellm", "run", "--explain", "--quiet", "--out", "run"]
    serve = ["vllm", "serve", str(TINY), "--host", "127.0.0.1", "--port", str(port), "--block-size", "32", *ARGUMENTS]
    log = folder / "log"
    with serving([require_vllm(), *explain, *serve], port, log, cwd=folder, env=_environment()) as server:
        asked = {"model": "tiny", "max_tokens": 5, "temperature": 0}
        chat = json.loads(
            server.post("/v1/chat/completions", asked | {"messages": [{"role": "user", "content": "Hi"}]})
        )
        sent = {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
        completion = asked | {"prompt": "The capital of France is", "stream": True}
        lines = server.post("/v1/completions", completion, **sent).splitlines()
        status = server.end(signal.SIGINT)
        assert status == 0, log.read_text()[-3000:]
        wait_until(lambda: not session_of(server.process.pid), "the end of all its processes")
    pieces = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return Served(RunFolder.open(folder / "run"), chat, pieces)


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
    return {**inherited, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


def test_the_client(served: Served) -> None:
    """The server's client is recorded with its inputs and its rule."""
    [made] = served.spans("EngineCoreClient.make_async_mp_client")
    actual = made.attributes
    assert (actual[names.CLIENT_CHOICE], actual[names.CLIENT_RULE]) == (
        "AsyncMPClient",
        "multiprocess_mode and asyncio_mode",
    )
    assert (actual[names.CLIENT_MULTIPROCESS], actual[names.CLIENT_ASYNCIO]) == (True, True)


def test_the_shape_of_the_model(served: Served) -> None:
    """The engine core's process records every weight's shape, and heads and head size of each attention layer."""
    [loaded] = served.spans("DefaultModelLoader.load_weights")
    weights = loaded.attributes[names.LOAD_WEIGHTS]
    assert weights[0] == "model.embed_tokens.weight=float32[4096, 256]"
    assert "model.layers.0-3.self_attn.qkv_proj.weight=float32[512, 256]" in weights
    assert loaded.attributes[names.LOAD_ATTENTION] == [
        "model.layers.0-3.self_attn.attn: heads=4 kv_heads=2 head_size=64 window=0"
    ]
    assert "hidden_size=256" in loaded.attributes[names.LOAD_CONFIG]


def test_each_http_request_is_a_trace(served: Served) -> None:
    """The chat begins a trace, the completion continues that of its header; each has all work of its request."""
    [chat], [completion] = served.spans("POST /v1/chat/completions"), served.spans("POST /v1/completions")
    assert (chat.attributes[names.HTTP_STATUS], completion.attributes[names.HTTP_STATUS]) == (200, 200)
    assert completion.trace_id == TRACE_ID != chat.trace_id
    generated = {span.trace_id for span in served.spans("AsyncLLM.generate")}
    assert generated == {chat.trace_id, completion.trace_id}
    assert {name: life.trace_id for name, life in served.lives.items()} == {
        "chat": chat.trace_id,
        "text_completion": completion.trace_id,
    }


def test_the_lives_are_what_the_server_answered(served: Served) -> None:
    """Prompt, text, tokens and finish reason of both requests are those of the answers."""
    actual, usage = served.lives["chat"].attributes, served.chat["usage"]
    [choice] = served.chat["choices"]
    assert actual[names.REQUEST_OUTPUT] == choice["message"]["content"]
    assert actual[names.GEN_AI_FINISH_REASONS] == [choice["finish_reason"]]
    assert actual[names.GEN_AI_INPUT_TOKENS] == usage["prompt_tokens"]
    assert actual[names.GEN_AI_OUTPUT_TOKENS] == usage["completion_tokens"]
    actual = served.lives["text_completion"].attributes
    assert actual[names.REQUEST_OUTPUT] == "".join(piece["choices"][0]["text"] for piece in served.stream)
    assert actual[names.GEN_AI_RESPONSE_ID].startswith(served.stream[0]["id"])
    assert actual[names.GEN_AI_MODEL] == "tiny"
    assert actual[names.GEN_AI_FIRST_CHUNK] > 0


def test_steps_in_another_process_are_linked_to_the_lives(served: Served) -> None:
    """Each step that served a request links to its life, which the server's process recorded."""
    spans = {life.span_id: life for life in served.lives.values()}
    linked = Counter(link.span_id for step in served.spans("EngineCore.step_fn") for link in step.links)
    assert set(linked) == set(spans)
    for span_id, steps in linked.items():
        assert steps >= spans[span_id].attributes[names.GEN_AI_OUTPUT_TOKENS]


def test_messages_have_two_ends(served: Served) -> None:
    """Every request went to the engine core in one message, and outputs came back; each was sent and received."""
    ends: dict[str, set[str]] = {}
    for span in served.trace.spans:
        if (id := span.attributes.get(names.MESSAGE_ID)) is not None and span.attributes[names.MESSAGE_BYTES]:
            ends.setdefault(str(id), set()).add(str(span.attributes[names.MESSAGE_OPERATION]))
    for life in served.lives.values():
        assert ends[f"ADD {life.attributes[names.REQUEST_ID]}"] == {"send", "receive"}
    outputs = [both for id, both in ends.items() if id.startswith("OUTPUTS")]
    assert outputs.count({"send", "receive"}) >= len(outputs) - 1  # the last may come after the client ended


def test_the_loops_without_names_are_there(served: Served) -> None:
    """The two receiving tasks are recorded as loops, and belong to no HTTP request."""
    of_requests = {served.spans(f"POST /v1/{path}")[0].trace_id for path in ("chat/completions", "completions")}
    for name in ("AsyncLLM.output_handler", "AsyncMPClient.process_outputs_socket"):
        [loop] = served.spans(name)
        assert loop.attributes[names.CALL_KIND] == "loop"
        assert loop.trace_id not in of_requests
        assert str(loop.attributes[names.CODE_FILE]).startswith("vllm/")


def test_its_calls_come_in_the_order_that_its_versions_do(served: Served) -> None:
    """The calls from the server's start to a request's first step are complete and in order for this version."""
    installed = str(served.run.manifest["versions"]["vllm"])
    version = next(known for known in VERSIONS if installed.startswith(known))
    result = check(served.trace, read(str(ROOT / "docs" / "expectations" / f"vllm-{version}-serve.tsv")))
    assert result.misses == ()
    assert result.matched >= 59


def test_no_probe_stopped(served: Served) -> None:
    """No probe stopped because vLLM's objects differed from its expectation."""
    actual = [str(problem) for problem in (*served.run.problems, *served.run.manifest["probes"].get("problems", ()))]
    assert [problem for problem in actual if "stopped" in problem] == []
