"""Recording of users' OpenTelemetry spans, and the program's own exports, which stay unchanged."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import SpanProcessor, SynchronousMultiSpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tests.otel.users import Program, ask_for_tracers, current, leaf, make_program, one, program, record, tracer, tree
from tests.probes import tracing
from tracellm import probe
from tracellm.probes.context.call_context import USER_UPDATE, state
from tracellm.probes.context.clock import Clock
from tracellm.probes.otel.user_spans import Started, span_data
from tracellm.probes.recording import Recording
from tracellm.probes.spans.builder import span_from
from tracellm.probes.spans.converter import convert_folder
from tracellm.trace import model, names
from tracellm.trace.run_folder import RunFolder, write_manifest

__all__ = ["program", "tracer"]

OTHER = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1))


def buys(tracer: trace.Tracer) -> None:
    """Open a span with every kind of data."""
    with tracer.start_as_current_span("draft", kind=SpanKind.CLIENT, links=[Link(OTHER, {"why": "retry"})]) as span:
        span.update_name("GET /v1/order.json")
        span.set_attribute("items", 3)
        span.set_attributes({"user": "Ada", "prices": (1.5, 2.5), "paid": False, "http.request.method": "GET"})
        span.add_event("packed", {"boxes": 2})
        span.set_status(Status(StatusCode.OK))
        span.set_status(Status(StatusCode.ERROR, "OK is final"))


def test_all_that_a_span_was_told(tracer: trace.Tracer, tmp_path: Path):
    """Name, kind, attributes, events, links, the tracer's name and the user's line are recorded."""
    recorded = record(tmp_path, lambda: buys(tracer))
    span = one(recorded, "GET /v1/order.json")
    actual = span.attributes
    assert {name: actual[name] for name in ("items", "user", "prices", "paid")} == {
        "items": 3, "user": "Ada", "prices": [1.5, 2.5], "paid": False
    }  # fmt: skip
    assert actual[names.SCOPE] == actual[names.LIFELINE] == "shop"
    assert (actual[names.SCOPE_VERSION], actual[names.SPAN_KIND]) == ("1.2", "client")
    assert actual[names.CALLER_TEXT].startswith('with tracer.start_as_current_span("draft"')
    assert (span.method, span.level, span.error) == ("GET /v1/order.json", "request", None)
    [event], [link] = span.events, span.links
    assert (event.name, event.attributes) == ("packed", {"boxes": 2})
    assert (link.trace_id, link.span_id, link.attributes) == (f"{0xABC:032x}", f"{0xDEF:016x}", {"why": "retry"})


def chatters(tracer: trace.Tracer) -> None:
    """Give a span more data than its limits."""
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=True)
    with tracer.start_as_current_span("chatty", links=[trace.Link(context)] * 4) as span:
        for number in range(150):
            span.add_event(str(number))
            span.set_attribute(f"n{number}", number)
        span.set_attribute("n149", 0)


def test_a_span_that_is_told_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The last attributes, events and links within the limits of the program's SDK are kept; others are counted."""
    monkeypatch.setenv("OTEL_SPAN_EVENT_COUNT_LIMIT", "100")
    monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "3")
    span = one(record(tmp_path, lambda: chatters(make_program().tracer)), "chatty")
    assert [event.name for event in span.events] == [str(number) for number in range(50, 150)]
    given = {name: value for name, value in span.attributes.items() if name.startswith("n")}
    assert given == {f"n{number}": number for number in range(22, 149)} | {"n149": 0}
    assert len(span.links) == 3
    dropped = names.DROPPED_ATTRIBUTES, names.DROPPED_EVENTS, names.DROPPED_LINKS
    assert [span.attributes[name] for name in dropped] == [22, 50, 1]


def test_names_that_mean_more_here(tracer: trace.Tracer, tmp_path: Path):
    """An attribute reserved for the engine's threads, messages and HTTP requests is kept under `user.`."""

    def main() -> None:
        tracer.start_span("span", attributes={"http.request.method": "GET", "tracellm.step.index": 3}).end()

    actual = one(record(tmp_path, main), "span").attributes
    assert (actual["user.http.request.method"], actual["user.tracellm.step.index"]) == ("GET", 3)
    assert not {names.HTTP_METHOD, names.STEP_INDEX} & actual.keys()


