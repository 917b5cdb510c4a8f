"""The call tree of a trace, the basis of the call tree's text and of the sequence diagram.

`call_tree` makes a `Node` of each span. A report runs passes, functions from a `CallTree` to a `CallTree`, through
`invariants.run_passes`, which also checks what every pass must keep. Time and memory are linear in the spans: about 230
bytes per node.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from tracellm.trace import names
from tracellm.trace.gc_pause import gc_paused
from tracellm.trace.model import Span, Trace
from tracellm.trace.names import Level
from tracellm.trace.steps import Step

__all__ = [
    "DEEPEST",
    "CallKey",
    "CallTree",
    "Node",
    "Shape",
    "call_tree",
    "calls_below",
    "levels",
    "raised_here",
    "walk",
]

DEEPEST = 100
"""Maximum depth of nodes; calls nested deeper, as by a recursive function, are counted in the node there."""

_DISTINCTIVE = frozenset({names.CALLER_FILE, names.HTTP_METHOD, names.OPEN, names.PHASE})
"""Attributes of few calls that distinguish a call from others of its name."""
_LIFELINE, _THREAD, _RECORDING = names.LIFELINE, names.THREAD_NAME, names.RECORDING_DURATION


@dataclass(frozen=True, slots=True, eq=False)
class CallKey:
    """The key of calls that may be folded into one node. A tree has one such object for all of them."""

    lifeline: str
    name: str
    failed: bool
    open: bool
    caller: tuple[Hashable, Hashable]
    """File and line of the user's that made the call, both None for a call of the engine's."""
    beside: tuple[str, int, str]
    """Machine, process id and thread without its number: threads of one pool do the same work."""
    engine: tuple[str, ...] = ()
    """Arguments of a call of the start-up: engines made with other arguments are other engines."""
    answer: tuple[Hashable, ...] = ()
    """Status and error of an HTTP request: a refused one is not drawn with those that were served."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The digest of a subtree: its calls in order, without their counts and times.

    Equal subtrees have the same object, so comparing two of any size is comparing two pointers. `fold.Folder` makes
    them, each node's from those of its children.
    """

    key: Hashable
    made: frozenset[Hashable]
    """The keys of the children."""
    below: tuple["Shape", ...]
    apart: bool
    """Never drawn together with a neighbour: a group of engine steps."""


class Node(msgspec.Struct, eq=False, gc=False):
    """Calls drawn as one, with their times in nanoseconds, summed.

    `call` stands for spans, and `line` for a line of the user's script with the calls made there. `steps` stands for
    engine steps in which nothing changed, and `repeat` for a repeated sequence of calls. Only `call` has spans of its
    own. Empty sequences may be shared by many nodes: assign another, never change one.
    """

    kind: Literal["call", "line", "steps", "repeat"]
    key: Hashable
    """Equal for nodes that may be folded into one."""
    count: int = 1
    total_ns: int = 0
    own_ns: int = 0
    """Time spent neither in children of the same thread nor in recording. Own and recording times of a thread sum to
    the time it spent in calls, if these do not overlap."""
    spans: Sequence[Span] = ()
    children: Sequence["Node"] = ()
    hidden: Sequence[Span] = ()
    """Calls that a pass took out of the tree; their time counts as this node's own."""
    steps: Sequence[Step] = ()
    recording_ns: int = 0
    """Time that the recording took within these calls, without their children."""
    shape: Shape | None = None
    """None until computed; reset it to None after a change of `children`."""

    @property
    def span(self) -> Span:
        """The first of the spans, as their representative."""
        return self.spans[0]

    @property
    def level(self) -> Level:
        """Level of the calls; other nodes are as coarse as a request."""
        return self.spans[0].level if self.spans else "request"

    @property
    def failed(self) -> bool:
        """An exception left these calls."""
        return bool(self.spans) and self.spans[0].error is not None

    @property
    def open(self) -> bool:
        """The recording ended before these calls did."""
        return bool(self.spans) and self.spans[0].open

    def hide(self, spans: Iterable[Span]) -> None:
        """Count calls that a pass took out of the tree; their own time is not added."""
        if not isinstance(self.hidden, list):
            self.hidden = list(self.hidden)
        self.hidden.extend(spans)

    def take_in(self, other: "Node") -> None:
        """Count another node's own time and calls, which a pass takes out of the tree, without its children."""
        self.own_ns += other.own_ns
        self.recording_ns += other.recording_ns
        self.hide([*other.spans, *other.hidden])

    def add(self, child: "Node") -> None:
        """Append a child."""
        if not isinstance(self.children, list):
            self.children = list(self.children)
        self.children.append(child)
        self.shape = None

    def replace_children(self, children: Sequence["Node"]) -> None:
        """Replace the children, and reset the digest."""
        self.children = children
        self.shape = None


