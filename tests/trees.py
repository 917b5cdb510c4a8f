"""Trees of calls with one thing done to every list of siblings, so that a test can look at it alone.

Reports do all at once: `tracellm.report.tree.folded.fold_calls`.
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
    """Siblings with what repeats among them drawn together; what is below them is folded already."""
    return Folder().fold(siblings)
