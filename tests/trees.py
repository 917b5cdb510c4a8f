"""Passes over trees of calls, so that a test can check one pass alone.

Reports run all passes at once: `tracellm.report.tree.folded.fold_calls`.
"""

from collections.abc import Callable, Iterable, Sequence

from tracellm.report.tree.fold import Folder
from tracellm.report.tree.nodes import Node, levels

__all__ = ["bottom_up", "fold"]


def bottom_up(nodes: Iterable[Node], change: Callable[[Sequence[Node]], Sequence[Node]]) -> list[Node]:
    """Pass every list of siblings, the deepest first, through `change`; nodes are changed in place."""
    roots = list(nodes)
    for level in reversed(levels(roots)):
        for node in level:
            node.replace_children(change(node.children))
    return list(change(roots))


def fold(siblings: Sequence[Node]) -> Sequence[Node]:
    """Fold the repeats among siblings; the levels below them are folded already."""
    return Folder().fold(siblings)
