"""Folding of what repeats in a call tree, so that a thousand calls read as a few.

Repeated siblings are drawn together: one call made many times running becomes one node with a count, a sequence of
calls made many times running (`A B A B A B`) becomes one `repeat` node over one `A` and one `B`, and so does a sequence
of such (`A B A B C  A B A B C`). What is folded keeps its spans, in their order. What counts as repetition is in
`tracellm.trace.repetition`.

Below nodes that are drawn together the calls are merged, in their order, or where their callers ran side by side, in
that of their starts. Groups of engine steps side by side stay apart: what differs between them is why they are groups.

The time is in proportion to the nodes. Each has a digest of its subtree, made once from those of its children; what is
to be done with a list of siblings is found once for all lists with the same digests; and subtrees of one digest are
merged by going through them side by side.
"""

from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter

from tracellm.trace.model import Span
from tracellm.trace.repetition import Part, repetition
from tracellm.trace.tree import Node, Shape

__all__ = ["Folder", "fold", "merge"]

_LONGEST_KNOWN = 256
"""Of longer lists it is found each time what is to be done: they are few, and hardly any is like another."""

_Place = tuple[Hashable, int]
"""The k-th child with a key."""


def fold(siblings: Sequence[Node]) -> Sequence[Node]:
    """Siblings with what repeats among them drawn together; what is below them is folded already."""
    return Folder().fold(siblings)


def merge(nodes: Sequence[Node]) -> Node:
    """One node that stands for all of these, which have the same key; what they called is merged, in its order."""
    return Folder().merge(nodes)


class Folder:
    """Folds the lists of siblings of a tree, the deepest first.

    Args:
        prepare: gives other siblings for some, before these are folded.
        wanted: the keys that have the lists they stand in go through `prepare`.
    """

    def __init__(
        self,
        prepare: Callable[[Sequence[Node]], Sequence[Node]] | None = None,
        wanted: Callable[[Hashable], bool] = lambda key: True,
    ) -> None:
        self._prepare = prepare
        self._wanted = wanted
        self._leaves: dict[Hashable, Shape] = {}
        self._shapes: dict[tuple[Hashable, tuple[Shape, ...]], Shape] = {}
        self._prepared: dict[tuple[Shape, ...], bool] = {}
        self._parts: dict[tuple[Shape, ...], list[Part] | None] = {}

    def shape(self, node: Node) -> Shape:
        """The digest of a subtree: the same object for all subtrees that were made alike.

        Those of the children are known where these were folded; else they are made first.
        """
        if node.shape is not None:
            return node.shape
        todo = [node]
        while todo:
            one = todo[-1]
            below = tuple([child.shape for child in one.children if child.shape])
            if len(below) < len(one.children):
                todo += [child for child in one.children if child.shape is None]
            else:
                todo.pop()
                one.shape = self._digest(one, below)
        assert node.shape is not None
        return node.shape

    def _digest(self, node: Node, below: tuple[Shape, ...]) -> Shape:
        known = self._shapes.get((node.key, below))
        if known is None:
            made = frozenset([shape.key for shape in below])
            known = self._shapes[node.key, below] = Shape(node.key, made, below, apart=node.kind == "steps")
        return known

    def _shapes_of(self, siblings: Sequence[Node]) -> tuple[Shape, ...]:
        """The digests of siblings."""
        found = []
        for node in siblings:
            shape = node.shape
            if shape is None:
                if node.children:
                    shape = self.shape(node)
                elif (shape := self._leaves.get(node.key)) is None:
                    shape = self._leaves[node.key] = self._digest(node, ())
                node.shape = shape
            found.append(shape)
        return tuple(found)

    def change(self, siblings: Sequence[Node]) -> Sequence[Node]:
        """Siblings prepared and folded: what `bottom_up` needs."""
        shapes = self._shapes_of(siblings)
        if self._prepare is not None and self._is_wanted(shapes):
            return self.fold(self._prepare(siblings))
        return self._folded(siblings, shapes)

    def fold(self, siblings: Sequence[Node]) -> Sequence[Node]:
        """Siblings with what repeats among them drawn together; what is below them is folded already."""
        return self._folded(siblings, self._shapes_of(siblings))

    def _folded(self, siblings: Sequence[Node], shapes: tuple[Shape, ...]) -> Sequence[Node]:
        if len(shapes) < 2:
            return siblings
        try:
            parts = self._parts[shapes]
        except KeyError:
            parts = repetition(shapes)
            if len(shapes) <= _LONGEST_KNOWN:
                self._parts[shapes] = parts
        return siblings if parts is None else [self._made_of(part, siblings) for part in parts]

    def _is_wanted(self, shapes: tuple[Shape, ...]) -> bool:
        try:
            return self._prepared[shapes]
        except KeyError:
            wanted = any(self._wanted(shape.key) for shape in shapes)
            if len(shapes) <= _LONGEST_KNOWN:
                self._prepared[shapes] = wanted
            return wanted

    def _made_of(self, part: Part, siblings: Sequence[Node]) -> Node:
        if isinstance(part, int):
            return siblings[part]
        nodes = [siblings[one] if isinstance(one, int) else self._made_of(one, siblings) for one in part.parts]
        return self.merge(nodes) if part.merged else sequence(nodes)

    def merge(self, nodes: Sequence[Node]) -> Node:
        """One node that stands for all of these, which have the same key; what they called is merged, in its order."""
        if len(nodes) == 1:
            return nodes[0]
        count = total_ns = own_ns = 0
        hidden: list[Span] = []
        alike: dict[Shape, list[Sequence[Node]]] = {}  # what was called by those that called the same
        for node in nodes:
            count += node.count
            total_ns += node.total_ns
            own_ns += node.own_ns
            if node.hidden:
                hidden += node.hidden
            alike.setdefault(node.shape or self.shape(node), []).append(node.children)
        first = nodes[0]
        lists = [self._side_by_side(group) if len(group) > 1 else group[0] for group in alike.values()]
        return Node(
            first.kind,
            first.key,
            count,
            total_ns,
            own_ns,
            spans=_in_order(nodes) if first.spans else (),
            children=lists[0] if len(lists) == 1 else self._merge_children([one for one in lists if one]),
            hidden=hidden or (),
            steps=[step for node in nodes for step in node.steps] if first.steps else (),
            shape=first.shape if len(alike) == 1 else None,
        )

    def _side_by_side(self, lists: Sequence[Sequence[Node]]) -> Sequence[Node]:
        """Lists with the same digests as one."""
        return [self.merge(group) for group in zip(*lists, strict=True)]

    def _merge_children(self, lists: Sequence[Sequence[Node]]) -> Sequence[Node]:
        """The k-th child with a key in each list become one.

        What only a later list has comes after its neighbour there; at the beginning of the list, before the next one.
        """
        if len(lists) < 2:
            return lists[0] if lists else ()
        lists = _with_sequences(lists)
        same: dict[_Place, list[Node]] = {}
        following: dict[_Place | None, _Place | None] = {None: None}  # from None, the beginning, to None, the end
        preceding: dict[_Place | None, _Place | None] = {None: None}
        for nodes in lists:
            places = _places(nodes)
            before = preceding[next((place for place in places if place in same), None)]
            for place, node in zip(places, nodes, strict=True):
                if place not in same:
                    same[place] = []
                    after = following[before]
                    following[before], following[place] = place, after
                    preceding[place], preceding[after] = before, place
                same[place].append(node)
                before = place
        merged = []
        place_or_end = following[None]
        while place_or_end is not None:
            merged.append(self.merge(same[place_or_end]))
            place_or_end = following[place_or_end]
        return merged


