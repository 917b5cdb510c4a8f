"""Parents from outside, unsampled spans, and recordings that begin or end within a span."""

import asyncio
import contextvars
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased

from tests.otel.users import Program, ask_for_tracers, current, leaf, make_program, one, program, record, tracer, tree
from tests.probes.test_traces import ask, of_http, serve
from tracellm import probe
from tracellm.probes.context.clock import Ids
from tracellm.probes.recording import Recording
from tracellm.trace import names
from tracellm.trace.model import Trace
from tracellm.trace.run_folder import RunFolder, write_manifest

__all__ = ["program", "tracer"]

PARENT = f"00-{0xABC:032x}-{0xDEF:016x}"


@pytest.mark.parametrize("flags", ["01", "00"])
def test_the_environment_names_a_parent(flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """TRACEPARENT is the script's parent and gives the trace; its sampling flag is passed on."""
    monkeypatch.setenv("TRACEPARENT", f"{PARENT}-{flags}")
    seen: list[Any] = []

    @probe
    def looks() -> None:
        seen.append(trace.get_current_span().get_span_context().trace_flags.sampled)

    recorded = record(tmp_path, lambda: (leaf(), looks()))
    [root] = recorded.roots
    assert (root.name, root.trace_id, root.parent_span_id) == ("script.py", f"{0xABC:032x}", f"{0xDEF:016x}")
    assert root.attributes[names.OUTSIDE] is True
    assert {span.trace_id for span in recorded.spans} == {root.trace_id}
    assert recorded.orphans == []
    assert seen == [flags == "01"]


def test_a_damaged_parent_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An invalid TRACEPARENT is ignored."""
    monkeypatch.setenv("TRACEPARENT", "00-0-0-01")
    [root] = record(tmp_path, leaf).roots
    assert root.parent_span_id is None
    assert names.OUTSIDE not in root.attributes


def start(folder: Path) -> Recording:
    """Start a recording."""
    recording = Recording(folder, ids=Ids.counting(), script="script.py", catalog=())
    recording.start()
    ask_for_tracers()
    return recording


def read(folder: Path, recording: Recording) -> Trace:
    """Return the trace of an ended recording."""
    write_manifest(folder, {"schema": 1, "probes": recording.stats})
    return RunFolder.open(folder).trace


@pytest.fixture
def own_context() -> Iterator[None]:
    """Isolate the contexts that a test attaches without detaching."""
    token = context.attach(context.Context())
    yield
    context.detach(token)


@pytest.mark.usefixtures("own_context")
def test_recording_within_a_span(program: Program, tmp_path: Path):
    """A recording within a span has it as parent, and leaves it current and unchanged."""
    with program.tracer.start_as_current_span("around") as around:
        recording = start(tmp_path)
        leaf()
        trace.get_current_span().set_attribute("seen", 1)
        with program.tracer.start_as_current_span("within"):
            leaf()
        recording.stop()
        assert trace.get_current_span() is around
        around.set_attribute("after", 2)
    recorded = read(tmp_path, recording)
    ids = around.get_span_context()
    [root] = recorded.roots
    assert (root.trace_id, root.parent_span_id) == (f"{ids.trace_id:032x}", f"{ids.span_id:016x}")
    assert tree(recorded) == ["script.py", "  leaf", "  within", "    leaf"]
    assert dict(program.exported["around"].attributes or {}) == {"seen": 1, "after": 2}


@pytest.mark.usefixtures("own_context")
def test_a_recording_begins_in_one_span_and_ends_in_another(tracer: trace.Tracer, tmp_path: Path):
    """A span begun before the recording is not in it; one that ends after the recording is open."""
    first = tracer.start_span("first")
    token = context.attach(trace.set_span_in_context(first))
    recording = start(tmp_path / "a")
    leaf()
    context.detach(token)
    first.end()
    leaf()
    second = tracer.start_span("second")
    token = context.attach(trace.set_span_in_context(second))
    leaf()
    recording.stop()
    leaf()
    again = start(tmp_path / "b")
    leaf()
    context.detach(token)
    second.end()
    leaf()
    again.stop()
    recorded = read(tmp_path / "a", recording)
    assert tree(recorded) == ["script.py", "  leaf", "  leaf", "  second", "    leaf"]
    assert one(recorded, "second").open
    assert tree(read(tmp_path / "b", again)) == ["script.py", "  leaf", "  leaf"]


@pytest.mark.usefixtures("own_context")
def test_a_span_of_an_earlier_recording_says_nothing(tracer: trace.Tracer, tmp_path: Path):
    """A span that was current at the end of one recording has no calls of the next one."""
    recording = start(tmp_path / "a")
    token = context.attach(trace.set_span_in_context(tracer.start_span("span")))
    recording.stop()
    context.detach(token)
    again = start(tmp_path / "b")
    trace.get_current_span().set_attribute("seen", 1)
    leaf()
    again.stop()
    recorded = read(tmp_path / "b", again)
    assert tree(recorded) == ["script.py", "  leaf"]
    assert recorded.roots[0].attributes["seen"] == 1


@pytest.mark.parametrize("waits", [False, True])
def test_a_coroutine_goes_on_from_one_recording_into_the_next(waits: bool, tracer: trace.Tracer, tmp_path: Path):
    """A context attached by a coroutine in an ended recording has no effect in the next one."""

    async def works() -> None:
        first = start(tmp_path / "a")
        with tracer.start_as_current_span("span"):
            leaf()
            first.stop()
            second = start(tmp_path / "b")
            await asyncio.sleep(0)
            leaf()
            with tracer.start_as_current_span("inner"):
                leaf()
        leaf()
        second.stop()
        assert tree(read(tmp_path / "a", first)) == ["script.py", "  span", "    leaf"]
        assert tree(read(tmp_path / "b", second)) == ["script.py", "  leaf", "  inner", "    leaf", "  leaf"]

    asyncio.run(probe(works)() if waits else works())


def test_a_span_that_is_not_sampled(tmp_path: Path):
    """An unsampled span is current but not recorded; its calls are the outer call's, with unsampled spans below."""
    program = make_program(ParentBased(ALWAYS_ON, local_parent_sampled=ALWAYS_OFF))
    seen: dict[str, Any] = {}

    @probe(name="inner")
    def inner() -> None:
        span = trace.get_current_span()
        seen["inner"] = current()
        seen["sampled"] = span.get_span_context().trace_flags.sampled
        with program.tracer.start_as_current_span("below"):
            leaf()

    @probe(name="outer")
    def outer() -> None:
        with program.tracer.start_as_current_span("dropped") as span:
            assert trace.get_current_span() is span
            inner()
            assert trace.get_current_span() is span
        leaf()

    recorded = record(tmp_path, outer)
    assert tree(recorded) == ["script.py", "  outer", "    inner", "      leaf", "    leaf"]
    assert seen == {"inner": (one(recorded, "inner").trace_id, one(recorded, "inner").span_id), "sampled": False}
    assert program.exported == {}


def test_a_sampled_span_in_one_that_is_not(tmp_path: Path):
    """A sampled span with an unsampled parent is a child of the enclosing call."""
    dropping, keeping = make_program(ALWAYS_OFF), make_program(ALWAYS_ON)

    @probe(name="outer")
    def outer() -> None:
        with dropping.tracer.start_as_current_span("dropped"), keeping.tracer.start_as_current_span("kept"):
            leaf()

    assert tree(record(tmp_path, outer)) == ["script.py", "  outer", "    kept", "      leaf"]


@pytest.mark.parametrize("header", ["", PARENT + "-01"])
def test_an_http_request_in_a_span(header: str, tracer: trace.Tracer, tmp_path: Path):
    """A request handled within a span is its child, unless its own headers name another trace."""

    async def use(app: Any) -> None:
        @app.get("/")  # type: ignore[untyped-decorator]  # the application may be any
        async def answer() -> int:
            with tracer.start_as_current_span("inside"):
                leaf()
            return 1

        with tracer.start_as_current_span("server"):
            await ask(app, "/", {"traceparent": header} if header else None)

    recorded = serve(tmp_path, use, record)
    [http] = of_http(recorded)
    assert [span.name for _, span in recorded.walk(http)] == ["GET /", "inside", "leaf"]
    server = one(recorded, "server")
    assert http.parent_span_id == (f"{0xDEF:016x}" if header else server.span_id)
    assert {span.trace_id for _, span in recorded.walk(http)} == {f"{0xABC:032x}" if header else server.trace_id}


def test_a_request_that_is_not_sampled(tracer: trace.Tracer, tmp_path: Path):
    """Spans in a request with an unsampled caller are unsampled, as without a recording; calls are recorded."""

    async def use(app: Any) -> None:
        @app.get("/")  # type: ignore[untyped-decorator]  # the application may be any
        async def answer() -> int:
            with tracer.start_as_current_span("inside"):
                leaf()
            return 1

        with tracer.start_as_current_span("server"):
            await ask(app, "/", {"traceparent": PARENT + "-00"})
            await ask(app, "/", {"traceparent": PARENT + "-01"})

    recorded = serve(tmp_path, use, record)
    dropped, kept = of_http(recorded)
    assert [span.name for _, span in recorded.walk(dropped)] == ["GET /", "leaf"]
    assert [span.name for _, span in recorded.walk(kept)] == ["GET /", "inside", "leaf"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_within_a_span(tracer: trace.Tracer, tmp_path: Path):
    """A forked process continues in the span, which belongs to its parent and is recorded once."""

    def main() -> None:
        with tracer.start_as_current_span("span"):
            leaf()
            pid = os.fork()
            if pid == 0:
                leaf()
                with tracer.start_as_current_span("in the child"):
                    leaf()
                context.detach(context.attach(context.get_current()))
                end_child()
            assert os.waitpid(pid, 0)[1] == 0

    recorded = record(tmp_path, main)
    assert sorted(tree(recorded)) == sorted(
        ["script.py", "  span", "    leaf", "    leaf", "    in the child", "      leaf"]
    )
    assert len({span.process.pid for span in recorded.spans if span.process}) == 2


def end_child() -> None:
    """End a forked process with its recording written, without pytest's work at exit."""
    from tracellm.probes import recording as session

    assert session._active is not None
    session._active.stop()
    os._exit(0)


def test_contexts_of_other_programs_threads(tracer: trace.Tracer, tmp_path: Path):
    """A context copied before the recording began has no effect in it."""
    copied = contextvars.copy_context()
    with tracer.start_as_current_span("before"):
        inside = contextvars.copy_context()
    recorded = record(tmp_path, lambda: (copied.run(leaf), inside.run(leaf)))
    assert tree(recorded) == ["script.py", "  leaf", "  leaf"]
