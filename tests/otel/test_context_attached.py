"""Contexts attached and detached by hand in any order, and the resulting parents."""

import asyncio
import contextvars
import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, SpanContext, TraceFlags

from tests.otel.users import current, current_id, leaf, one, program, record, tracer, tree
from tracellm import probe
from tracellm.trace import names

__all__ = ["program", "tracer"]


@pytest.mark.parametrize("waits", [False, True])
def test_one_call_attaches_and_another_detaches(waits: bool, tracer: trace.Tracer, tmp_path: Path):
    """Calls between an attaching call and a detaching one are the span's children; later calls are not."""

    @probe(name="opens")
    def opens() -> Any:
        span = tracer.start_span("span")
        return span, context.attach(trace.set_span_in_context(span))

    @probe(name="closes")
    def closes(span: trace.Span, token: Any) -> None:
        context.detach(token)
        span.end()

    @probe(name="opens")
    async def opens_later() -> Any:
        await asyncio.sleep(0)
        span = tracer.start_span("span")
        return span, context.attach(trace.set_span_in_context(span))

    @probe(name="closes")
    async def closes_later(span: trace.Span, token: Any) -> None:
        await asyncio.sleep(0)
        context.detach(token)
        span.end()

    async def main() -> None:
        opened = await opens_later() if waits else opens()
        assert current()[1] == leaf_parent() == current_id(opened[0])
        await closes_later(*opened) if waits else closes(*opened)
        leaf()

    def leaf_parent() -> str:
        leaf()
        return current()[1]

    recorded = record(tmp_path, lambda: asyncio.run(main()))
    assert tree(recorded) == ["script.py", "  opens", "    span", "      leaf", "      closes", "  leaf"]


def test_detaching_elsewhere_is_told_and_changes_nothing(
    tracer: trace.Tracer, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """A token of another context is refused as without a recording, and the calls' parents stay right."""

    def main() -> None:
        token = context.attach(trace.set_span_in_context(tracer.start_span("span")))
        contextvars.copy_context().run(context.detach, token)
        leaf()
        context.detach(token)
        leaf()

    recorded = record(tmp_path, main)
    assert [entry.message for entry in caplog.records] == ["Failed to detach context"]
    assert tree(recorded) == ["script.py", "  span", "    leaf", "  leaf"]


def test_detaching_out_of_order(tracer: trace.Tracer, tmp_path: Path):
    """Detaching the outer of two spans first restores the context before both, as OpenTelemetry does."""

    def main() -> None:
        outer = context.attach(trace.set_span_in_context(tracer.start_span("outer")))
        context.attach(trace.set_span_in_context(tracer.start_span("inner")))
        leaf()
        context.detach(outer)
        leaf()

    assert tree(record(tmp_path, main)) == ["script.py", "  outer", "    inner", "      leaf", "  leaf"]


def test_spans_that_are_not_attached(tracer: trace.Tracer, tmp_path: Path):
    """A span that was only started is a child of the call; it is neither current nor a parent."""

    @probe(name="buys")
    def buys() -> None:
        span = tracer.start_span("order")
        child = tracer.start_span("item", context=trace.set_span_in_context(span))
        leaf()
        child.end()
        span.end()

    assert tree(record(tmp_path, buys)) == ["script.py", "  buys", "    order", "      item", "    leaf"]


def test_an_empty_context_begins_a_trace(tracer: trace.Tracer, tmp_path: Path):
    """A span started in an empty context is a root with its own trace; the enclosing call keeps its place."""

    @probe(name="buys")
    def buys() -> None:
        token = context.attach(context.Context())
        assert trace.get_current_span() is INVALID_SPAN
        with tracer.start_as_current_span("root"):
            leaf()
        leaf()
        context.detach(token)
        leaf()

    recorded = record(tmp_path, buys)
    assert tree(recorded) == ["script.py", "  buys", "    leaf", "    leaf", "root", "  leaf"]
    assert one(recorded, "root").trace_id != recorded.roots[0].trace_id


def test_baggage_moves_nothing(tracer: trace.Tracer, tmp_path: Path):
    """A context with the same span and other values changes no parent."""

    @probe(name="buys")
    def buys() -> None:
        token = context.attach(baggage.set_baggage("user", "7"))
        assert leaf() != current()
        with tracer.start_as_current_span("order"):
            inner = context.attach(baggage.set_baggage("item", "3"))
            leaf()
            assert dict(baggage.get_all()) == {"user": "7", "item": "3"}
            context.detach(inner)
            leaf()
        context.detach(token)
        assert not baggage.get_all()

    recorded = record(tmp_path, buys)
    assert tree(recorded) == ["script.py", "  buys", "    leaf", "    order", "      leaf", "      leaf"]


def test_a_call_can_be_a_parent_elsewhere(tracer: trace.Tracer, tmp_path: Path):
    """After a call's context is attached elsewhere, the calls there are part of that call."""
    kept: list[context.Context] = []

    @probe(name="keeps")
    def keeps() -> None:
        kept.append(context.get_current())

    def works() -> None:
        token = context.attach(kept[0])
        leaf()
        tracer.start_span("span").end()
        context.detach(token)
        leaf()

    def main() -> None:
        keeps()
        works()
        with tracer.start_as_current_span("around"):
            ThreadPoolExecutor(1).submit(works).result()

    recorded = record(tmp_path, main)
    mine = ["    leaf", "    span"]
    assert tree(recorded) == ["script.py", "  keeps", *mine, *mine, "  leaf", "  around", "    leaf"]


REMOTE = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1))


