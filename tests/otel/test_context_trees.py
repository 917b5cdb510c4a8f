"""Random trees of probed calls and users' spans: the recorded tree is the one that was made."""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import context, trace

from tests.otel.users import current, make_program, record
from tracellm import probe
from tracellm.trace.model import Span, Trace

Tree = tuple[str, list[Any]]
"""A kind of call or span, and the nodes within it."""

CALLS = ["function", "coroutine", "generator", "stream"]
SPANS = ["span", "later_span", "attached", "detached_by_call"]
KINDS = [*CALLS, *SPANS, "task", "failing"]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from(KINDS).map(lambda kind: (kind, [])),
    lambda below: st.tuples(st.sampled_from(KINDS), st.lists(below, max_size=4)),
    max_leaves=12,
)


class Maker:
    """Maker of trees with a tracer, noting the current span in each node."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self.tracer = tracer
        self.seen: list[tuple[str, tuple[str, str]]] = []

    def note(self, kind: str) -> None:
        """Note the current span of a node of this kind."""
        self.seen.append((kind, current()))

    async def make(self, tree: Tree) -> None:
        """Make the nodes of the tree."""
        kind, below = tree
        before = current()
        if kind == "function":
            function(self)
        elif kind == "generator":
            for _ in generator(self):
                pass
        elif kind == "stream":
            async for _ in stream(self, below):
                pass
        elif kind == "coroutine":
            await coroutine(self, below)
        elif kind == "task":
            await asyncio.gather(*(self.make(one) for one in below))
        else:
            await getattr(self, kind)(below)
        assert current() == before, f"after {kind} another span is current than before"

    async def all(self, below: list[Tree]) -> None:
        """Make all nodes in turn, with pauses."""
        for tree in below:
            await asyncio.sleep(0)
            await self.make(tree)

    async def span(self, below: list[Tree]) -> None:
        """Make the nodes within a span."""
        with self.tracer.start_as_current_span("span"):
            self.note("span")
            await self.all(below)

    async def later_span(self, below: list[Tree]) -> None:
        """Make the nodes within a span that decorates a coroutine."""

        @self.tracer.start_as_current_span("later_span")
        async def run() -> None:
            self.note("later_span")
            await self.all(below)

        await run()

    async def failing(self, below: list[Tree]) -> None:
        """Make the nodes within a span left by an exception."""
        try:
            with self.tracer.start_as_current_span("failing"):
                self.note("failing")
                await self.all(below)
                raise ValueError
        except ValueError:
            pass

    async def attached(self, below: list[Tree]) -> None:
        """Make the nodes within a span that a probed function attaches."""
        span, token = opens(self)
        self.note("attached")
        await self.all(below)
        context.detach(token)
        span.end()

    async def detached_by_call(self, below: list[Tree]) -> None:
        """Make the nodes within a span that probed coroutines attach and detach."""
        span, token = await opens_later(self)
        self.note("detached_by_call")
        await self.all(below)
        await closes(span, token)


@probe
def opens(maker: Maker) -> Any:
    """Attach a span for the caller."""
    span = maker.tracer.start_span("attached")
    return span, context.attach(trace.set_span_in_context(span))


@probe
async def opens_later(maker: Maker) -> Any:
    """Attach a span for the caller in a coroutine."""
    await asyncio.sleep(0)
    span = maker.tracer.start_span("detached_by_call")
    token = context.attach(trace.set_span_in_context(span))
    await asyncio.sleep(0)
    return span, token


@probe
async def closes(span: trace.Span, token: Any) -> None:
    """Detach the span for the caller."""
    await asyncio.sleep(0)
    context.detach(token)
    span.end()


@probe
def function(maker: Maker) -> None:
    """Make the nodes in a function within a span within a function, as functions cannot wait."""
    maker.note("function")
    with maker.tracer.start_as_current_span("inner"):
        maker.note("inner")
        innermost(maker)


@probe
def innermost(maker: Maker) -> None:
    """Make no nodes."""
    maker.note("innermost")


@probe
def generator(maker: Maker) -> Any:
    """Pause in a span."""
    with maker.tracer.start_as_current_span("inner"):
        innermost(maker)
        yield
        innermost(maker)


@probe
async def coroutine(maker: Maker, below: list[Tree]) -> None:
    """Make the nodes in turn."""
    maker.note("coroutine")
    await maker.all(below)


@probe
async def stream(maker: Maker, below: list[Tree]) -> Any:
    """Make the nodes in turn, in a span, yielding before each."""
    with maker.tracer.start_as_current_span("inner"):
        for tree in below:
            yield
            await maker.make(tree)


def expected(tree: Tree) -> list[Any]:
    """Return the expected trees of span names; a task has no span of its own."""
    kind, below = tree
    inside = [node for one in below for node in expected(one)]
    if kind == "function":
        return [(kind, [("inner", [("innermost", [])])])]
    if kind == "generator":
        return [(kind, [("inner", [("innermost", [])] * 2)])]
    if kind == "stream":
        return [(kind, [("inner", inside)])]
    if kind == "task":
        return inside
    if kind == "attached":
        return [("opens", [(kind, inside)])]
    if kind == "detached_by_call":
        return [("opens_later", [(kind, [*inside, ("closes", [])])])]
    return [(kind, inside)]


def recorded_tree(recorded: Trace, span: Span) -> Any:
    """Return the recorded tree of span names."""
    return span.name, in_any_order([recorded_tree(recorded, child) for child in recorded.children(span)])


def in_any_order(nodes: list[Any]) -> list[Any]:
    """Sort the tree, as tasks run in any order."""
    return sorted((name, in_any_order(below)) for name, below in nodes)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(st.lists(trees, max_size=3))
def test_the_recorded_tree_is_the_one_that_was_made(calls: list[Tree]):
    """Every call and span is a child of the current one at its start, and none is lost."""
    program = make_program()
    maker = Maker(program.tracer)
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(Path(folder), lambda: asyncio.run(maker.all(calls)))
    [root] = recorded.roots
    made = [node for one in calls for node in expected(one)]
    assert recorded_tree(recorded, root)[1] == in_any_order(made)
    ids = Counter((span.name, (span.trace_id, span.span_id)) for span in recorded.spans)
    assert not Counter(maker.seen) - ids
    assert len({span.trace_id for span in recorded.spans}) == 1
