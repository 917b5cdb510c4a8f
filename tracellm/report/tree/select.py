"""Which calls are shown at all: those down to a level, or those into and out of some classes.

A hidden call's time and spans go to the call that made it, and the calls that it made stand in its place.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from tracellm.report.tree.nodes import Node, walk
from tracellm.trace.names import LEVELS, Level

__all__ = ["down_to", "hide", "on_focus"]


def hide(roots: Iterable[Node], shown: Callable[[Node], bool]) -> list[Node]:
    """The trees without the calls that `shown` refuses. Roots are always shown: nothing else could take their time."""
    kept = list(roots)
    for root in kept:
        _hide_below(root, shown)
    return kept


def _hide_below(node: Node, shown: Callable[[Node], bool]) -> None:
    if not node.children:
        return
    children: list[Node] = []
    for child in node.children:
        _hide_below(child, shown)
        if child.kind == "call" and not shown(child):
            node.own_ns += child.own_ns
            node.hide(child.spans)
            node.hide(child.hidden)
            children += _in_its_place(child, node.count)
        else:
            children.append(child)
    # What stood only around hidden calls has nothing left to say.
    for child in children:
        if child.kind != "call" and not child.children:
            node.own_ns += child.own_ns
            node.hide(child.hidden)
    node.replace_children([child for child in children if child.kind == "call" or child.children])


def _in_its_place(hidden: Node, of: int) -> Sequence[Node]:
    """The calls that a hidden one made. Several that were made several times still come in turn."""
    if hidden.count <= of or len(hidden.children) < 2:
        return hidden.children
    key = ("repeat", tuple(child.key for child in hidden.children))
    total_ns = sum(child.total_ns for child in hidden.children)
    return [Node("repeat", key, hidden.count, total_ns, children=hidden.children)]


def down_to(level: Level) -> Callable[[Node], bool]:
    """Shows the calls at `level` and at all coarser ones, and those that failed."""
    deepest = LEVELS.index(level)
    return lambda node: LEVELS.index(node.level) <= deepest or node.failed


def on_focus(roots: Iterable[Node], lifelines: Collection[str]) -> Callable[[Node], bool]:
    """Shows the calls into and out of these lifelines, and the calls through which the program came to them."""
    shown: set[int] = set()

    def mark(node: Node, caller: str) -> bool:
        """Whether anything here or below is in focus."""
        lifeline = node.span.lifeline if node.kind == "call" else caller
        below = [mark(child, lifeline) for child in node.children]
        wanted = lifeline in lifelines or caller in lifelines or any(below)
        if wanted:
            shown.add(id(node))
        return wanted

    for root in roots:
        mark(root, "")
    return lambda node: id(node) in shown


def lifelines(roots: Iterable[Node]) -> list[str]:
    """Every lifeline of the trees, in order of its first call."""
    return list(dict.fromkeys(node.span.lifeline for node in walk(roots) if node.kind == "call"))