@dataclass(frozen=True, slots=True)
class CallTree:
    """The calls of a trace, input and output of the passes of a report.

    A pass owns its input: it may change the nodes, and its results are in the tree that it returns.

    Attributes:
        trace: the recording.
        roots: the calls; hidden ones are counted in the nodes that are left.
        ordered: whether siblings are ordered by start.
        units: step of the call that repeats with each step, both as span ids; None if found from the calls around
            steps.
        turns: for each call of a step's turn, the span id of that step; for steps without a unit around them.
    """

    trace: Trace
    roots: list[Node]
    ordered: bool = True
    units: Mapping[str, str] | None = None
    turns: Mapping[str, str] | None = None


def calls_below(node: Node) -> Iterator[Node]:
    """Return the calls that a node made itself, also those below lines, steps and repeats."""
    for child in node.children:
        if child.kind == "call":
            yield child
        else:
            yield from calls_below(child)


def raised_here(node: Node) -> bool:
    """Return whether the call failed, and not by an exception out of one of its callees."""
    return node.failed and all(child.span.error != node.span.error for child in calls_below(node))


def walk(roots: Iterable[Node]) -> Iterator[Node]:
    """Yield all nodes, each before its children, in order."""
    stack = list(roots)
    stack.reverse()
    while stack:
        node = stack.pop()
        yield node
        if node.children:
            stack.extend(reversed(node.children))


def levels(roots: Iterable[Node]) -> list[list[Node]]:
    """Yield the nodes with children, level by level: the roots, then those below them, and so on."""
    found: list[list[Node]] = []
    level = [node for node in roots if node.children]
    while level:
        found.append(level)
        level = [child for node in level for child in node.children if child.children]
    return found


def call_tree(trace: Trace) -> list[Node]:
    """Return the calls of a trace: a node for each span, except requests' own, under the node that called it.

    Children of a request's span stand under the call that submitted the request. Siblings are ordered by start.
    """
    with gc_paused():
        nodes, request_parents, several_threads = _nodes(trace)
        roots = _link(nodes, request_parents)
        _settle(roots, several_threads)
    return roots


def _nodes(trace: Trace) -> tuple[list[Node], dict[str, str | None], bool]:
    """Return the calls' nodes, the parent id of each request's span, and whether calls ran in several threads."""
    key_of = _Keys()
    nodes: list[Node] = []
    request_parents: dict[str, str | None] = {}
    for span in trace.spans:
        if span.name == names.REQUEST_SPAN:
            request_parents[span.span_id] = span.parent_span_id
        else:
            ns = span.end_ns - span.start_ns
            recording = span.recording_ns if _RECORDING in span.attributes else 0
            nodes.append(Node("call", key_of(span), 1, ns, ns - recording, (span,), recording_ns=recording))
    return nodes, request_parents, key_of.several


def _link(nodes: list[Node], request_parents: dict[str, str | None]) -> list[Node]:
    """Give each node its children, and return the roots."""
    by_id = {node.spans[0].span_id: node for node in nodes}
    roots: list[Node] = []
    for node in nodes:
        parent = node.spans[0].parent_span_id
        if request_parents and parent in request_parents:
            parent = _outside(parent, request_parents)
        above = by_id.get(parent) if parent is not None else None
        if above is None:
            roots.append(node)
        elif above.children:
            above.children.append(node)  # type: ignore[attr-defined]  # the list that its first child made
        else:
            above.children = [node]
    return roots


def _outside(id: str | None, request_parents: dict[str, str | None]) -> str | None:
    """Return the id of the nearest span around a request's that is not a request's; cached in `request_parents`."""
    path: list[str] = []
    while id is not None and id in request_parents:
        path.append(id)
        above = request_parents[id]
        request_parents[id] = None  # a circle ends here
        id = above
    for request_id in path:
        request_parents[request_id] = id
    return id


