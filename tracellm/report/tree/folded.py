"""The folded call tree, made once for the call tree's text, the page and the sequence diagram.

Alike steps are grouped, calls of the user's code stand under the line that made them, and repetition is folded.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from tracellm.report.tree.fold import Folder
from tracellm.report.tree.invariants import run_passes
from tracellm.report.tree.nodes import CallKey, CallTree, Node, call_tree
from tracellm.report.tree.step_groups import AROUND, group_steps
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.steps import STEP_SPAN

__all__ = ["copy_tree", "fold_calls", "folded", "under_lines"]


def under_lines(siblings: Sequence[Node]) -> Sequence[Node]:
    """Return siblings with a `line` node over each call made by a line of the user's; for `Folder`.

    Different calls that one line makes one after the other share its node. The same call again is the line run again.
    """
    if not any(_may_have_line(node) for node in siblings):
        return siblings  # the common case
    found: list[Node] = []
    here: Hashable = None
    calls: list[Node] = []  # calls below the last line found
    keys: set[Hashable] = set()
    for node in siblings:
        if node.kind == "steps":
            node.replace_children(under_lines(node.children))
        line = _line(node)
        if line is None:
            found.append(node)
        elif found and line == here and node.key not in keys:
            calls.append(node)
            found[-1].total_ns += node.total_ns
        else:
            calls = [node]
            keys = set()
            found.append(Node("line", line, total_ns=node.total_ns, children=calls))
        keys.add(node.key)
        here = line
    return found


def _may_have_line(node: Node) -> bool:
    return names.CALLER_FILE in node.spans[0].attributes if node.kind == "call" else node.kind == "steps"


def _line(node: Node) -> Hashable:
    attributes = node.span.attributes if node.kind == "call" else {}
    file = attributes.get(names.CALLER_FILE)
    return None if file is None else ("line", str(file), str(attributes.get(names.CALLER_LINE)))


T = TypeVar("T", bound=CallTree)

_STEPS = AROUND | {STEP_SPAN}


def folded(trace: Trace) -> CallTree:
    """Return the calls of a trace under the user's lines, with repetition folded: a tree that the caller may change."""
    return copy_tree(CallTree(trace, _folded(trace)))


def copy_tree(tree: T) -> T:
    """Return a copy of a tree that later passes may change."""
    return replace(tree, roots=[_copy(root) for root in tree.roots])


def fold_calls(tree: T) -> T:
    """Group alike steps, put the user's calls under their lines, and fold repetition, in every list of siblings."""
    folder = Folder(lambda siblings: under_lines(grouped(siblings)), _may_stand_apart)
    grouped = group_steps(tree.trace, tree.units, tree.turns, folder)
    return replace(tree, roots=folder.fold_all(tree.roots))


def _may_stand_apart(key: Hashable) -> bool:
    """Return whether a call may be made by a line of the user's, make an engine step, or be a part's."""
    return not isinstance(key, CallKey) or key.name in _STEPS or key.caller != (None, None)


@per_trace
def _folded(trace: Trace) -> list[Node]:
    return run_passes(CallTree(trace, call_tree(trace)), fold_calls).roots


def _copy(node: Node) -> Node:
    """Return a copy of all that later passes change: children, hidden calls and own times. The rest may be shared."""
    return msgspec.structs.replace(node, children=[_copy(child) for child in node.children], hidden=list(node.hidden))