def _places(nodes: Sequence[Node]) -> list[_Place]:
    seen: dict[Hashable, int] = {}
    places = []
    for node in nodes:
        seen[node.key] = seen.get(node.key, 0) + 1
        places.append((node.key, seen[node.key]))
    return places


def sequence(nodes: Sequence[Node]) -> Node:
    """A round of calls that is made again and again."""
    key = "repeat", tuple([node.key for node in nodes])
    count = min([node.count for node in nodes])
    return Node("repeat", key, count, total_ns=sum([node.total_ns for node in nodes]), children=nodes)


def _in_order(nodes: Sequence[Node]) -> list[Span]:
    """The spans of all of these, by their starts; each node has its own in order."""
    spans: list[Span] = []
    in_order = True
    for node in nodes:
        if spans and node.spans[0].start_ns < spans[-1].start_ns:
            in_order = False
        spans += node.spans
    if not in_order:
        spans.sort(key=attrgetter("start_ns"))
    return spans


def _with_sequences(lists: Sequence[Sequence[Node]]) -> Sequence[Sequence[Node]]:
    """A sequence that one of the lists has repeated is, where it comes once, a `repeat` of one round in all of them."""
    nested: list[set[tuple[Hashable, ...]]] = []  # the sequences by how deep repeats nest in them, the innermost first
    for nodes in lists:
        for node in nodes:
            if node.kind == "repeat":
                _collect(node, nested)
    for sequences in nested:
        lists = [_as_rounds(nodes, sequences) for nodes in lists]
    return lists


def _collect(repeat: Node, nested: list[set[tuple[Hashable, ...]]]) -> int:
    """Add the sequence of a repeat and of those within it; gives how deep it is, 0 for one that holds no other."""
    depth = max([_collect(child, nested) + 1 for child in repeat.children if child.kind == "repeat"], default=0)
    if depth == len(nested):
        nested.append(set())
    nested[depth].add(tuple([child.key for child in repeat.children]))
    return depth


def _as_rounds(nodes: Sequence[Node], sequences: set[tuple[Hashable, ...]]) -> list[Node]:
    lengths = sorted({len(one) for one in sequences})
    keys = [node.key for node in nodes]
    found: list[Node] = []
    at = 0
    while at < len(nodes):
        length = next((length for length in lengths if tuple(keys[at : at + length]) in sequences), 0)
        found.append(sequence(nodes[at : at + length]) if length else nodes[at])
        at += length or 1
    return found