def test_without_texts_only_numbers_are_told(tracer: trace.Tracer, tmp_path: Path):
    """With `--no-text` a span keeps its name, its numbers and an exception's class, but no user text."""

    def main() -> None:
        with tracer.start_as_current_span("span", links=[Link(OTHER, {"secret": "x"})]) as span:
            span.set_attributes({"secret": "x", "items": 3, "secrets": ("x",)})
            span.add_event("packed", {"secret": "x", "boxes": 2})
            raise ValueError("secret")

    recorded = record(tmp_path, main, text=False)
    span = one(recorded, "span")
    assert span.error == "ValueError"
    assert [event.attributes for event in span.events] == [{"boxes": 2}, {names.EXCEPTION_TYPE: "ValueError"}]
    assert "secret" not in "".join(file.read_text() for file in tmp_path.rglob("*.jsonl"))


def test_an_exception_is_the_spans(tracer: trace.Tracer, tmp_path: Path):
    """An exception that leaves a span marks it as failed, as it does a call."""

    def main() -> None:
        with tracer.start_as_current_span("span"):
            raise ValueError("nothing left")

    span = one(record(tmp_path, main), "span")
    assert span.error == "ValueError: nothing left"
    assert span.attributes[names.ERROR_TYPE] == "ValueError"
    [event] = span.events
    assert event.attributes[names.EXCEPTION_MESSAGE] == "nothing left"
    assert "raise ValueError" in str(event.attributes[names.EXCEPTION_STACKTRACE])


def test_times_are_the_recordings_clock(tracer: trace.Tracer, tmp_path: Path):
    """A span lies between the clock readings around it."""

    def main() -> None:
        for _ in range(100):
            leaf()
            with tracer.start_as_current_span("span"):
                leaf()
                tracer.start_span("inner").end()

    recorded = record(tmp_path, main)
    leaves, inner = recorded.named("leaf"), recorded.named("inner")
    for before, span, inside, innermost in zip(leaves[::2], recorded.named("span"), leaves[1::2], inner, strict=True):
        assert before.end_ns <= span.start_ns <= inside.start_ns < inside.end_ns
        assert inside.end_ns <= innermost.start_ns <= innermost.end_ns <= span.end_ns
    assert recorded.roots[0].start_ns <= leaves[0].start_ns


def test_times_that_the_user_gives(tmp_path: Path):
    """Times given by the user, also of events, are shifted by the offset of the recording's clock."""
    program = make_program()
    ahead = 10**15
    given = time.time_ns() - 10**12

    def main() -> None:
        ask_for_tracers()
        span = program.tracer.start_span("given", start_time=given)
        span.add_event("packed", timestamp=given + 3)
        span.end(given + 7)

    clock = Clock(time.perf_counter_ns, time.time_ns() + ahead, time.perf_counter_ns())
    span = one(tracing.record(tmp_path, main, clock=clock), "given")
    assert abs(span.start_ns - given - ahead) < 10**11
    assert abs(span.end_ns - given - ahead) < 10**11
    assert span.events[0].time_ns - span.start_ns == 3


def test_a_span_that_does_not_end_is_told_of(tracer: trace.Tracer, tmp_path: Path):
    """A span still open at the end of the recording is recorded without an end, with its attributes so far."""
    recorded = record(tmp_path, lambda: tracer.start_span("span", attributes={"items": 3}))
    assert one(recorded, "span").open
    assert one(recorded, "span").attributes["items"] == 3


def tells() -> None:
    """Add data to the current span."""
    span = trace.get_current_span()
    assert span.is_recording()
    span.set_attribute("seen", True)
    span.set_attributes({"by": "leaf"})
    span.add_event("told", {"times": 1})
    span.record_exception(ValueError("caught"))
    span.add_link(OTHER)
    span.set_status(StatusCode.ERROR, "told so")
    span.update_name("renamed")


@probe(name="told")
def annotated() -> None:
    """A probed call that adds data to the current span."""
    tells()


def test_what_the_current_span_is_told_is_the_calls(tmp_path: Path):
    """Attributes, events and links of the current span are recorded with the call, which keeps its name and status."""

    def main() -> None:
        annotated()
        leaf()
        tells()

    recorded = record(tmp_path, main)
    for span in (one(recorded, "told"), recorded.roots[0]):
        assert (span.attributes["seen"], span.attributes["by"]) == (True, "leaf")
        assert [(event.name, span.start_ns <= event.time_ns <= span.end_ns) for event in span.events] == [
            ("told", True), ("exception", True)
        ]  # fmt: skip
        assert span.links[0].span_id == f"{0xDEF:016x}"
        assert (span.method, span.error) in (("told", None), ("py", None))
    assert "seen" not in one(recorded, "leaf").attributes


