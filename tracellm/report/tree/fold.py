"""Folding of repetition in a call tree: a thousand calls read as a few.

Repeated siblings are drawn together. One call made many times in a row becomes one node with a count. A repeated
sequence of calls (`A B A B A B`) becomes one `repeat` node over one `A` and one `B`, and so does a sequence of such (`A
B A B C A B A B C`). Folded nodes keep their spans, in order. `repetition.py` decides what repeats. Below nodes that are
drawn together, the calls are merged in their order, or by start if their callers ran side by side. Neighbouring groups
of engine steps stay apart: their difference is why they are groups.

The time is linear in the nodes. Each has a digest of its subtree, made once from those of its children. The folding of
a list of siblings is decided once for all lists with the same digests, and subtrees of one digest are merged side by
side.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from tracellm.report.tree.nodes import Node, Shape, levels
from tracellm.report.tree.repetition import Part, repetition
from tracellm.trace.gc_pause import gc_paused
from tracellm.trace.model import Span

__all__ = ["Folder", "merge"]

_Position = tuple[Hashable, int]
"""The k-th child with a key."""


def merge(nodes: Sequence[Node]) -> Node:
    """Return one node for all of these, which have the same key; their callees are merged, in order."""
    return Folder().merge(nodes)


@dataclass(slots=True)
class _List:
    """Cached facts about siblings, shared by all lists with the same digests.

    Attributes:
        shapes: the digests.
        prepare: whether `Folder.prepare` may replace them.
        parts: the folding, or None if nothing repeats or `decided` is false.
        decided: whether `parts` was decided.
        above: the digests of the nodes that have such children, by their keys.
    """

    shapes: tuple[Shape, ...]
    prepare: bool
    parts: list[Part] | None = None
    decided: bool = False
    above: dict[Hashable, Shape] = field(default_factory=dict)


class Folder:
    """Folds the lists of siblings of a tree, the deepest first.

    Args:
        prepare: returns a replacement for some siblings, before these are folded.
        wanted: a list with one of these keys goes through `prepare`.
    """

    def __init__(
        self,
        prepare: Callable[[Sequence[Node]], Sequence[Node]] | None = None,
        wanted: Callable[[Hashable], bool] = lambda key: True,
    ) -> None:
        self._prepare = prepare
        self._wanted = wanted
        self._leaves: dict[Hashable, Shape] = {}
        self._lists: dict[tuple[Shape, ...], _List] = {}

    def fold_all(self, roots: Sequence[Node]) -> list[Node]:
        """Prepare and fold every list of siblings of whole trees; nodes are changed in place."""
        with gc_paused():
            for nodes in reversed(levels(roots)):
                for node in nodes:
                    facts = self._list(node.children)
                    if facts.prepare or self._parts(facts):
                        node.replace_children(self._changed(node.children, facts))
                    else:
                        node.shape = facts.above.get(node.key) or _digest(node, facts)
            return list(self._changed(roots, self._list(roots)))

    def fold(self, siblings: Sequence[Node]) -> Sequence[Node]:
        """Return siblings with repetition drawn together; the levels below are folded already."""
        return self._drawn(siblings, self._list(siblings))

    def _changed(self, siblings: Sequence[Node], facts: _List) -> Sequence[Node]:
        if facts.prepare and self._prepare is not None:
            return self.fold(self._prepare(siblings))
        return self._drawn(siblings, facts)

    def _drawn(self, siblings: Sequence[Node], facts: _List) -> Sequence[Node]:
        parts = self._parts(facts)
        return siblings if parts is None else [self._made_of(part, siblings) for part in parts]

    def shape(self, node: Node) -> Shape:
        """Return the digest of a subtree: the same object for all equal subtrees.

        Folded children have their digests; others get theirs first.
        """
        todo = [node]
        while todo:
            current = todo[-1]
            if unknown := [child for child in current.children if child.children and child.shape is None]:
                todo += unknown
            else:
                current.shape = current.shape or _digest(current, self._list(current.children))
                todo.pop()
        assert node.shape is not None
        return node.shape

    def _list(self, siblings: Sequence[Node]) -> _List:
        """Return the facts about siblings, and give each sibling its digest."""
        leaves, found = self._leaves, []
        for node in siblings:
            shape = node.shape
            if shape is None:
                if node.children:
                    shape = self.shape(node)
                elif (shape := leaves.get(node.key)) is None:
                    shape = leaves[node.key] = _digest(node, self._list(()))
                node.shape = shape
            found.append(shape)
        shapes = tuple(found)
        facts = self._lists.get(shapes)
        if facts is None:
            prepare = self._prepare is not None and any(self._wanted(shape.key) for shape in shapes)
            facts = self._lists[shapes] = _List(shapes, prepare)
        return facts

    def _parts(self, facts: _List) -> list[Part] | None:
        if not facts.decided:
            facts.decided = True
            facts.parts = repetition(facts.shapes)
        return facts.parts

    def _made_of(self, part: Part, siblings: Sequence[Node]) -> Node:
        if isinstance(part, int):
            return siblings[part]
        nodes = [siblings[item] if isinstance(item, int) else self._made_of(item, siblings) for item in part.parts]
        return self.merge(nodes) if part.merged else sequence(nodes)

    def merge(self, nodes: Sequence[Node]) -> Node:
        """Return one node for all of these, which have the same key; their callees are merged, in order."""
        if len(nodes) == 1:
            return nodes[0]
        alike: dict[Shape, list[Node]] = {}
        for node in nodes:
            alike.setdefault(node.shape or self.shape(node), []).append(node)
        if len(alike) == 1:
            return _merge_alike(nodes)
        lists = [_side_by_side(group) for group in alike.values()]
        return _one_of(nodes, self._merge_children([list_ for list_ in lists if list_]), None)

    def _merge_children(self, lists: Sequence[Sequence[Node]]) -> Sequence[Node]:
        """Merge lists of children: the k-th child with a key in each list becomes one.

        The order of the first list is kept. A new child of a later list is inserted after its predecessor there, or, if
        it has none, before the first child already present.
        """
        if len(lists) < 2:
            return lists[0] if lists else ()
        lists = _with_sequences(lists)
        same: dict[_Position, list[Node]] = {}
        following: dict[_Position | None, _Position | None] = {None: None}  # from None, the beginning, to None, the end
        preceding: dict[_Position | None, _Position | None] = {None: None}
        for nodes in lists:
            positions = _positions(nodes)
            before = preceding[next((position for position in positions if position in same), None)]
            for position, node in zip(positions, nodes, strict=True):
                if position not in same:
                    same[position] = []
                    after = following[before]
                    following[before], following[position] = position, after
                    preceding[position], preceding[after] = before, position
                same[position].append(node)
                before = position
        merged = []
        position_or_end = following[None]
        while position_or_end is not None:
            merged.append(self.merge(same[position_or_end]))
            position_or_end = following[position_or_end]
        return merged


def _positions(nodes: Sequence[Node]) -> list[_Position]:
    seen: dict[Hashable, int] = {}
    positions = []
    for node in nodes:
        seen[node.key] = seen.get(node.key, 0) + 1
        positions.append((node.key, seen[node.key]))
    return positions


def sequence(nodes: Sequence[Node]) -> Node:
    """Return a node for a repeated round of calls."""
    key = "repeat", tuple([node.key for node in nodes])
    count = min([node.count for node in nodes])
    return Node("repeat", key, count, total_ns=sum([node.total_ns for node in nodes]), children=nodes)


def _digest(node: Node, below: _List) -> Shape:
    """Return the digest of a node with these children."""
    shape = below.above.get(node.key)
    if shape is None:
        made = frozenset([child.key for child in below.shapes])
        shape = below.above[node.key] = Shape(node.key, made, below.shapes, apart=node.kind == "steps")
    return shape


def _merge_alike(nodes: Sequence[Node]) -> Node:
    """Return one node for all of these, which have the same digest."""
    first = nodes[0]
    if len(nodes) == 1:
        return first
    return _one_of(nodes, _side_by_side(nodes) if first.children else (), first.shape)


def _side_by_side(nodes: Sequence[Node]) -> Sequence[Node]:
    """Return the callees of nodes with the same digest, as one list."""
    if len(nodes) == 1:
        return nodes[0].children
    return [_merge_alike(group) for group in zip(*[node.children for node in nodes], strict=True)]


def _one_of(nodes: Sequence[Node], children: Sequence[Node], shape: Shape | None) -> Node:
    """Return one node for all of these, with its spans by start; each node has its own in order."""
    first = nodes[0]
    count = total_ns = own_ns = recording_ns = latest = 0
    spans: list[Span] = []
    hidden: list[Span] = []
    in_order = True
    for node in nodes:
        count += node.count
        total_ns += node.total_ns
        own_ns += node.own_ns
        recording_ns += node.recording_ns
        if node.hidden:
            hidden += node.hidden
        if node.spans:
            if node.spans[0].start_ns < latest:
                in_order = False
            spans += node.spans
            latest = spans[-1].start_ns
    if not in_order:
        spans.sort(key=attrgetter("start_ns"))
    steps = [step for node in nodes for step in node.steps] if first.steps else ()
    times = total_ns, own_ns
    return Node(first.kind, first.key, count, *times, spans or (), children, hidden or (), steps, recording_ns, shape)


def _with_sequences(lists: Sequence[Sequence[Node]]) -> Sequence[Sequence[Node]]:
    """Wrap a sequence in a `repeat` of one round where it occurs once in a list and is repeated in another."""
    nested: list[set[tuple[Hashable, ...]]] = []  # the sequences by the depth of repeats in them, the innermost first
    for nodes in lists:
        for node in nodes:
            if node.kind == "repeat":
                _collect(node, nested)
    for sequences in nested:
        lists = [_as_rounds(nodes, sequences) for nodes in lists]
    return lists


def _collect(repeat: Node, nested: list[set[tuple[Hashable, ...]]]) -> int:
    """Add the sequence of a repeat and of those within it, and return its depth: 0 for one without another inside."""
    depth = max([_collect(child, nested) + 1 for child in repeat.children if child.kind == "repeat"], default=0)
    if depth == len(nested):
        nested.append(set())
    nested[depth].add(tuple([child.key for child in repeat.children]))
    return depth


def _as_rounds(nodes: Sequence[Node], sequences: set[tuple[Hashable, ...]]) -> list[Node]:
    lengths = sorted({len(round_keys) for round_keys in sequences})
    keys = [node.key for node in nodes]
    found: list[Node] = []
    at = 0
    while at < len(nodes):
        length = next((length for length in lengths if tuple(keys[at : at + length]) in sequences), 0)
        found.append(sequence(nodes[at : at + length]) if length else nodes[at])
        at += length or 1
    return found
