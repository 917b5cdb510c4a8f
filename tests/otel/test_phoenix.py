"""A recording in an independent backend, Arize Phoenix, queried for the spans it received."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import wait_until
from tests.otel.phoenix import Phoenix, phoenix
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder

SCRIPT = """
from tracellm import LLM, SamplingParams

if __name__ == "__main__":
    llm = LLM()
    llm.generate(["Hello", "Once"], SamplingParams(max_tokens=4, ignore_eos=True), use_tqdm=False)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    """Phoenix, shared by the tests of this file."""
    with phoenix(tmp_path_factory.mktemp("phoenix")) as running:
        yield running


def explained(folder: Path, project: str, *options: str, **environment: str) -> tuple[Trace, dict[str, Any]]:
    """Return the trace of a run that sends spans to Phoenix's project, and the export in its manifest."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "tracellm",
        "run",
        "--explain",
        *options,
        "--out",
        str(folder / "run"),
        str(script),
    ]
    wanted = {"OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={project}", "OTEL_METRICS_EXPORTER": "none"}
    done = subprocess.run(command, env={**os.environ, **wanted, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((folder / "run" / "run.json").read_text())
    return RunFolder.open(folder / "run").trace, manifest["probes"]["export"]


def test_a_recording_of_two_processes_arrives(server: Phoenix, tmp_path: Path):
    """Spans of the script's process and of the engine's arrive, nest as recorded, and have the documented
    attributes."""
    trace, export = explained(
        tmp_path,
        "two-processes",
        "--detail",
        "step",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{server.http}",
        VLLM_ENABLE_V1_MULTIPROCESSING="1",
    )
    assert len(trace.processes) == 2
    assert export == {
        "endpoint": f"http://127.0.0.1:{server.http}/v1/traces",
        "sent": len(trace.spans),
        "lost": 0,
        "errors": [],
    }
    stored = wait_until(lambda: _all(server, "two-processes", len(trace.spans)), "all spans stored")
    came = {span["context"]["span_id"]: span for span in stored}
    assert came.keys() == trace.by_id.keys()
    for span in trace.spans:
        other = came[span.span_id]
        assert other["name"] == span.name
        assert other["parent_id"] == span.parent_span_id
        assert other["context"]["trace_id"] == span.trace_id
        sent = {name: value for name, value in span.attributes.items() if name not in names.PRIVATE}
        assert {name: other["attributes"].get(name) for name in sent} == sent
        assert names.ATTRIBUTES.keys() >= sent.keys()
        assert names.PRIVATE.isdisjoint(other["attributes"])
    step = next(span for span in stored if span["name"] == "EngineCore.step_fn")
    assert _names_above(came, step)[-1] == "script.py"
    lives = [span["attributes"] for span in stored if span["name"] == names.REQUEST_SPAN]
    assert [life["llm.token_count.completion"] for life in lives] == [4, 4]  # Phoenix understood gen_ai


def test_a_recording_arrives_by_grpc(server: Phoenix, tmp_path: Path):
    """The same spans arrive by gRPC."""
    trace, export = explained(
        tmp_path,
        "grpc",
        "--detail",
        "request",
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{server.grpc}",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
    )
    assert export["sent"] == len(trace.spans)
    stored = wait_until(lambda: _all(server, "grpc", len(trace.spans)), "all spans stored")
    assert {span["context"]["span_id"] for span in stored} == trace.by_id.keys()


def _all(server: Phoenix, project: str, count: int) -> list[dict[str, Any]] | None:
    """Return all spans of a project, once it has stored so many."""
    stored = server.spans(project)
    return stored if len(stored) >= count else None


def _names_above(came: dict[str, dict[str, Any]], span: dict[str, Any]) -> list[str]:
    above = []
    while span["parent_id"] in came:
        span = came[span["parent_id"]]
        above.append(span["name"])
    return above
