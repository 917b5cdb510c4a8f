"""The folded call tree, which the call tree's text, the page and the sequence diagram all begin with: made once."""

from functools import lru_cache

from tracellm.report.passes.lines import under_lines
from tracellm.report.passes.step_groups import group_steps
from tracellm.report.passes.story import Story
from tracellm.trace.fold import fold
from tracellm.trace.model import Trace
from tracellm.trace.tree import Node, bottom_up, call_tree

__all__ = ["fold_all", "folded"]


def folded(trace: Trace) -> list[Node]:
    """The calls of a trace under the user's lines, with all that repeats folded: trees of the caller's own."""
    return [_copy(root) for root in _folded(trace)]


def fold_all(trace: Trace, roots: list[Node], story: Story | None = None) -> list[Node]:
    """The same for trees out of which something was taken, or that are a story; these are changed."""
    grouped = group_steps(trace, story.units, story.steps) if story and story.lanes else group_steps(trace)
    return bottom_up(roots, lambda siblings: fold(under_lines(grouped(siblings))))


@lru_cache(maxsize=1)
def _folded(trace: Trace) -> list[Node]:
    return fold_all(trace, call_tree(trace))


def _copy(node: Node) -> Node:
    """The later passes change children, hidden calls and own times; the rest may be shared."""
    children = [_copy(child) for child in node.children]
    return Node(
        node.kind,
        node.key,
        node.count,
        node.total_ns,
        node.own_ns,
        spans=node.spans,
        children=children,
        hidden=node.hidden.copy(),
        steps=node.steps,
    )
