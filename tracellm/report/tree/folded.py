"""The folded call tree, which the call tree's text, the page and the sequence diagram all begin with: made once."""

from collections.abc import Hashable

from msgspec.structs import replace

from tracellm.report.diagram.story import Story
from tracellm.report.tree.fold import Folder
from tracellm.report.tree.invariants import through
from tracellm.report.tree.lines import under_lines
from tracellm.report.tree.nodes import CallKey, Node, call_tree
from tracellm.report.tree.step_groups import AROUND, group_steps
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Trace
from tracellm.trace.steps import STEP_SPAN

__all__ = ["fold_all", "folded"]

_STEPS = AROUND | {STEP_SPAN}


def folded(trace: Trace) -> list[Node]:
    """The calls of a trace under the user's lines, with all that repeats folded: trees of the caller's own."""
    return [_copy(root) for root in _folded(trace)]


def fold_all(trace: Trace, roots: list[Node], story: Story | None = None) -> list[Node]:
    """The same for trees out of which something was taken, or that are a story; these are changed."""
    told = story is not None and story.lanes is not None
    folder = Folder(lambda siblings: under_lines(grouped(siblings)), _may_stand_apart)
    units, turns = (story.units, story.steps) if story and told else (None, None)
    grouped = group_steps(trace, units, turns, folder)
    return through("fold", folder.fold_all, roots, ordered=not told)


def _may_stand_apart(key: Hashable) -> bool:
    """Whether a call may be one that a line of the user's made, or that an engine step is made by, or a part's."""
    return not isinstance(key, CallKey) or key.name in _STEPS or key.caller != (None, None)


@per_trace
def _folded(trace: Trace) -> list[Node]:
    return fold_all(trace, call_tree(trace))


def _copy(node: Node) -> Node:
    """The later passes change children, hidden calls and own times; the rest may be shared."""
    return replace(node, children=[_copy(child) for child in node.children], hidden=list(node.hidden))