def _settle(roots: Sequence[Node], several_threads: bool) -> None:
    """Compute the own time of each node, and count calls nested too deeply into the nodes above them."""
    level = roots
    for _ in range(DEEPEST):
        parents = [node for node in level if node.children]
        for node in parents:
            node.own_ns -= _covered_ns(node, _in_its_thread(node) if several_threads else node.children)
            if node.own_ns < 0:  # in a damaged recording it may exceed the span's time
                node.recording_ns += node.own_ns
                node.own_ns = 0
        level = [child for node in parents for child in node.children]
    for node in level:
        if node.children:  # its children are not drawn, so all of the time is its own
            node.hide(span for below in walk(node.children) for span in below.spans)
            recording = sum(below.recording_ns for below in walk(node.children))
            node.recording_ns = min(node.total_ns, node.recording_ns + recording)
            node.own_ns = node.total_ns - node.recording_ns
            node.children = ()


def _in_its_thread(node: Node) -> Iterator[Node]:
    """Yield the callees in the call's own thread.

    Work of another thread or process goes on beside the call that started it, often long after. So the waiting call's
    own time continues. The own times of a thread that runs one call at a time sum to its time in calls.
    """
    span = node.spans[0]
    process, thread = span.process, span.attributes.get(names.THREAD_NAME)
    for child in node.children:
        first = child.spans[0]
        if (
            first.process is process and first.attributes.get(names.THREAD_NAME) == thread
        ) or first.thread == span.thread:
            yield child


def _covered_ns(node: Node, children: Iterable[Node]) -> int:
    """Return the time of a call covered by these callees; they overlap if there are coroutines."""
    span = node.spans[0]
    covered, reached, last = 0, span.start_ns, span.end_ns
    for child in children:
        first = child.spans[0]
        start, end = first.start_ns, first.end_ns
        if start < reached:
            start = reached
        if end > last:
            end = last
        if end > start:
            covered += end - start
            reached = end
    return covered


class _Keys:
    """Keys of calls: one object for all that are the same call."""

    def __init__(self) -> None:
        self._made: dict[tuple[Hashable, ...], CallKey] = {}
        self._plain: dict[tuple[object, ...], CallKey] = {}
        """Keys of calls that no line of the user made and that ended well: nearly all."""
        self._same: dict[tuple[object, ...], CallKey] = {}
        """Keys by the identity of the attributes: spans read from disk share equal ones."""
        self._threads: set[tuple[str, int, str]] = set()

    @property
    def several(self) -> bool:
        """True if the calls ran in several threads or processes."""
        return len(self._threads) > 1

    def __call__(self, span: Span) -> CallKey:
        """Return the key of a call of the trace. The spans live as long as this object, so their ids stay valid."""
        if span.error is not None:
            return self._key(span)
        same = span.name, id(span.attributes), id(span.process)
        try:
            return self._same[same]
        except KeyError:
            return self._same.setdefault(same, self._of(span))

    def _of(self, span: Span) -> CallKey:
        attributes = span.attributes
        if not _DISTINCTIVE.isdisjoint(attributes):
            return self._key(span)
        get = attributes.get
        try:
            plain = span.name, get(_LIFELINE), get(_THREAD), id(span.process)
            return self._plain[plain]
        except KeyError:
            return self._plain.setdefault(plain, self._key(span))
        except TypeError:  # a damaged trace may have a list in place of a name
            return self._key(span)

    def _key(self, span: Span) -> CallKey:
        get = span.attributes.get
        host, pid, thread = span.thread
        self._threads.add((host, pid, thread))
        arguments = get(names.ARGUMENTS) if get(names.PHASE) == "startup" else None
        answer = (names.HTTP_STATUS, names.ERROR_TYPE) if names.HTTP_METHOD in span.attributes else ()
        key = CallKey(
            lifeline=span.lifeline,
            name=span.name,
            failed=span.error is not None,
            open=span.open,
            caller=(_plain(get(names.CALLER_FILE)), _plain(get(names.CALLER_LINE))),
            beside=(host, pid, thread.rstrip("0123456789_-")),
            engine=tuple(map(str, arguments)) if isinstance(arguments, list) else (),
            answer=tuple(_plain(get(name)) for name in answer),
        )
        parts = (key.lifeline, key.name, key.failed, key.open, key.caller, key.beside, key.engine, key.answer)
        return self._made.setdefault(parts, key)


def _plain(value: object) -> Hashable:
    return value if isinstance(value, Hashable) else repr(value)
