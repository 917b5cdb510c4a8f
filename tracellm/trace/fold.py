"""Folding of what repeats in a call tree, so that a thousand calls read as a few.

Repeated siblings are drawn together: one call made many times running becomes one node with a count, a sequence of
calls made many times running (`A B A B A B`) becomes one `repeat` node over one `A` and one `B`. What is folded keeps
its spans.

Two neighbours are alike when they are the same call and what they called directly is the same, or one called all that
the other did and more: allocating a slot takes a new block only sometimes, and it is still the same work. Below alike
nodes the calls are merged, in their order, or where their callers ran side by side, in that of their starts. Groups of
engine steps side by side stay apart: what differs between them is why they are groups.
"""

from collections.abc import Hashable, Sequence

from tracellm.trace.tree import Node

__all__ = ["fold", "merge"]

LONGEST_SEQUENCE = 8
"""How many calls a repeated sequence may have."""


def fold(siblings: list[Node]) -> list[Node]:
    """Siblings with what repeats among them drawn together: single calls first, then sequences, the shortest first."""
    if len(siblings) < 2:
        return siblings
    folded = _fold_calls(siblings)
    for length in range(2, min(LONGEST_SEQUENCE, len(folded) // 2) + 1):
        folded = _fold_sequences(folded, length)
    return folded


def _fold_calls(siblings: list[Node]) -> list[Node]:
    runs: list[list[Node]] = []
    made_in_run: set[Hashable] = set()
    for node in siblings:
        made = _made(node)
        if runs and node.kind != "steps" and runs[-1][0].key == node.key and _alike(made_in_run, made):
            runs[-1].append(node)
            made_in_run |= made
        else:
            runs.append([node])
            made_in_run = made
    return [merge(run) for run in runs]


def _fold_sequences(siblings: list[Node], length: int) -> list[Node]:
    folded: list[Node] = []
    at = 0
    while at < len(siblings):
        rounds = _rounds(siblings, at, length)
        if rounds == 1:
            folded.append(siblings[at])
            at += 1
        else:
            end = at + rounds * length
            folded.append(merge([_sequence(siblings[i : i + length]) for i in range(at, end, length)]))
            at = end
    return folded


def _rounds(siblings: list[Node], at: int, length: int) -> int:
    """How many times running the sequence of `length` nodes at `at` comes: 1 when it is not repeated."""
    rounds = 1
    while all(
        at + rounds * length + i < len(siblings) and _same(siblings[at + i], siblings[at + rounds * length + i])
        for i in range(length)
    ):
        rounds += 1
    return rounds


def _same(node: Node, other: Node) -> bool:
    return node.kind != "steps" and node.key == other.key and _alike(_made(node), _made(other))


def _made(node: Node) -> set[Hashable]:
    """What calls a node made directly."""
    return {child.key for child in node.children}


def _alike(some: set[Hashable], others: set[Hashable]) -> bool:
    return some == others or (bool(some) and bool(others) and (some <= others or others <= some))


def _sequence(nodes: list[Node]) -> Node:
    key = ("repeat", tuple(node.key for node in nodes))
    count = min(node.count for node in nodes)
    return Node("repeat", key, count, total_ns=sum(node.total_ns for node in nodes), children=nodes)


def merge(nodes: Sequence[Node]) -> Node:
    """One node that stands for all of these, which have the same key; what they called is merged, in its order."""
    first = nodes[0]
    if len(nodes) == 1:
        return first
    return Node(
        first.kind,
        first.key,
        count=sum(node.count for node in nodes),
        total_ns=sum(node.total_ns for node in nodes),
        own_ns=sum(node.own_ns for node in nodes),
        spans=sorted((span for node in nodes for span in node.spans), key=lambda span: span.start_ns),
        children=_merge_children([node.children for node in nodes if node.children]),
        hidden=[span for node in nodes for span in node.hidden],
        steps=[step for node in nodes for step in node.steps],
    )


_Place = tuple[Hashable, int]
"""The k-th child with a key."""


def _merge_children(lists: list[list[Node]]) -> list[Node]:
    """The k-th child with a key in each list become one. What only a later list has comes after its neighbour there."""
    repeats = {
        node.key: [child.key for child in node.children] for nodes in lists for node in nodes if node.kind == "repeat"
    }
    same: dict[_Place, list[Node]] = {}
    following: dict[_Place | None, _Place | None] = {None: None}  # from None, the beginning, to None, the end
    for nodes in lists:
        for key, sequence in repeats.items():
            nodes = _with_sequences(nodes, key, sequence)
        seen: dict[Hashable, int] = {}
        before: _Place | None = None
        for node in nodes:
            seen[node.key] = seen.get(node.key, 0) + 1
            place = node.key, seen[node.key]
            if place not in same:
                same[place] = []
                following[before], following[place] = place, following[before]
            same[place].append(node)
            before = place
    merged = []
    place_or_end = following[None]
    while place_or_end is not None:
        merged.append(merge(same[place_or_end]))
        place_or_end = following[place_or_end]
    return merged


def _with_sequences(nodes: list[Node], key: Hashable, sequence: list[Hashable]) -> list[Node]:
    """A sequence that another list has repeated is here, where it comes once, a `repeat` of one round."""
    found: list[Node] = []
    at = 0
    while at < len(nodes):
        if [node.key for node in nodes[at : at + len(sequence)]] == sequence:
            found.append(_sequence(nodes[at : at + len(sequence)]))
            at += len(sequence)
        else:
            found.append(nodes[at])
            at += 1
    return found
