"""The user's lines: calls made from the user's own code stand under the line that made them."""

from collections.abc import Hashable

from tracellm.trace import names
from tracellm.trace.tree import Node

__all__ = ["under_lines"]


def under_lines(siblings: list[Node]) -> list[Node]:
    """Siblings with a `line` node over each call whose span tells the user's line; for `bottom_up`.

    Different calls made one after the other by the same line share its node. The same call again is the line run
    again.
    """
    found: list[Node] = []
    here: Hashable = None
    for node in siblings:
        if node.kind == "steps":
            node.children = under_lines(node.children)
        line = _line(node)
        if line is None:
            found.append(node)
        elif found and line == here and all(node.key != other.key for other in found[-1].children):
            found[-1].children.append(node)
            found[-1].total_ns += node.total_ns
        else:
            found.append(Node("line", line, total_ns=node.total_ns, children=[node]))
        here = line
    return found


def _line(node: Node) -> Hashable:
    attributes = node.span.attributes if node.kind == "call" else {}
    file = attributes.get(names.CALLER_FILE)
    return None if file is None else ("line", file, attributes.get(names.CALLER_LINE))
