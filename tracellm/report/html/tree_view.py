"""The page's call tree, as nested rows to open and close."""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any

from tracellm.report.calltree import folded_tree, written_out
from tracellm.report.texts import text
from tracellm.report.tree.nodes import Node, walk
from tracellm.report.wording.safe_text import shorten
from tracellm.report.wording.titles import (
    arguments,
    call_name,
    caller_line,
    error,
    moved,
    result,
    spans_text,
    steps_title,
    time,
    times,
)
from tracellm.trace.model import Span, Trace

__all__ = ["tree_view"]

MOST_NODES = 1500
OPEN_DEPTH = 3
"""Rows of a smaller depth are open at first, and so is the one with the steps."""

_LONGEST_LINE = 200
"""Characters of a line of the user's script."""

_View = dict[str, Any]


def tree_view(trace: Trace, lang: str) -> _View:
    """Return the folded tree; of a very large one, the deepest rows are counted only."""
    roots = folded_tree(trace)
    view = _TreeView(roots, lang)
    all_rows = sum(node.kind != "repeat" for node in walk(roots))
    recorded = any(node.recording_ns for node in walk(roots))
    return {"tree": view.rows, "more_calls": max(0, all_rows - MOST_NODES), "has_recording": recorded}


class _TreeView:
    def __init__(self, roots: Sequence[Node], lang: str) -> None:
        self._lang = lang
        self._shown = _nearest(roots)
        self._written: list[tuple[str, set[Hashable], int]] = []  # groups of steps so far: kind, calls, first step
        self.rows = [self._row(root, 1, 0, root.total_ns, None) for root in roots if id(root) in self._shown]

    def _row(self, node: Node, of: int, depth: int, whole: int, caller: Span | None) -> _View:
        """Return the row of a node that was reached by `of` calls of `caller`, and the rows below it.

        Bars are shares of `whole`.
        """
        where = moved(node.span, caller, self._lang) if node.kind == "call" else ""
        caller = node.span if node.kind == "call" else caller
        children = [child for child in written_out(node.children) if id(child) in self._shown]
        remarks = []
        if left_out := len(node.hidden) + sum(id(child) not in self._shown for child in written_out(node.children)):
            remarks.append(text(self._lang, "calltree.deeper", n=left_out))
        if node.kind == "steps":
            kind, calls = node.steps[0].kind, {one.key for one in walk(node.children)}
            like = next((index for of_kind, made, index in self._written if of_kind == kind and calls <= made), None)
            if like is not None:
                children, remarks = [], [text(self._lang, "html.calls.like", index=like)]
            else:
                self._written.append((kind, calls, node.steps[0].index))
        below_of = node.count if node.kind != "line" else of
        below_whole = node.total_ns if depth < 2 or node.kind == "steps" else whole
        if where:
            below_whole = node.total_ns  # work elsewhere has a time of its own
        below = [self._row(child, below_of, depth + 1, below_whole, caller) for child in children]
        return {
            "title": self._title(node),
            "kind": node.kind,
            "failed": node.failed,
            "where": where,
            "spans": self._spans(node),
            "count": times(node.count, of, self._lang) if node.kind == "call" else "",
            "detail": "  ".join([*self._details(node), *remarks]),
            "total": time(node.total_ns),
            "own": time(node.own_ns) if node.kind == "call" else "",
            "recording": time(node.recording_ns) if node.recording_ns else "",
            "width": _twentieths(node.total_ns, whole),
            "own_width": _twentieths(node.own_ns, whole),
            "open": depth < OPEN_DEPTH or any(child.kind == "steps" for child in children),
            "children": below,
        }

    def _title(self, node: Node) -> str:
        if node.kind == "line":
            return shorten(caller_line(node.children[0].span), _LONGEST_LINE)
        return steps_title(node.steps, self._lang) if node.kind == "steps" else call_name(node.span, self._lang)

    def _spans(self, node: Node) -> str:
        """Return the spans of a row; empty for a line or for steps, whose calls have rows of their own."""
        if not node.spans:
            return ""
        first, last = node.spans[0].span_id, node.spans[-1].span_id
        return spans_text(len(node.spans), first, last, len(node.hidden), self._lang)

    def _details(self, node: Node) -> list[str]:
        """Return the arguments and the result, or the exception."""
        if node.kind != "call":
            return []
        passed, came = arguments(node.span, 90), result(node.span, 60)
        details = [f"({passed})"] if passed else []
        if node.failed:
            details.append(error(node.span, 120))
        elif came:
            details.append(f"→ {came}")
        return details


def _nearest(roots: Sequence[Node]) -> set[int]:
    """Return the ids of the nodes nearest to the roots, as many as may be shown."""
    nodes, shown = deque(roots), set[int]()
    while nodes and len(shown) < MOST_NODES:
        node = nodes.popleft()
        shown.add(id(node))
        nodes.extend(written_out(node.children))
    return shown


def _twentieths(part: int, whole: int) -> int:
    return min(20, max(0, round(20 * part / whole))) if whole > 0 else 0
