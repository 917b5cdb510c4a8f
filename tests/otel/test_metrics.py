"""`gen_ai` metrics of a request's life: values, names and destination."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import metrics as api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from tests.otel.collecting import Collecting, values
from tests.otel.sending import write
from tracellm.probes.export.metrics import HISTOGRAMS, ProgramMetrics, RequestMetrics, program_provider
from tracellm.probes.recording import Recording
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.run_folder import RunFolder

SECOND = 1_000_000_000
ABOUT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "tracellm",
    "gen_ai.request.model": "tiny",
    "gen_ai.response.model": "tiny",
}


@pytest.fixture
def reader() -> InMemoryMetricReader:
    """A reader of a test's own provider."""
    return InMemoryMetricReader()


def life(seconds: float, error: str | None = None, **more: Any) -> Span:
    """Return a request's life with these durations."""
    attributes = {
        names.GEN_AI_OPERATION: "chat",
        names.GEN_AI_MODEL: "tiny",
        **({names.GEN_AI_FINISH_REASONS: ["length"]} if error is None else {}),
        **{getattr(names, name): value for name, value in more.items()},
    }
    return Span(names.REQUEST_SPAN, "a" * 32, "b" * 16, None, 0, round(seconds * SECOND), attributes, error=error)


def measured(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float, int]]]:
    """Return attributes, sum and count of each point, by metric."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    points: dict[str, Any] = {
        metric.name: metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    return {
        name: [(dict(point.attributes), round(point.sum, 9), point.count) for point in some]
        for name, some in points.items()
    }


def test_a_life_is_measured(reader: InMemoryMetricReader):
    """Duration, time to first token, time per later token and token counts are those of the life."""
    more: dict[str, Any] = {"GEN_AI_FIRST_CHUNK": 0.5, "GEN_AI_OUTPUT_TOKENS": 11, "GEN_AI_INPUT_TOKENS": 7}
    RequestMetrics(MeterProvider([reader])).measure(life(1.5, **more))
    assert measured(reader) == {
        "gen_ai.server.request.duration": [(ABOUT, 1.5, 1)],
        "gen_ai.server.time_to_first_token": [(ABOUT, 0.5, 1)],
        "gen_ai.server.time_per_output_token": [(ABOUT, 0.1, 1)],
        "gen_ai.client.token.usage": [
            ({**ABOUT, "gen_ai.token.type": "input"}, 7, 1),
            ({**ABOUT, "gen_ai.token.type": "output"}, 11, 1),
        ],
    }


@pytest.mark.parametrize(
    ("span", "found"),
    [
        (life(1, GEN_AI_FIRST_CHUNK=1.0, GEN_AI_OUTPUT_TOKENS=1), {"request.duration", "time_to_first_token"}),
        (life(1), {"request.duration"}),
        (life(1, error="EngineDeadError: x"), {"request.duration"}),
        (Span(names.REQUEST_SPAN, "a" * 32, "b" * 16, None, 0, 5), set()),
        (Span("EngineCore.step_fn", "a" * 32, "b" * 16, None, 0, 5), set()),
    ],
    ids=["one token", "no steps recorded", "failed", "cut short by the recording's end", "another span"],
)
def test_what_is_not_known_is_not_measured(reader: InMemoryMetricReader, span: Span, found: set[str]):
    """A life without a first token has no time to it, one with a single token none per token; a call has no metric."""
    RequestMetrics(MeterProvider([reader])).measure(span)
    server = {name.removeprefix("gen_ai.server.") for name in measured(reader) if name.startswith("gen_ai.server.")}
    assert server == found


def test_a_failed_life_has_its_error(reader: InMemoryMetricReader):
    """A failed request is counted with the class of its error, without its text."""
    RequestMetrics(MeterProvider([reader])).measure(life(1, error="EngineDeadError: secret: words"))
    [(attributes, _, _)] = measured(reader)["gen_ai.server.request.duration"]
    assert attributes == {**ABOUT, "error.type": "EngineDeadError"}


def test_names_and_units_are_the_standards(reader: InMemoryMetricReader):
    """Every metric has a name and unit of the semantic conventions, and its own bucket boundaries."""
    standard = {value for name, value in vars(gen_ai_metrics).items() if name.startswith("GEN_AI_")}
    assert HISTOGRAMS.keys() <= standard
    RequestMetrics(MeterProvider([reader])).measure(life(1, GEN_AI_FIRST_CHUNK=0.5, GEN_AI_OUTPUT_TOKENS=9))
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        unit, _, boundaries = HISTOGRAMS[metric.name]
        assert metric.unit == unit == ("{token}" if "token.usage" in metric.name else "s")
        points: Any = metric.data.data_points
        assert all(point.explicit_bounds == boundaries for point in points)


def test_a_recording_measures_into_the_programs_provider(
    tmp_path: Path, reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch
):
    """With a MeterProvider in the program, each recorded request is measured there, by its recorded life."""
    from tracellm import LLM, SamplingParams

    provider = MeterProvider([reader])
    monkeypatch.setattr(api, "get_meter_provider", lambda: provider)
    with Recording(tmp_path):
        llm = LLM(num_gpu_blocks_override=64)
        llm.generate(["Hello", "Once"], SamplingParams(max_tokens=4, ignore_eos=True), use_tqdm=False)
    lives = RunFolder.open(tmp_path).trace.named(names.REQUEST_SPAN)
    found: Any = measured(reader)
    firsts = [span.attributes[names.GEN_AI_FIRST_CHUNK] for span in lives]
    per_token = [(span.duration_ns / 1e9 - first) / 3 for span, first in zip(lives, firsts, strict=True)]
    assert found["gen_ai.server.request.duration"][0][1:] == (round(sum(s.duration_ns for s in lives) / 1e9, 9), 2)
    assert found["gen_ai.server.time_to_first_token"][0][1:] == (pytest.approx(sum(firsts)), 2)
    assert found["gen_ai.server.time_per_output_token"][0][1:] == (pytest.approx(sum(per_token)), 2)
    assert {
        (attributes["gen_ai.token.type"], total) for attributes, total, _ in found["gen_ai.client.token.usage"]
    } == {
        ("input", sum(span.attributes[names.GEN_AI_INPUT_TOKENS] for span in lives)),
        ("output", 8),
    }


def test_a_provider_is_waited_for(tmp_path: Path, reader: InMemoryMetricReader, monkeypatch: pytest.MonkeyPatch):
    """Requests that end before the program has a provider are not measured in it; it is found once."""
    write(tmp_path, [life(1)], [life(2)], [life(1)], [life(2)])
    found = []

    def since() -> int:
        found.append("found")
        return life(2).end_ns

    metrics = ProgramMetrics(tmp_path / "main-1.records", since)
    metrics.check()
    assert found == []
    provider = MeterProvider([reader])
    monkeypatch.setattr(api, "get_meter_provider", lambda: provider)
    metrics.check()
    metrics.end()
    assert measured(reader)["gen_ai.server.request.duration"] == [(ABOUT, 4, 2)]
    assert found == ["found"]


PROGRAM = """
import sys
from tracellm.probes.recording import Recording
from tracellm.probes.context.call_context import USER_SPAN, state
if "own" in sys.argv:
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    metrics.set_meter_provider(MeterProvider())
with Recording(sys.argv[1]) as recording:
    recording._metrics.check()
    now = state.clock()
    life = {
        "name": "REQUEST", "trace_id": "a" * 32, "span_id": "b" * 16, "parent_span_id": None, "start": now, "end": now,
        "attributes": {"gen_ai.response.finish_reasons": ["length"]}, "events": [], "links": [], "error": None,
    }
    state.append((USER_SPAN, 1, 0, 0, now, now, life, None))
