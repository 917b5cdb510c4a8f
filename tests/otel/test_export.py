"""A recording reaches a collector: what is sent, when it is tried again, what is lost and told."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.otel.collecting import Collecting, collecting, values
from tracellm.probes import probe
from tracellm.probes.otel import sender
from tracellm.probes.otel.follow import PIECE, Files
from tracellm.probes.otel.sender import Sender
from tracellm.probes.otel.settings import settings
from tracellm.probes.session import Recording
from tracellm.trace import otlp
from tracellm.trace.model import Event, Link, Process, Span
from tracellm.trace.run_folder import RunFolder

TRACE = "0123456789abcdef" * 2


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    """A collector, which the standard variable names."""
    with collecting() as state:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", state.endpoint)
        yield state


def spans(count: int, **options: Any) -> list[Span]:
    """Spans named by their numbers."""
    return [Span(str(n), TRACE, f"{n + 1:016x}", None, n, n + 1, **options) for n in range(count)]


def write(folder: Path, *lines: list[Span], process: Process | None = None) -> Files:
    """A recording with these lines."""
    with (folder / "main-1.jsonl").open("ab") as file:
        for line in lines:
            file.write(otlp.encode(process or Process(1, "main"), line))
    return Files(folder)


@pytest.fixture(autouse=True)
def closed_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test has read is closed at its end."""
    made: list[Files] = []
    begin = Files.__init__

    def _noted(self: Files, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(Files, "__init__", _noted)
    yield
    for files in made:
        files.close()


def send(files: Files) -> tuple[int, int, list[str]]:
    """Send a recording that has ended, with what the environment says; its account."""
    wanted = settings(os.environ)
    assert wanted is not None
    one = Sender(files, wanted)
    one.wait_from_now()
    one.run()
    return one.account()


# -- a whole recording ------------------------------------------------------------------------------------------------


@probe
def _work(n: int) -> int:
    if n == 3:
        raise ValueError("three")
    return n


def test_a_recording_arrives(tmp_path: Path, collector: Collecting):
    """Every span of a recording is sent once, with its ids, times, attributes, events and error, and is counted."""
    with Recording(tmp_path, script="script.py") as recording:
        for n in range(700):
            try:
                _work(n)
            except ValueError:
                continue
    recorded = RunFolder.open(tmp_path).trace.spans
    assert recording.stats["export"] == {
        "endpoint": f"{collector.endpoint}/v1/traces",
        "sent": 701,
        "lost": 0,
        "errors": [],
    }
    came = {span.span_id.hex(): span for span in collector.spans}
    assert len(collector.spans) == len(came) == len(recorded) == 701
    for span in recorded:
        other = came[span.span_id]
        assert (other.name, other.trace_id.hex()) == (span.name, span.trace_id)
        assert (other.parent_span_id.hex() or None) == span.parent_span_id
        assert (other.start_time_unix_nano, other.end_time_unix_nano) == (span.start_ns, span.end_ns)
        shown = {name: value for name, value in span.attributes.items() if name != "tracellm.caller.text"}
        assert values(other.attributes) == shown
        assert (other.status.message or None) == span.error
        assert [event.name for event in other.events] == [event.name for event in span.events]
    [failed] = [span for span in collector.spans if span.status.message]
    assert values(failed.events[0].attributes)["exception.message"] == "three"
    [resource] = {str(one.resource): one.resource for one in collector.resources}.values()
    assert values(resource.attributes)["process.pid"] == os.getpid()


def test_nothing_is_sent_unasked(tmp_path: Path):
    """Without the variables no process is started, and nothing is told."""
    with Recording(tmp_path) as recording:
        _work(1)
    assert "export" not in recording.stats


@pytest.mark.parametrize(("delay", "batch"), [("10", "512"), ("100000000", "1")])
def test_spans_arrive_while_the_run_goes_on(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch, delay: str, batch: str
):
    """A span is at the collector before the recording has ended: when it has waited, or when a batch is full."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", delay)
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", batch)
    with Recording(tmp_path):
        _work(1)
        collector.wait_for("_work")
        assert [span.name for span in collector.spans] == ["_work"]


def test_a_killed_run_is_sent(tmp_path: Path, collector: Collecting):
    """What a run wrote before it was killed arrives: of calls that were under way too, marked as such."""
    code = """
import os, signal, sys, time
from pathlib import Path
from tracellm.probes import probe
from tracellm.probes.session import Recording
@probe
def work(): pass
@probe
def last():
    while not (file := next(Path(sys.argv[1], "trace").glob("*.jsonl"), None)) or b'"last"' not in file.read_bytes():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
Recording(sys.argv[1], script="killed.py").start()
work()
last()
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    collector.wait_for("killed.py")
    opened = {span.name: values(span.attributes).get("tracellm.open") for span in collector.spans}
    assert opened == {"work": None, "last": True, "killed.py": True}


INTERRUPTED = """
import os, signal, sys
from tracellm.probes import probe
from tracellm.probes.session import Recording
with Recording(sys.argv[1], script="script.py") as recording:
    probe(lambda: None)()
    if (child := os.fork()) == 0:
        probe(len)("forked")
        recording.stop()
        os._exit(0)
    os.waitpid(child, 0)
    try:
        os.killpg(0, signal.SIGINT)
        while True: pass
    except KeyboardInterrupt:
        pass
print(recording.stats["export"]["sent"], recording.stats["export"]["errors"])
"""


def test_ctrl_c_and_forks_leave_it_alone(tmp_path: Path, collector: Collecting):
    """Neither Ctrl-C, which every process of a terminal gets, nor a fork that ends keeps spans from being sent."""
    command = [sys.executable, "-W", "error", "-c", INTERRUPTED, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    assert (done.stdout, done.stderr) == ("3 []\n", "")
    assert sorted(span.name for span in collector.spans) == ["<lambda>", "len", "script.py"]


# -- a collector with moods -------------------------------------------------------------------------------------------


def test_a_busy_collector_is_asked_again(tmp_path: Path, collector: Collecting):
    """Spans that a collector cannot take now, by 503 or 429, are sent again; none is lost or sent twice."""
    collector.answers = [503, 429, 503]
    assert send(write(tmp_path, spans(5))) == (5, 0, [])
    assert [span.name for span in collector.spans] == ["0", "1", "2", "3", "4"]
    assert len(collector.headers) == 4


def test_a_collector_that_comes_back_gets_everything(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch
):
    """While a run goes on, spans wait for a collector longer than an exporter tries: the first are not given up."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    collector.answers = [503] * 20  # an exporter tries six times
    assert send(write(tmp_path, spans(5))) == (5, 0, [])
    assert [span.name for span in collector.spans] == ["0", "1", "2", "3", "4"]


def test_spans_that_are_not_wanted_are_counted(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """A batch that a collector refuses is lost, which is told with its reason, once; the next batches are sent."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    collector.answers = [400, 200, 400]
    assert send(write(tmp_path, spans(7))) == (3, 4, ["it answered 400 Bad Request"])
    assert [span.name for span in collector.spans] == ["2", "3", "6"]


def test_spans_that_are_thrown_away_are_counted(tmp_path: Path, collector: Collecting):
    """A collector that takes a request and rejects some of its spans says so, and so do we."""
    collector.rejects = 2
    assert send(write(tmp_path, spans(5))) == (3, 2, ["it took a request and rejected spans of it: not these"])


def test_a_collector_that_is_down_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where nobody listens the run goes on and ends; all its spans are counted as lost, with one reason."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://user:secret@127.0.0.1:{port}/")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    with Recording(tmp_path, script="script.py") as recording:
        for n in range(600):
            _work(n + 4)
    assert recording.stats["export"] == {
        "endpoint": f"http://127.0.0.1:{port}/v1/traces",
        "sent": 0,
        "lost": 601,
        "errors": ["Connection refused"],
    }
    assert len(RunFolder.open(tmp_path).trace.spans) == 601


def test_a_collector_that_hangs_holds_nothing_up(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch
):
    """A collector that does not answer does not keep a run from ending; what is not sent is counted as lost."""
    monkeypatch.setenv("OTEL_BSP_EXPORT_TIMEOUT", "200")
    collector.gate.clear()
    with Recording(tmp_path, script="script.py") as recording:
        for _ in range(5000):
            _work(1)
    told = recording.stats["export"]
    assert (told["sent"], told["lost"]) == (0, 5001)
    assert len(told["errors"]) == 1


def test_memory_is_bounded(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """What a slow collector has not taken waits on disk: no more is read than the queue may hold."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    files = write(tmp_path, *([spans(64)] * 200))
    wanted = settings(os.environ)
    assert wanted is not None
    assert wanted.batch == 100
    one = Sender(files, wanted)
    held = []

    def _take() -> None:
        held.append(len(one._held))
        one._held.clear()

    monkeypatch.setattr(one, "_send", _take)
    one.wait_from_now()
    one.run()
    assert sum(held) == 200 * 64
    assert max(held) < 100 + 64 + PIECE / ((tmp_path / "main-1.jsonl").stat().st_size / (200 * 64))


# -- what is sent -----------------------------------------------------------------------------------------------------


def test_what_is_asked_for_is_honoured(tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch):
    """Headers, compression, the service's name and its resource are what the standard variables say."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.name=other")
    send(write(tmp_path, spans(1), process=Process(7, "main", {"service.name": "tracellm", "process.pid": 7})))
    assert collector.headers[0]["authorization"] == "Bearer key"
    assert collector.headers[0]["content-encoding"] == "gzip"
    assert values(collector.resources[0].resource.attributes) == {
        "service.name": "mine",
        "process.pid": 7,
        "deployment.environment": "test",
    }


@pytest.mark.parametrize("wanted", [False, True])
def test_texts_leave_only_when_asked_for(
    tmp_path: Path, collector: Collecting, monkeypatch: pytest.MonkeyPatch, wanted: bool
):
    """Prompts and generated texts are sent only where the variable for them says so; links, events, errors always."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", str(wanted))
    told = {"tracellm.request.prompt": "secret", "tracellm.step.requests": ["0", "1"], "gen_ai.request.top_k": 0}
    event = Event("exception", 5, {"exception.message": "no"})
    link = Link("f" * 32, "e" * 16, {"tracellm.request.id": "0"})
    send(write(tmp_path, spans(1, attributes=told, events=[event], links=[link], error="ValueError: no")))
    [span] = collector.spans
    shown = {name: value for name, value in told.items() if wanted or name != "tracellm.request.prompt"}
    assert values(span.attributes) == shown
    assert (span.events[0].name, span.events[0].time_unix_nano) == ("exception", 5)
    assert values(span.events[0].attributes) == {"exception.message": "no"}
    assert (span.links[0].trace_id.hex(), span.links[0].span_id.hex()) == ("f" * 32, "e" * 16)
    assert values(span.links[0].attributes) == {"tracellm.request.id": "0"}
    assert (span.status.message, span.status.code) == ("ValueError: no", 2)


def test_spans_of_the_programs_own(tmp_path: Path, collector: Collecting):
    """A span that the program opened is sent as what it was; one that the program sends itself is not sent again."""
    own = {"otel.scope.name": "my.library", "otel.scope.version": "2", "span.kind": "client", "mine": 1}
    lines = [
        Span("own", TRACE, "1" * 16, None, 1, 2, own),
        Span("sent", TRACE, "2" * 16, None, 1, 2, {"tracellm.sent": True}),
    ]
    assert send(write(tmp_path, lines)) == (1, 0, [])
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
from tracellm.probes.session import Recording
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
    """A span of the program's own arrives once, whether the program sends it or not, and what it called is within."""
    options = ["sends"] if sends else []
    subprocess.run([sys.executable, "-c", PROGRAM, tmp_path, *options], check=True)
    names = {span.span_id: span.name for span in collector.spans}
    parents = {span.name: names.get(span.parent_span_id) for span in collector.spans}
    assert len(collector.spans) == 3
    assert parents == {"script.py": None, "theirs": "script.py", "<lambda>": "theirs"}


def test_calls_under_way_are_sent_once(tmp_path: Path, collector: Collecting):
    """A call that was told of when it began is sent when it has ended; one that never does, at the end."""
    begun = spans(2, attributes={"tracellm.open": True})
    send(write(tmp_path, begun, spans(1)))
    assert [(span.name, "tracellm.open" in values(span.attributes)) for span in collector.spans] == [
        ("0", False),
        ("1", True),
    ]


# -- the files --------------------------------------------------------------------------------------------------------


def test_lines_are_read_when_they_are_whole(tmp_path: Path):
    """A line that is being written is read when it is whole, a damaged one is left out, and so is another recording."""
    line = otlp.encode(Process(1, "main"), spans(3))
    (tmp_path / "old-1.jsonl").write_bytes(line)
    files = Files(tmp_path, ["old-1.jsonl"])
    file = tmp_path / "main-1.jsonl"
    file.write_bytes(b'{"resourceSpans": 1}\n' + line[:50])
    assert files.new(10) == []
    file.write_bytes(b'{"resourceSpans": 1}\n' + line)
    assert [span.name for span in files.new(10)] == ["0", "1", "2"]
    assert files.new(10) == []


def test_what_is_left_is_counted_without_being_read(tmp_path: Path):
    """The count of what is left is that of the spans that would have been given, whatever their texts say."""
    tricky = {"tracellm.request.prompt": '"startTimeUnixNano":"1" {"key":"tracellm.open","value":{"boolValue":true}}'}
    lines = [spans(4, attributes=tricky), spans(9), spans(2, attributes={"tracellm.open": True})]
    assert write(tmp_path, *lines).count_rest() == len(Files(tmp_path).new(100)) == 13


def test_a_ring_is_sent_as_it_turns(tmp_path: Path, collector: Collecting):
    """With a ring, files are renamed, removed and made one; each span that is kept is sent, and none twice."""
    with Recording(tmp_path, script="script.py", ring=100) as recording:
        for n in range(1000):
            _work(n + 4)
    kept = {span.span_id for span in RunFolder.open(tmp_path).trace.spans}
    sent = [span.span_id.hex() for span in collector.spans]
    assert len(sent) == len(set(sent)) == recording.stats["export"]["sent"]
    assert kept <= set(sent)
    assert len(kept) == 100


def test_what_a_ring_lets_go_unread_is_counted(tmp_path: Path):
    """A file that is set aside is read on under its new name; what was not read when it goes is counted."""
    files = Files(tmp_path, ring=3)
    file, aside = tmp_path / "main-1.jsonl", tmp_path / "main-1.before.jsonl"
    lines = [otlp.encode(Process(1, "main"), [span]) for span in spans(9)]
    file.write_bytes(lines[0] + lines[1])
    assert [span.name for span in files.new(9)] == ["0", "1"]
    with file.open("ab") as stream:
        stream.write(lines[2])
    file.replace(aside)
    file.write_bytes(b"".join(lines[3:6]))
    assert [span.name for span in files.new(9)] == ["2", "3", "4", "5"]
    with file.open("ab") as stream:
        stream.write(lines[6] + lines[7])
    file.unlink()
    aside.unlink()
    (tmp_path / "settled").write_bytes(b"".join(lines[5:6] + lines[8:]))
    (tmp_path / "settled").replace(file)
    assert [span.name for span in files.new(9)] == ["8"]
    assert files.let_go == 2


# -- the variables ----------------------------------------------------------------------------------------------------

BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://somewhere:4318/base/"}


@pytest.mark.parametrize(
    ("told", "traces", "metrics"),
    [
        (BASE, "http://somewhere:4318/base/v1/traces", "http://somewhere:4318/base/v1/metrics"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a/b"}, "http://a/b", None),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://a/b"}, None, "http://a/b"),
        ({**BASE, "OTEL_TRACES_EXPORTER": "none"}, None, "http://somewhere:4318/base/v1/metrics"),
        ({**BASE, "OTEL_METRICS_EXPORTER": "prometheus"}, "http://somewhere:4318/base/v1/traces", None),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "http://localhost:4317",
            None,
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://me:key@host/v1?key=1"}, "https://host/v1", None),
    ],
)
def test_where_spans_and_metrics_go(told: dict[str, str], traces: str | None, metrics: str | None):
    """The addresses are those that the specification gives; what may be secret in them is not shown."""
    wanted = settings(told)
    assert wanted is not None
    assert (wanted.traces, wanted.metrics, wanted.problems) == (traces, metrics, ())


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {**BASE, "OTEL_SDK_DISABLED": "TRUE"},
        {**BASE, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    ],
)
def test_nothing_is_sent_where_that_is_said(told: dict[str, str]):
    """Without an address, or switched off, nothing is sent."""
    assert settings(told) is None


def test_variables_that_cannot_be_are_told():
    """A protocol that is not known, or a number that is none, is told; the usual number is used."""
    wanted = settings({**BASE, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json", "OTEL_BSP_MAX_QUEUE_SIZE": "many"})
    assert wanted is not None
    assert (wanted.traces, wanted.queue) == (None, 2048)
    assert wanted.problems == (
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json: http/protobuf and grpc are known",
        "OTEL_BSP_MAX_QUEUE_SIZE=many is no number above 0: 2048 is used",
    )


@pytest.mark.parametrize(("protocol", "extra"), [("http/protobuf", "otel"), ("grpc", "otel-grpc")])
def test_a_missing_library_is_told(
    tmp_path: Path,
    collector: Collecting,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    protocol: str,
    extra: str,
):
    """Without the exporter nothing is sent, everything is counted, and one line says what to install."""
    name = f"opentelemetry.exporter.otlp.proto.{protocol.partition('/')[0]}.trace_exporter"
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setattr(os, "_exit", lambda status: None)
    monkeypatch.setattr(os, "nice", lambda increment: 0)
    told = [{"traces": str(tmp_path), "earlier": [], "ring": None}, {"end": True}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, told))))
    write(tmp_path, spans(5))
    sender.main()
    assert json.loads(capsys.readouterr().out) == {
        "sent": 0,
        "lost": 5,
        "errors": [f"{name} is not installed: pip install 'tracellm[{extra}]'"],
    }
