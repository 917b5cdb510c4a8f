"""Of very many groups of steps the first ones stay, and the last of each generation; what is between becomes one."""

from collections.abc import Sequence

from tracellm.trace.fold import merge
from tracellm.trace.tree import Node, walk

__all__ = ["condense"]


def condense(roots: list[Node], most: int) -> list[Node]:
    """The trees with about `most` groups of steps in all; each call that has steps below keeps one group at least."""
    top = Node("repeat", None, children=roots)
    parents = [node for node in walk([top]) if any(child.kind == "steps" for child in node.children)]
    sizes = [sum(child.kind == "steps" for child in node.children) for node in parents]
    for node, room in zip(parents, _rooms(sizes, most), strict=True):
        if room < sum(child.kind == "steps" for child in node.children):
            node.replace_children(_condensed(node.children, room))
    return list(top.children)


def _rooms(sizes: Sequence[int], most: int) -> list[int]:
    """How many groups each call may keep: the first enough to show a prefill, a decode step and the rest."""
    rooms = [min(size, 1 if i else 4) for i, size in enumerate(sizes)]
    left = most - sum(rooms)
    while left > 0 and rooms != list(sizes):
        for i, size in enumerate(sizes):
            if rooms[i] < size and left > 0:
                rooms[i] += 1
                left -= 1
    return rooms


def _condensed(siblings: Sequence[Node], room: int) -> list[Node]:
    groups = [node for node in siblings if node.kind == "steps"]
    # The first decode step is kept wherever it is, and on either side of it one node stands for what is left out.
    decode = next((i for i, node in enumerate(groups) if node.steps[0].kind == "decode"), 0)
    last = len(groups) - 1
    kept = {1: set[int](), 2: {0}, 3: {0, last}, 4: {0, decode}}.get(room, {*range(room - 4), decode, last})
    apart = {id(groups[i]) for i in kept}
    found: list[Node] = []
    gap: list[Node] = []
    for node in siblings:
        if node.kind == "steps" and id(node) not in apart:
            gap.append(node)
            continue
        if gap:
            found.append(merge(gap))
            gap = []
        found.append(node)
    return [*found, merge(gap)] if gap else found
