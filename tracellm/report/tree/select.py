"""Selection of the calls to show: those down to a level, or those into and out of some classes.

A hidden call's time and spans go to its caller, and its callees take its place.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import TypeVar

from tracellm.report.tree.nodes import CallTree, Node, walk
from tracellm.trace.names import LEVELS, Level

__all__ = ["down_to", "focus_on", "function_names", "hide", "lifeline_names"]

T = TypeVar("T", bound=CallTree)


def down_to(tree: T, level: Level) -> T:
    """Show the calls at `level` and at all coarser ones, and those that failed.

    Raises:
        ValueError: there is no such level.
    """
    if level not in LEVELS:
        raise ValueError(f"no level of detail {level!r}: choose one of {', '.join(LEVELS)}")
    deepest = LEVELS.index(level)
    return hide(tree, lambda node: LEVELS.index(node.level) <= deepest or node.failed)


def focus_on(tree: T, lifelines: Collection[str]) -> T:
    """Show the calls into and out of these lifelines and functions, and the calls that lead there.

    Raises:
        ValueError: the tree has no such lifeline or function.
    """
    known = lifeline_names(tree.roots)
    functions = function_names(tree.roots)
    for name in lifelines:
        if name not in known and name not in functions:
            near = get_close_matches(name, known, n=3, cutoff=0.5) or known
            raise ValueError(f"no lifeline {name!r} in this run; there are {', '.join(near)}")
    focused = set[int]().union(*[_focused(root, set(), lifelines) for root in tree.roots])
    return hide(tree, lambda node: id(node) in focused)


def _focused(node: Node, caller: set[str], lifelines: Collection[str]) -> set[int]:
    """Return the ids of the nodes of a subtree to show, with all nodes around them.

    `caller` has the names of the call around the subtree: its lifeline and its function.
    """
    own = {node.span.lifeline, node.span.name} if node.kind == "call" else caller
    below = set[int]().union(*[_focused(child, own, lifelines) for child in node.children])
    return below | {id(node)} if below or not (own | caller).isdisjoint(lifelines) else below


def hide(tree: T, shown: Callable[[Node], bool]) -> T:
    """Remove the calls for which `shown` is false. Roots are always shown: nothing else could take their time."""
    for root in tree.roots:
        _hide_below(root, shown)
    return tree


def _hide_below(node: Node, shown: Callable[[Node], bool]) -> None:
    if not node.children:
        return
    children: list[Node] = []
    for child in node.children:
        _hide_below(child, shown)
        if child.kind == "call" and not shown(child):
            node.take_in(child)
            children += _in_its_place(child, node.count)
        else:
            children.append(child)
    # nodes that stood around hidden calls only are removed, too
    for child in children:
        if child.kind != "call" and not child.children:
            node.take_in(child)
    node.replace_children([child for child in children if child.kind == "call" or child.children])


def _in_its_place(hidden: Node, of: int) -> Sequence[Node]:
    """Return the callees of a hidden call, as one `repeat` node if it was repeated."""
    if hidden.count <= of or len(hidden.children) < 2:
        return hidden.children
    key = ("repeat", tuple(child.key for child in hidden.children))
    total_ns = sum(child.total_ns for child in hidden.children)
    return [Node("repeat", key, hidden.count, total_ns, children=hidden.children)]


def lifeline_names(roots: Iterable[Node]) -> list[str]:
    """Return every lifeline of the trees, in the order of the first calls."""
    return list(dict.fromkeys(node.span.lifeline for node in walk(roots) if node.kind == "call"))


def function_names(roots: Iterable[Node]) -> list[str]:
    """Return the names of the called functions that are not methods, in the order of the first calls."""
    called = dict.fromkeys(node.span.name for node in walk(roots) if node.kind == "call")
    return [name for name in called if "." not in name]