def test_a_remote_parent_is_kept(tracer: trace.Tracer, tmp_path: Path):
    """Calls and spans in a context from another program have its span as parent, in its trace."""

    def main() -> None:
        token = context.attach(trace.set_span_in_context(NonRecordingSpan(REMOTE)))
        assert leaf()[0] == f"{0xABC:032x}"
        tracer.start_span("span").end()
        context.detach(token)
        leaf()

    recorded = record(tmp_path, main)
    for span in (recorded.named("leaf")[0], one(recorded, "span")):
        assert (span.trace_id, span.parent_span_id) == (f"{0xABC:032x}", f"{0xDEF:016x}")
        assert span.attributes[names.OUTSIDE] is True
    assert [span.name for span in recorded.children(recorded.roots[0])] == ["leaf"]
    assert recorded.orphans == []


def test_contexts_that_nobody_detaches_are_not_kept(tracer: trace.Tracer, tmp_path: Path):
    """A program that attaches repeatedly without detaching keeps a bounded number of contexts."""

    def main() -> None:
        for _ in range(5000):
            context.attach(trace.set_span_in_context(NonRecordingSpan(REMOTE)))
            context.attach(context.Context())
        leaf()
        gc.collect()
        assert sum(isinstance(one, context.Context) for one in gc.get_objects()) < 3000

    contextvars.copy_context().run(record, tmp_path, main)


def test_afterwards_all_is_as_before(tracer: trace.Tracer, tmp_path: Path):
    """After the recording OpenTelemetry's own functions are back, also inside an open span."""
    before = {name: vars(ContextVarsRuntimeContext)[name] for name in ("attach", "detach", "get_current")}
    replaced: list[bool] = []

    def main() -> None:
        replaced.extend(vars(ContextVarsRuntimeContext)[name] is not old for name, old in before.items())
        context.attach(trace.set_span_in_context(tracer.start_span("left open")))

    def run() -> None:
        recorded = record(tmp_path / "a", main)
        assert one(recorded, "left open").open
        assert {name: vars(ContextVarsRuntimeContext)[name] for name in before} == before
        again = record(tmp_path / "b", leaf)
        assert tree(again) == ["script.py", "  leaf"]

    contextvars.copy_context().run(run)
    assert replaced == [True] * 3
