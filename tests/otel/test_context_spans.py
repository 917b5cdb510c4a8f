"""What users tell through OpenTelemetry is recorded, and what their program exports stays as it is."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tests.otel.users import Program, bare_tracer, leaf, make_program, one, program, tracer, tree
from tests.probes.tracing import outline, record, times
from tracellm import probe
from tracellm.probes.otel.limits import LimitedAttributes, most
from tracellm.trace import names
from tracellm.trace.run_folder import MANIFEST, RunFolder, write_manifest

__all__ = ["program", "tracer"]

OTHER = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1))


def buys(tracer: trace.Tracer) -> None:
    """A span that is told everything that a span can be told."""
    with tracer.start_as_current_span("draft", kind=SpanKind.CLIENT, links=[Link(OTHER, {"why": "retry"})]) as span:
        span.update_name("GET /v1/order.json")
        span.set_attribute("items", 3)
        span.set_attributes({"user": "Ada", "prices": (1.5, 2.5), "paid": False, "http.request.method": "GET"})
        span.add_event("packed", {"boxes": 2})
        span.set_status(Status(StatusCode.OK))
        span.set_status(Status(StatusCode.ERROR, "OK is final"))


@pytest.mark.parametrize("get_tracer", [lambda: make_program().tracer, bare_tracer], ids=["sdk", "bare"])
def test_all_that_a_span_was_told(get_tracer: Callable[[], trace.Tracer], tmp_path: Path):
    """Name, kind, attributes, events, links, the tracer's name and the user's line are recorded."""
    recorded = record(tmp_path, lambda: buys(get_tracer()))
    span = one(recorded, "GET /v1/order.json")
    told = span.attributes
    assert {name: told[name] for name in ("items", "user", "prices", "paid")} == {
        "items": 3, "user": "Ada", "prices": [1.5, 2.5], "paid": False
    }  # fmt: skip
    assert told[names.SCOPE] == told[names.LIFELINE] == "shop"
    assert (told[names.SCOPE_VERSION], told[names.SPAN_KIND]) == ("1.2", "client")
    assert told[names.CALLER_TEXT].startswith('with tracer.start_as_current_span("draft"')
    assert (span.method, span.level, span.error) == ("GET /v1/order.json", "request", None)
    [event], [link] = span.events, span.links
    assert (event.name, event.attributes) == ("packed", {"boxes": 2})
    assert (link.trace_id, link.span_id, link.attributes) == (f"{0xABC:032x}", f"{0xDEF:016x}", {"why": "retry"})


def chatters(tracer: trace.Tracer) -> None:
    """More than a span may be told."""
    context = trace.SpanContext(0xABC, 0xDEF, is_remote=True)
    with tracer.start_as_current_span("chatty", links=[trace.Link(context)] * 4) as span:
        for number in range(150):
            span.add_event(str(number))
            span.set_attribute(f"n{number}", number)
        span.set_attribute("n149", 0)


@pytest.mark.parametrize("get_tracer", [lambda: make_program().tracer, bare_tracer], ids=["sdk", "bare"])
def test_a_span_that_is_told_too_much(
    get_tracer: Callable[[], trace.Tracer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The last of attributes, events and links are kept, as many as OpenTelemetry's limits say, the others counted."""
    monkeypatch.setenv("OTEL_SPAN_EVENT_COUNT_LIMIT", "100")
    monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "3")
    span = one(record(tmp_path, lambda: chatters(get_tracer())), "chatty")
    assert [event.name for event in span.events] == [str(number) for number in range(50, 150)]
    given = {name: value for name, value in span.attributes.items() if name.startswith("n")}
    assert given == {f"n{number}": number for number in range(22, 149)} | {"n149": 0}
    assert len(span.links) == 3
    dropped = names.DROPPED_ATTRIBUTES, names.DROPPED_EVENTS, names.DROPPED_LINKS
    assert [span.attributes[name] for name in dropped] == [22, 50, 1]


@pytest.mark.parametrize(("told", "limit"), [(None, 128), ("7", 7), ("0", 0), (" ", None), ("-1", 128), ("many", 128)])
def test_limits_are_what_the_variables_say(told: str | None, limit: int | None, monkeypatch: pytest.MonkeyPatch):
    """Empty is no limit, and what the SDK would refuse is none that was set; of 0 nothing is kept."""
    monkeypatch.delenv("OTEL_ATTRIBUTE_COUNT_LIMIT", raising=False)
    if told is not None:
        monkeypatch.setenv("OTEL_ATTRIBUTE_COUNT_LIMIT", told)
    assert most("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT") == limit
    attributes = LimitedAttributes(limit)
    attributes.update({"a": 1, "b": 2})
    assert (len(attributes.kept), attributes.dropped) == ((0, 2) if limit == 0 else (2, 0))


def test_an_engines_own_spans_are_left_out(tmp_path: Path):
    """vLLM traces itself, by tracers called as its modules: those spans are not recorded, what is called in them is."""
    provider = trace.NoOpTracerProvider()

    def main() -> None:
        engines = provider.get_tracer("vllm.v1.engine.core")
        with provider.get_tracer("shop").start_as_current_span("outer"):
            with engines.start_as_current_span("EngineCore init"):
                leaf()
                provider.get_tracer("vllmore").start_span("inner").end()
            engines.start_span("Load weights").end()

    assert outline(record(tmp_path, main)) == "script.py\n  outer\n    leaf\n    inner"