def test_what_is_set_on_a_call_is_plain_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Data set on a call's span is JSON-serializable, and without texts has none of the user's."""
    kept: list[Any] = []
    with Recording(tmp_path, catalog=(), text=False), monkeypatch.context() as context:
        context.setattr(state, "append", kept.append)
        span = trace.get_current_span()
        span.set_attributes({"items": 3, "secret": "x"})
        other: Any = Path("secret")
        span.set_attribute("path", other)
        span.add_event("packed", {"boxes": (1, 2), "what": other})
        span.record_exception(ValueError("secret"))
        span.add_link(OTHER, {"why": "secret", "times": 2})
    assert {record[0] for record in kept} == {USER_UPDATE}
    attributes, _, event, exception, link = json.loads(json.dumps([record[6] for record in kept]))
    assert attributes[0] == {"items": 3}
    assert (event[1][:2], exception[1][:2]) == (
        ["packed", {"boxes": [1, 2]}], ["exception", {names.EXCEPTION_TYPE: "ValueError"}]
    )  # fmt: skip
    assert link[2] == [f"{0xABC:032x}", f"{0xDEF:016x}", {"times": 2}]
    assert "secret" not in json.dumps(kept)


def test_what_is_told_after_a_call_is_not_kept(tmp_path: Path):
    """Data added to a call's span after the call is ignored."""
    kept: list[trace.Span] = []

    @probe(name="keeps")
    def keeps() -> None:
        kept.append(trace.get_current_span())

    def main() -> None:
        keeps()
        leaf()
        kept[0].set_attribute("late", 1)

    recorded = record(tmp_path, main)
    assert all("late" not in span.attributes for span in recorded.spans)
    kept[0].set_attribute("later", 1)  # also after the recording
    assert not kept[0].is_recording()


def shop(program: Program) -> None:
    """A program with spans in probed calls in spans."""

    @probe(name="packs")
    def packs() -> None:
        tells()
        with program.tracer.start_as_current_span("box") as span:
            span.set_attribute("size", 2)
        with program.tracer.start_as_current_span("fails"):
            raise ValueError("torn")

    with program.tracer.start_as_current_span("order", record_exception=False) as span:
        span.set_attribute("items", 3)
        packs()


def test_what_a_program_exports_stays_as_it_is(tmp_path: Path):
    """The program's exporter gets the same spans with and without a recording, except for ids and parents."""
    plain, explained = make_program(), make_program()
    with pytest.raises(ValueError, match="torn"):
        shop(plain)
    recorded = record(tmp_path, lambda: shop(explained))
    assert exports(explained) == exports(plain)
    assert [name for name, *_ in exports(plain)] == ["box", "fails", "renamed"]
    assert tree(recorded) == ["script.py", "  renamed", "    packs", "      box", "      fails"]


def exports(program: Program) -> list[Any]:
    """Return the exported data without ids and times."""
    actual = []
    for span in program.exporter.get_finished_spans():
        events = [
            {"event": event.name, **(event.attributes or {}), names.EXCEPTION_STACKTRACE: ""} for event in span.events
        ]
        links = [(link.context.span_id, dict(link.attributes or {})) for link in span.links]
        actual.append((span.name, dict(span.attributes or {}), events, links, span.status.status_code, span.kind))
    return actual


def test_a_program_without_the_sdk(tmp_path: Path):
    """No-op spans of the bare API are not recorded; in them the enclosing call stays current and a parent."""
    seen: list[Any] = []

    @probe(name="outer")
    def outer() -> None:
        with trace.NoOpTracerProvider().get_tracer("shop").start_as_current_span("order"):
            seen.append(current())
            leaf()

    recorded = record(tmp_path, outer)
    assert tree(recorded) == ["script.py", "  outer", "    leaf"]
    assert seen == [(one(recorded, "outer").trace_id, one(recorded, "outer").span_id)]
    assert names.OUTSIDE not in one(recorded, "leaf").attributes


def test_a_provider_that_is_made_in_the_recording(tmp_path: Path):
    """A provider created in one recording is recorded there and in the next."""
    tracers: list[trace.Tracer] = []

    def main() -> None:
        tracers.append(TracerProvider(shutdown_on_exit=False).get_tracer("shop"))
        tracers[0].start_span("first").end()

    assert tree(record(tmp_path / "a", main)) == ["script.py", "  first"]
    tracers[0].start_span("between").end()
    assert tree(record(tmp_path / "b", lambda: tracers[0].start_span("second").end())) == ["script.py", "  second"]


def test_a_provider_whose_processors_replace_one_another(tmp_path: Path):
    """The recording adds its processor without a subclass's own `add_span_processor` (Phoenix removes others there)."""
    added: list[SpanProcessor] = []

    class Provider(TracerProvider):
        def add_span_processor(self, span_processor: SpanProcessor) -> None:
            added.append(span_processor)
            super().add_span_processor(span_processor)

    def main() -> None:
        provider = Provider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
        provider.get_tracer("shop").start_span("order").end()

    assert tree(record(tmp_path, main)) == ["script.py", "  order"]
    assert len(added) == 1