print(recording.stats["export"]["errors"])
""".replace("REQUEST", names.REQUEST_SPAN)


@pytest.mark.parametrize("own", [False, True])
def test_a_life_is_measured_once(tmp_path: Path, collector: Collecting, own: bool):
    """Lives are measured and sent for a program without a MeterProvider, but not for one with its own."""
    options = ["own"] if own else []
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path, *options], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    assert any(span.name == names.REQUEST_SPAN for span in collector.spans)
    if own:
        assert collector.metrics == {}
    else:
        [point] = collector.metrics["gen_ai.server.request.duration"].histogram.data_points
        assert point.count == 1
        assert values(point.attributes)["gen_ai.provider.name"] == "tracellm"


def test_a_collector_without_metrics_costs_a_line(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch
):
    """A collector without metrics still gets the spans; one line has its answer and the remedy."""
    collector.takes_metrics = False
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"['metrics for {collector.endpoint}/v1/metrics: Failed to export metrics batch code: 404, reason: Not Found "
        "(OTEL_METRICS_EXPORTER=none sends none)']\n"
    )
    assert any(span.name == names.REQUEST_SPAN for span in collector.spans)


def test_a_module_that_is_just_being_imported_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """During an import of OpenTelemetry in another thread there is no provider yet, and no error."""
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", ModuleType("opentelemetry.metrics"))
    assert program_provider() is None
