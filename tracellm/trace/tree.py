"""The call tree of a trace: what the call tree's text and the sequence diagram are both made from.

`call_tree` makes a `Node` of each span; the passes after it (`tracellm.trace.fold`, `tracellm.report.passes`) take a
list of nodes and give a list of nodes. `check` holds what every pass must keep.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tracellm.trace import names
from tracellm.trace.model import Span, Trace
from tracellm.trace.names import Level
from tracellm.trace.steps import Step

__all__ = ["DEEPEST", "Node", "bottom_up", "call_tree", "calls_below", "check", "raised_here", "walk"]

DEEPEST = 100
"""Calls nested deeper than this, as by a user's recursive function, are counted into the node at this depth."""


@dataclass(slots=True, eq=False)
class Node:
    """Calls that are drawn as one. Times are nanoseconds, summed over all of them.

    `call` stands for spans, `line` for a line of the user's script over the calls made there, `steps` for engine
    steps in which nothing changed, `repeat` for a sequence of calls made several times. All but `call` have no spans
    of their own.
    """

    kind: Literal["call", "line", "steps", "repeat"]
    key: Hashable
    """Equal for nodes that may be folded into one."""
    count: int = 1
    total_ns: int = 0
    own_ns: int = 0
    """Time not spent in children of the same thread: the owns of a thread's calls sum to the time that it was in calls,
    where these do not overlap."""
    spans: list[Span] = field(default_factory=list)
    children: list["Node"] = field(default_factory=list)
    hidden: list[Span] = field(default_factory=list)
    """Calls that a pass took out of the tree; their time counts as this node's own."""
    steps: list[Step] = field(default_factory=list)

    @property
    def span(self) -> Span:
        """The first of the spans, which speaks for all."""
        return self.spans[0]

    @property
    def level(self) -> Level:
        """The level of the calls; what is no call is as coarse as a request."""
        return self.spans[0].level if self.spans else "request"

    @property
    def failed(self) -> bool:
        """An exception left these calls."""
        return bool(self.spans) and self.spans[0].error is not None

    @property
    def open(self) -> bool:
        """The recording ended before these calls did."""
        return bool(self.spans) and self.spans[0].open


def calls_below(node: Node) -> Iterator[Node]:
    """The calls that a node made itself, also those that stand below lines, steps and repeats."""
    for child in node.children:
        if child.kind == "call":
            yield child
        else:
            yield from calls_below(child)


def raised_here(node: Node) -> bool:
    """Whether an exception left this call that did not come out of a call it made."""
    return node.failed and all(child.span.error != node.span.error for child in calls_below(node))


def walk(roots: Iterable[Node]) -> Iterator[Node]:
    """All nodes, each before its children, in order."""
    stack = [iter(roots)]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
        else:
            yield node
            stack.append(iter(node.children))


def bottom_up(nodes: Iterable[Node], change: Callable[[list[Node]], list[Node]]) -> list[Node]:
    """Pass every list of siblings, the deepest first, through `change`; nodes are changed in place."""
    siblings = list(nodes)
    for node in siblings:
        if node.children:
            node.children = bottom_up(node.children, change)
    return change(siblings)


def call_tree(trace: Trace) -> list[Node]:
    """The calls of a trace: a node for each span, except requests' lives, under the node that called it.

    What a request's life is the parent of stands under the call that submitted the request.
    """
    lives = [root for root in trace.roots if root.name == names.REQUEST_SPAN]
    roots = [root for root in trace.roots if root.name != names.REQUEST_SPAN]
    roots += [callee for life in lives for callee in _callees(trace, life)]
    return [_under(trace, root) for root in sorted(roots, key=lambda root: (root.start_ns, -root.end_ns))]


def _callees(trace: Trace, span: Span) -> list[Span]:
    """What was called directly from a span, in order."""
    children = trace.children(span)
    if all(child.name != names.REQUEST_SPAN for child in children):
        return children
    found = []
    for child in children:
        found += _callees(trace, child) if child.name == names.REQUEST_SPAN else [child]
    return sorted(found, key=lambda child: (child.start_ns, -child.end_ns))


def _under(trace: Trace, root: Span) -> Node:
    top = _node(trace, root)
    stack = [(1, top, child) for child in reversed(_callees(trace, root))]
    while stack:
        depth, around, span = stack.pop()
        if depth > DEEPEST:
            around.hidden.append(span)
            below = around
        else:
            below = _node(trace, span)
            around.children.append(below)
        if depth == DEEPEST:
            below.own_ns = span.duration_ns
        stack.extend((depth + 1, below, child) for child in reversed(_callees(trace, span)))
    return top


def _node(trace: Trace, span: Span) -> Node:
    return Node("call", _key(span), total_ns=span.duration_ns, own_ns=_own_ns(trace, span), spans=[span])


def _key(span: Span) -> Hashable:
    caller = span.attributes.get(names.CALLER_FILE), span.attributes.get(names.CALLER_LINE)
    host, pid, thread = span.thread
    beside = host, pid, thread.rstrip("0123456789_-")  # threads of one pool do the same work
    told = span.attributes.get(names.ARGUMENTS, ()) if span.attributes.get(names.PHASE) == "startup" else ()
    engine = tuple(told) if isinstance(told, list) else ()  # engines made with other arguments are other engines
    return span.lifeline, span.name, (span.error is not None, span.open), caller, beside, engine


def _own_ns(trace: Trace, span: Span) -> int:
    """The part of the span that no child in its own thread covers; children overlap where there are coroutines.

    What another thread or process does goes on beside the call that started it, often long after; that call's own time
    goes on, too, though it may be spent in waiting. So in every thread that runs one call at a time the own times sum
    to the time that is spent in calls.
    """
    covered, reached = 0, span.start_ns
    for child in _callees(trace, span):
        if child.thread != span.thread:
            continue
        start, end = max(child.start_ns, reached), min(child.end_ns, span.end_ns)
        if end > start:
            covered += end - start
            reached = end
    return span.duration_ns - covered


def check(before: Iterable[Node], after: Iterable[Node]) -> None:
    """Assert what every pass must keep: no span lost or doubled, time conserved, calls in their order."""
    old, new = list(walk(before)), list(walk(after))
    assert sorted(map(id, _spans(old))) == sorted(map(id, _spans(new))), "a pass lost or doubled spans"
    assert sum(node.own_ns for node in old) == sum(node.own_ns for node in new), "a pass changed the time in all"
    for node in new:
        starts = [span.start_ns for span in node.spans]
        assert starts == sorted(starts), f"the calls of {node.key} are out of order"
        if node.count == 1:
            firsts = [min(span.start_ns for one in walk([child]) for span in one.spans) for child in node.children]
            assert firsts == sorted(firsts), f"the calls that {node.key} made are out of order"


def _spans(nodes: Iterable[Node]) -> list[Span]:
    return [span for node in nodes for span in (*node.spans, *node.hidden)]