def test_names_that_mean_more_here(tracer: trace.Tracer, tmp_path: Path):
    """An attribute by which reports know the engine's own threads, messages and HTTP requests is kept under `user.`."""

    def main() -> None:
        tracer.start_span("span", attributes={"http.request.method": "GET", "tracellm.step.index": 3}).end()

    told = one(record(tmp_path, main), "span").attributes
    assert (told["user.http.request.method"], told["user.tracellm.step.index"]) == ("GET", 3)
    assert not {names.HTTP_METHOD, names.STEP_INDEX} & told.keys()


def test_without_texts_only_numbers_are_told(tracer: trace.Tracer, tmp_path: Path):
    """With `--no-text` a span keeps its name, its numbers, and the class of an exception; no text of the user's."""

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
    """An exception that leaves a span makes it one that failed, as it does a call."""

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
    """A span lies between the readings of the clock around it; times that the user gives are taken as they are."""
    given = time.time_ns()

    def main() -> None:
        leaf()
        with tracer.start_as_current_span("span"):
            leaf()
        tracer.start_span("given", start_time=given).end(given + 7)

    recorded = record(tmp_path, main)
    before, inside = recorded.named("leaf")
    span = one(recorded, "span")
    assert times(before)[1] < times(span)[0] < times(inside)[0] < times(inside)[1] < times(span)[1]
    assert (one(recorded, "given").start_ns, one(recorded, "given").end_ns) == (given, given + 7)


def test_a_span_that_does_not_end_is_told_of(tracer: trace.Tracer, tmp_path: Path):
    """Of a span that is under way when the recording ends there is one without an end, with what it was told so far."""
    recorded = record(tmp_path, lambda: tracer.start_span("span", attributes={"items": 3}))
    assert one(recorded, "span").open
    assert one(recorded, "span").attributes["items"] == 3


def tells() -> None:
    """Tells the current span something, whichever that is."""
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
def told() -> None:
    """A probed call that tells the current span something."""
    tells()


def test_what_the_current_span_is_told_is_the_calls(tmp_path: Path):
    """Attributes, events and links of the current span are recorded with the call, which keeps its name and status."""

    def main() -> None:
        told()
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


def test_what_is_told_after_a_call_is_not_kept(tmp_path: Path):
    """Who keeps the current span of a call and tells it more after the call disturbs nothing."""
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
    kept[0].set_attribute("later", 1)  # and so after the recording
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
    """What the program's exporter gets is the same with and without a recording, but for ids and parents."""
    plain, explained = make_program(), make_program()
    with pytest.raises(ValueError, match="torn"):
        shop(plain)
    recorded = record(tmp_path, lambda: shop(explained))
    assert exports(explained) == exports(plain)
    assert [name for name, *_ in exports(plain)] == ["box", "fails", "renamed"]
    assert tree(recorded) == ["script.py", "  renamed", "    packs", "      box", "      fails"]


def exports(program: Program) -> list[Any]:
    """All but ids and times of what was exported."""
    told = []
    for span in program.exporter.get_finished_spans():
        events = [
            {"event": event.name, **(event.attributes or {}), names.EXCEPTION_STACKTRACE: ""} for event in span.events
        ]
        links = [(link.context.span_id, dict(link.attributes or {})) for link in span.links]
        told.append((span.name, dict(span.attributes or {}), events, links, span.status.status_code, span.kind))
    return told


SCRIPT = """
import sys
from opentelemetry import trace
from tracellm import probe

tracer = trace.get_tracer("shop")

@probe
@tracer.start_as_current_span("order")
def orders():
    return format(trace.get_current_span().get_span_context().span_id, "016x")

print(orders(), "opentelemetry.sdk" in sys.modules)
"""


def test_a_script_without_the_sdk(tmp_path: Path):
    """Spans of the bare API are recorded where no SDK is set up, under the name that the tracer was asked for with."""
    script, folder = tmp_path / "script.py", tmp_path / "run"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "tracellm", "run", "--explain", "--out", str(folder), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = next(folder.parent.rglob(MANIFEST))
    recorded = RunFolder.open(manifest.parent).trace
    span = one(recorded, "order")
    assert done.stdout.splitlines()[0] == f"{span.span_id} False"
    assert span.attributes[names.SCOPE] == "shop"
    assert tree(recorded) == ["script.py", "  orders", "    order"]


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from opentelemetry import trace
from tracellm import probe
from tracellm.probes.session import Recording

@probe
def leaf(): ...

folder = Path(sys.argv[1])
with Recording(folder, catalog=()):
    with trace.get_tracer("shop").start_as_current_span("order"):
        leaf()
        while not all(name in text() for name in ('"order"', '"leaf"')):
            threading.Event().wait(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_span_of_a_killed_program(tmp_path: Path):
    """Of a program that is killed within a span there is that span, open, and below it what was called in it."""
    text = "text = lambda: ''.join(file.read_text() for file in folder.rglob('*.jsonl'))"
    code = KILLED.replace("with Recording", f"{text}\nwith Recording", 1)
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    write_manifest(tmp_path, {"schema": 1})
    recorded = RunFolder.open(tmp_path).trace
    assert tree(recorded)[1:] == ["  order", "    leaf"]
    assert one(recorded, "order").open


def test_nothing_is_imported_for_who_does_not_use_it(tmp_path: Path):
    """A recording of a program without OpenTelemetry does not import it."""
    code = f"""
import sys
from tracellm.probes.session import Recording
with Recording({str(tmp_path)!r}, catalog=()):
    pass
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
