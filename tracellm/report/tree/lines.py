"""The user's lines: calls made from the user's own code stand under the line that made them."""

from collections.abc import Hashable, Sequence

from tracellm.report.tree.nodes import Node
from tracellm.trace import names

__all__ = ["under_lines"]


def under_lines(siblings: Sequence[Node]) -> Sequence[Node]:
    """Siblings with a `line` node over each call whose span has the user's line; for `Folder`.

    Different calls made one after the other by the same line share its node. The same call again is the line run
    again.
    """
    if not any(_may_have_line(node) for node in siblings):
        return siblings  # as nearly everywhere
    found: list[Node] = []
    here: Hashable = None
    calls: list[Node] = []  # those under the line that was found last
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
