"""Of very many groups of steps running, the first ones and the last stay, and those between become one."""

from collections.abc import Callable

from tracellm.trace.fold import merge
from tracellm.trace.tree import Node

__all__ = ["condense"]


def condense(most: int) -> Callable[[list[Node]], list[Node]]:
    """A change of siblings, for `bottom_up`: at most `most` (6 or more) groups of steps stand side by side."""

    def change(siblings: list[Node]) -> list[Node]:
        found: list[Node] = []
        run: list[Node] = []
        for node in siblings:
            if node.kind == "steps":
                run.append(node)
            else:
                found += [*_condensed(run, most), node]
                run = []
        return found + _condensed(run, most)

    return change


def _condensed(run: list[Node], most: int) -> list[Node]:
    if len(run) <= most:
        return run
    # The last group, and the first decode step wherever it is; on either side of that, one node for what is left out.
    decode = next((i for i, node in enumerate(run) if node.steps[0].kind == "decode"), 0)
    kept = {*range(most - 4), decode, len(run) - 1}
    found: list[Node] = []
    gap: list[Node] = []
    for i, node in enumerate(run):
        if i not in kept:
            gap.append(node)
            continue
        found += [merge(gap)] if gap else []
        found.append(node)
        gap = []
    return found
