"""What every pass over a call tree must keep, and the passes run under that rule.

A pass takes trees and gives trees (`tracellm.report.tree.fold`, `tracellm.report.passes`). `through` runs one and holds its
result against what it was given: no span lost or doubled, no time either. That costs little and is always done; with
TRACELLM_CHECK_PASSES=1, as in the tests, the order of the calls and each node's times are looked at, too.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from tracellm.report.tree.nodes import Node, walk
from tracellm.trace.model import Span

__all__ = ["THOROUGH", "Account", "PassError", "account", "check", "check_order", "through"]

THOROUGH = "TRACELLM_CHECK_PASSES"
"""The environment variable that has everything looked at after every pass."""


class PassError(AssertionError):
    """A pass broke what it must keep: a fault of this program, never of a recording."""


class Account(NamedTuple):
    """What a list of trees holds: how many spans, which (the sum of their `id`s), and how much own time."""

    spans: int
    ids: int
    own_ns: int


def account(nodes: Iterable[Node]) -> Account:
    """The account of these trees; in proportion to nodes and spans."""
    count = ids = own_ns = 0
    level = list(nodes)
    while level:
        own_ns += sum([node.own_ns for node in level])
        spans = [span for node in level for span in node.spans]
        spans += [span for node in level if node.hidden for span in node.hidden]
        count += len(spans)
        ids += sum(map(id, spans))
        level = [child for node in level if node.children for child in node.children]
    return Account(count, ids, own_ns)


def through(
    name: str, change: Callable[[list[Node]], list[Node]], nodes: list[Node], *, ordered: bool = True
) -> list[Node]:
    """The result of a pass, which may change the nodes it is given, and which has been checked.

    Args:
        name: what the pass is called in an error.
        change: the pass.
        nodes: what it is given.
        ordered: whether calls stand in the order of their starts afterwards; in a story they do not.

    Raises:
        PassError: a span is lost or doubled, or the time in all is another.
    """
    before = account(nodes)
    nodes = change(nodes)
    after = account(nodes)
    if before != after:
        raise PassError(f"the pass {name} made {after} of {before}")
    if os.environ.get(THOROUGH):
        check_order(nodes, siblings=ordered)
    return nodes


def check(before: Iterable[Node], after: Iterable[Node]) -> None:
    """Hold trees against those a pass made of them: no span lost or doubled, time conserved, calls in their order.

    Raises:
        PassError: they are not the same.
    """
    old, new = list(before), list(after)
    if sorted(map(id, _spans(old))) != sorted(map(id, _spans(new))):
        raise PassError("a pass lost or doubled spans")
    if account(old).own_ns != account(new).own_ns:
        raise PassError("a pass changed the time in all")
    check_order(new)


def check_order(nodes: Sequence[Node], *, siblings: bool = True) -> None:
    """Hold that calls are in their order, and that a node's time is that of its spans.

    Raises:
        PassError: they are not, and which.
    """
    first: dict[int, int] = {}  # of a node, by its id: when its first call began, or if it is none, the first in it
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
        if starts or below:  # where a recording is damaged a call may seem to begin before the one that made it
            first[id(node)] = starts[0] if starts else min(below)


def _spans(nodes: Iterable[Node]) -> list[Span]:
    return [span for node in walk(nodes) for span in (*node.spans, *node.hidden)]
