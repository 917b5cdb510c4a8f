"""Invariants of the passes over a call tree, and the pipeline that runs passes and checks them.

A pass neither loses nor doubles a span, and keeps the total time: a cheap check that always runs. With
TRACELLM_CHECK_PASSES=1, as in the tests, the order of the calls and each node's times are checked, too.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from tracellm.report.tree.nodes import CallTree, Node, walk
from tracellm.trace.model import Span

__all__ = ["THOROUGH", "PassError", "Totals", "check", "check_order", "run_passes", "totals"]

THOROUGH = "TRACELLM_CHECK_PASSES"
"""The environment variable that turns on the thorough checks after every pass."""

T = TypeVar("T", bound=CallTree)


class PassError(AssertionError):
    """A pass broke an invariant: a bug of this program, never of a recording."""


class Totals(NamedTuple):
    """Totals of a list of trees: number and identity (sum of `id`s) of spans, own time, recording time."""

    spans: int
    ids: int
    own_ns: int
    recording_ns: int


def totals(nodes: Iterable[Node]) -> Totals:
    """Return the totals of these trees, in time linear in nodes and spans."""
    count = ids = own_ns = recording_ns = 0
    level = list(nodes)
    while level:
        own_ns += sum([node.own_ns for node in level])
        recording_ns += sum([node.recording_ns for node in level])
        spans = [span for node in level for span in node.spans]
        spans += [span for node in level if node.hidden for span in node.hidden]
        count += len(spans)
        ids += sum(map(id, spans))
        level = [child for node in level if node.children for child in node.children]
    return Totals(count, ids, own_ns, recording_ns)


def run_passes(tree: T, *passes: Callable[[T], T]) -> T:
    """Run passes one after the other, check each, and return the tree.

    Raises:
        PassError: a pass lost or doubled a span, or changed the total time.
    """
    thorough = bool(os.environ.get(THOROUGH))
    before = totals(tree.roots)
    for pass_ in passes:
        tree = pass_(tree)
        after = totals(tree.roots)
        if before != after:
            name = getattr(getattr(pass_, "func", pass_), "__name__", "?")
            raise PassError(f"the pass {name} made {after} of {before}")
        if thorough:
            check_order(tree.roots, siblings=tree.ordered)
    return tree


def check(before: Iterable[Node], after: Iterable[Node]) -> None:
    """Compare trees with those a pass made of them: no span lost or doubled, time conserved, calls in order.

    Raises:
        PassError: they differ.
    """
    old, new = list(before), list(after)
    if sorted(map(id, _spans(old))) != sorted(map(id, _spans(new))):
        raise PassError("a pass lost or doubled spans")
    if totals(old) != totals(new):
        raise PassError("a pass changed the time in all")
    check_order(new)


def check_order(nodes: Sequence[Node], *, siblings: bool = True) -> None:
    """Check that calls are in order, and that a node's time is that of its spans.

    Raises:
        PassError: the first violation found.
    """
    first: dict[
        int, int
    ] = {}  # start of a node's first call, or for a node without spans that of the first call in it, by the node's id
    for node in reversed(list(walk(nodes))):
        starts = [span.start_ns for span in node.spans]
        if any(after < before for before, after in pairwise(starts)):
            raise PassError(f"the calls of {node.key} are out of order")
        if node.kind == "call" and node.total_ns != sum(span.duration_ns for span in node.spans):
            raise PassError(f"the time of {node.key} is not that of its calls")
        if node.kind == "call" and node.count != len(node.spans):
            raise PassError(f"{node.key} is counted {node.count} times and was made {len(node.spans)} times")
        below = [first[id(child)] for child in node.children if id(child) in first]
        if siblings and node.count == 1 and below != sorted(below):
            raise PassError(f"the calls that {node.key} made are out of order")
        if starts or below:  # in a damaged recording, a call may seem to begin before its caller
            first[id(node)] = starts[0] if starts else min(below)


def _spans(nodes: Iterable[Node]) -> list[Span]:
    return [span for node in walk(nodes) for span in (*node.spans, *node.hidden)]
