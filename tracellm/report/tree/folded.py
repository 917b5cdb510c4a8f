"""The folded call tree, with which the call tree's text, the page and the sequence diagram all begin: made once."""

from collections.abc import Hashable
from dataclasses import replace
from typing import TypeVar

import msgspec

from tracellm.report.tree.fold import Folder
from tracellm.report.tree.invariants import run_passes
from tracellm.report.tree.lines import under_lines
from tracellm.report.tree.nodes import CallKey, CallTree, Node, call_tree
from tracellm.report.tree.step_groups import AROUND, group_steps
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.steps import STEP_SPAN

__all__ = ["fold_calls", "folded"]

T = TypeVar("T", bound=CallTree)

_STEPS = AROUND | {STEP_SPAN}


def folded(trace: Trace) -> CallTree:
    """The calls of a trace under the user's lines, with all that repeats folded: a tree of the caller's own."""
    return CallTree(trace, [_copy(root) for root in _folded(trace)])


def fold_calls(tree: T) -> T:
    """Group alike steps, put the user's calls under their lines, and fold what repeats, in every list of siblings."""
    folder = Folder(lambda siblings: under_lines(grouped(siblings)), _may_stand_apart)
    grouped = group_steps(tree.trace, tree.units, tree.turns, folder)
    return replace(tree, roots=folder.fold_all(tree.roots))


def _may_stand_apart(key: Hashable) -> bool:
    """Whether a call may be one that a line of the user's made, or that an engine step is made by, or a part's."""
    return not isinstance(key, CallKey) or key.name in _STEPS or key.caller != (None, None)


@per_trace
def _folded(trace: Trace) -> list[Node]:
    return run_passes(CallTree(trace, call_tree(trace)), fold_calls).roots


def _copy(node: Node) -> Node:
    """A copy of what later passes change, children, hidden calls and own times; the rest may be shared."""
    return msgspec.structs.replace(node, children=[_copy(child) for child in node.children], hidden=list(node.hidden))
