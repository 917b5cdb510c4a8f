"""Random trees of calls of all kinds: the recorded tree is the called one."""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.probes.tracing import record
from tracellm import probe
from tracellm.trace.model import Span, Trace

Tree = tuple[str, list[Any]]
"""A kind of call, and the calls within it. `swallowed` ones fail and are caught by their caller."""

KINDS = ["function", "generator", "coroutine", "stream", "swallowed", "task"]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from(KINDS).map(lambda kind: (kind, [])),
    lambda below: st.tuples(st.sampled_from(KINDS), st.lists(below, max_size=4)),
    max_leaves=12,
)


async def run(tree: Tree) -> None:
    """Make the calls of the tree."""
    kind, below = tree
    if kind == "function":
        function(below)
    elif kind == "generator":
        for _ in generator(below):
            pass
    elif kind == "stream":
        async for _ in stream(below):
            pass
    elif kind == "task":
        await asyncio.gather(coroutine(below))
    elif kind == "swallowed":
        with suppress(ValueError):
            await swallowed(below)
    else:
        await coroutine(below)


def run_now(tree: Tree) -> None:
    """Make the calls without awaiting: all kinds become functions and generators."""
    kind, below = tree
    if kind in ("generator", "stream"):
        for _ in generator(below):
            pass
    else:
        function(below)


@probe
def function(below: list[Tree]) -> None:
    """Call the children in turn."""
    for tree in below:
        run_now(tree)


@probe
def generator(below: list[Tree]) -> Any:
    """Call the children in turn, yielding before each."""
    for tree in below:
        yield
        run_now(tree)


@probe
async def coroutine(below: list[Tree]) -> None:
    """Call the children in turn, waiting before each."""
    for tree in below:
        await asyncio.sleep(0)
        await run(tree)


@probe
async def swallowed(below: list[Tree]) -> None:
    """Call the children in turn, then fail."""
    for tree in below:
        await run(tree)
    raise ValueError


@probe
async def stream(below: list[Tree]) -> Any:
    """Call the children in turn, yielding before each."""
    for tree in below:
        yield
        await run(tree)


def expected(tree: Tree, waiting: bool = True) -> tuple[str, list[Any]]:
    """Return the tree of span names to be recorded."""
    kind, below = tree
    if waiting:
        name = "coroutine" if kind == "task" else kind
    else:
        name = "generator" if kind in ("generator", "stream") else "function"
    waits_below = waiting and kind not in ("function", "generator")
    return name, [expected(one, waits_below) for one in below]


def recorded(trace: Trace, span: Span) -> tuple[str, list[Any]]:
    """Return the recorded tree of span names."""
    return span.name, [recorded(trace, child) for child in trace.children(span)]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(st.lists(trees, max_size=3))
def test_the_recorded_tree_is_the_called_one(calls: list[Tree]):
    """Every span is a child of its caller and within its time; no span is lost or added."""

    async def main() -> None:
        for tree in calls:
            await run(tree)

    with tempfile.TemporaryDirectory() as folder:
        trace = record(Path(folder), lambda: asyncio.run(main()))
    [root] = trace.roots
    assert recorded(trace, root) == ("script.py", [expected(tree) for tree in calls])
    for span in trace.spans:
        parent = trace.parent(span)
        if parent is not None:
            assert parent.start_ns < span.start_ns < span.end_ns < parent.end_ns


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=25)
@given(st.lists(trees, min_size=2, max_size=4))
def test_side_by_side(calls: list[Tree]):
    """Concurrent tasks do not mix their calls."""

    async def main() -> None:
        await asyncio.gather(*(coroutine([tree]) for tree in calls))

    with tempfile.TemporaryDirectory() as folder:
        trace = record(Path(folder), lambda: asyncio.run(main()))
    [root] = trace.roots
    assert recorded(trace, root) == ("script.py", [("coroutine", [expected(tree)]) for tree in calls])