SCRIPT = """
import sys
from pathlib import Path
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tracellm.probes.recording import Recording

provider = TracerProvider()
tracer = provider.get_tracer("shop")
tracer.start_span("before").end()
if sys.argv[2] == "before":
    trace.set_tracer_provider(provider)
with Recording(Path(sys.argv[1]), catalog=()):
    if sys.argv[2] == "within":
        trace.set_tracer_provider(provider)
    with tracer.start_as_current_span("order"):
        pass
"""


@pytest.mark.parametrize("when", ["before", "within"])
def test_the_global_provider(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The global provider is recorded, also for earlier tracers; the recording never creates one."""
    if when == "within":
        monkeypatch.setenv("OTEL_PYTHON_TRACER_PROVIDER", "sdk_tracer_provider")
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path), when], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    write_manifest(tmp_path, {"schema": 1})
    assert tree(RunFolder.open(tmp_path).trace)[1:] == ["  order"]


def test_providers_that_share_their_processors(tmp_path: Path):
    """A span of one of two providers with the same processors is recorded once."""

    def main() -> None:
        shared = SynchronousMultiSpanProcessor()
        for _ in range(2):
            provider = TracerProvider(shutdown_on_exit=False, active_span_processor=shared)
            provider.get_tracer("shop")
        provider.get_tracer("shop").start_span("order").end()

    assert tree(record(tmp_path, main)) == ["script.py", "  order"]


class Sends(OTLPSpanExporter):
    """An OTLP exporter without a connection."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@pytest.mark.parametrize("exporter", [Sends, InMemorySpanExporter])
def test_whether_the_program_sends_its_spans_itself(exporter: type[SpanExporter], tmp_path: Path):
    """A span is marked as sent by the program if its provider has an exporter for OTLP."""

    def main() -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter()))
        provider.get_tracer("shop").start_span("order").end()
        TracerProvider(shutdown_on_exit=False).get_tracer("shop").start_span("other").end()

    recorded = record(tmp_path, main)
    assert one(recorded, "order").attributes.get(names.SENT, False) is (exporter is Sends)
    assert names.SENT not in one(recorded, "other").attributes


def test_a_span_as_plain_data():
    """All recorded data of a span can be written as JSON, and gives the same span again."""
    program = make_program()
    buys(program.tracer)
    [span] = program.exporter.get_finished_spans()
    assert span.start_time is not None
    started = Started(7, 1, -span.start_time, "a" * 16, {names.LIFELINE: "shop"})
    data = json.loads(json.dumps(span_data(span, started, 50_000_000, sent=True, text=True)))
    made = span_from(data, 1000)
    assert (made.name, made.parent_span_id, made.start_ns, made.end_ns) == (span.name, "a" * 16, 1000, 50_001_000)
    assert made.attributes == {
        "items": 3, "user": "Ada", "prices": [1.5, 2.5], "paid": False, "user.http.request.method": "GET",
        names.LIFELINE: "shop", names.LEVEL: "request", names.SCOPE: "shop", names.SCOPE_VERSION: "1.2",
        names.SPAN_KIND: "client", names.SENT: True,
    }  # fmt: skip
    assert [(one.name, one.time_ns, one.attributes) for one in made.events] == [
        ("packed", span.events[0].timestamp - span.start_time + 1000, {"boxes": 2})
    ]
    assert made.links == [model.Link(f"{0xABC:032x}", f"{0xDEF:016x}", {"why": "retry"})]


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from opentelemetry.sdk.trace import TracerProvider
from tracellm import probe
from tracellm.probes.recording import Recording

@probe
def leaf(): ...

def content():
    return b"".join(file.read_bytes() for file in folder.rglob("*.records"))

folder = Path(sys.argv[1])
with Recording(folder, catalog=()):
    with TracerProvider().get_tracer("shop").start_as_current_span("order"):
        leaf()
        while not all(name in content() for name in (b"order", b"leaf")):
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_span_of_a_killed_program(tmp_path: Path):
    """A program killed within a span leaves that span, open, with its calls below."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    convert_folder(tmp_path)
    write_manifest(tmp_path, {"schema": 1})
    recorded = RunFolder.open(tmp_path).trace
    assert tree(recorded)[1:] == ["  order", "    leaf"]
    assert one(recorded, "order").open


def test_nothing_is_imported_for_who_does_not_use_it(tmp_path: Path):
    """A recording of a program without OpenTelemetry does not import it."""
    code = f"""
import sys
from tracellm.probes.recording import Recording
with Recording({str(tmp_path)!r}, catalog=()):
    pass
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
