"""Contents of an export: resources, texts, the program's own spans, open calls."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.otel.collecting import Collecting, values
from tests.otel.sending import TRACE, send, spans, write
from tracellm.trace.model import Event, Link, Span


def test_what_is_asked_for_is_honoured(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """Headers, compression, the service's name and its resource are those of the standard variables."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.name=other")
    send(write(tmp_path, spans(1), process={"service.name": "tracellm", "process.pid": 7}))
    assert collector.headers[0]["authorization"] == "Bearer key"
    assert collector.headers[0]["content-encoding"] == "gzip"
    assert values(collector.resources[0].resource.attributes) == {
        "service.name": "mine",
        "process.pid": 7,
        "tracellm.process.name": "main",
        "deployment.environment": "test",
    }


@pytest.mark.parametrize("wanted", [False, True])
def test_texts_leave_only_when_asked_for(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch, wanted: bool
):
    """Prompts and generated texts are sent only if their variable is true; links, events and errors always."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", str(wanted))
    attributes = {"tracellm.request.prompt": "secret", "tracellm.step.requests": ["0", "1"], "gen_ai.request.top_k": 0}
    event = Event("exception", 5, {"exception.message": "no"})
    link = Link("f" * 32, "e" * 16, {"tracellm.request.id": "0"})
    send(write(tmp_path, spans(1, attributes=attributes, events=[event], links=[link], error="ValueError: no")))
    [span] = collector.spans
    shown = {name: value for name, value in attributes.items() if wanted or name != "tracellm.request.prompt"}
    assert values(span.attributes) == shown
    assert (span.events[0].name, span.events[0].time_unix_nano) == ("exception", 5)
    assert values(span.events[0].attributes) == {"exception.message": "no"}
    assert (span.links[0].trace_id.hex(), span.links[0].span_id.hex()) == ("f" * 32, "e" * 16)
    assert values(span.links[0].attributes) == {"tracellm.request.id": "0"}
    assert (span.status.message, span.status.code) == ("ValueError: no", 2)


def test_spans_of_the_programs_own(tmp_path: Path, collector: Collecting):
    """A span opened by the program keeps its data; one that the program sends itself is not sent again."""
    own = {"otel.scope.name": "my.library", "otel.scope.version": "2", "span.kind": "client", "mine": 1}
    ended = [
        Span("own", TRACE, "1" * 16, None, 1, 2, own),
        Span("sent", TRACE, "2" * 16, None, 1, 2, {"tracellm.sent": True}),
    ]
    going_on = Span("going on", TRACE, "3" * 16, None, 1, 2, {"tracellm.sent": True})
    assert send(write(tmp_path, ended, under_way=[going_on])) == (1, 0, [])
    [span] = collector.spans
    [scope] = collector.resources[0].scope_spans
    assert (span.name, span.kind, values(span.attributes)) == ("own", span.SPAN_KIND_CLIENT, {"mine": 1})
    assert (scope.scope.name, scope.scope.version) == ("my.library", "2")


PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tracellm.probes import probe
from tracellm.probes.recording import Recording
trace.set_tracer_provider(provider := TracerProvider())
if "sends" in sys.argv:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
with Recording(sys.argv[1], script="script.py"):
    with trace.get_tracer("mine").start_as_current_span("theirs"):
        probe(lambda: None)()
provider.shutdown()
"""


@pytest.mark.parametrize("sends", [False, True])
def test_a_span_of_the_programs_own_arrives_once(tmp_path: Path, collector: Collecting, sends: bool):
    """A program's span arrives once with its children, whether or not the program sends it."""
    options = ["sends"] if sends else []
    subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, *options], check=True)
    names = {span.span_id: span.name for span in collector.spans}
    parents = {span.name: names.get(span.parent_span_id) for span in collector.spans}
    assert len(collector.spans) == 3
    assert parents == {"script.py": None, "theirs": "script.py", "<lambda>": "theirs"}


def test_calls_under_way_are_sent_once(tmp_path: Path, collector: Collecting):
    """A call recorded as open is sent after its end; one that never ends, at the end of the run."""
    send(write(tmp_path, spans(1), under_way=spans(2)))
    assert [(span.name, "tracellm.open" in values(span.attributes)) for span in collector.spans] == [
        ("0", False),
        ("1", True),
    ]
