"""A trace as a call tree in plain text: from the user's line down to the kernels, with how often and how long.

    call                                                                calls     total       own
    hello.py                                                                     1.52 s    702 ms
    ├ hello.py:12  outputs = llm.generate(prompts)                               214 ms
    │ └ LLM.generate → list[2 RequestOutput]                                     214 ms   0.31 ms
    │   ├ steps 2-16: decode, 2 requests                              ×15        102 ms

Total is the time of all calls of a row. Own is the part not spent in the calls below it or in recording. Recording time
has a column of its own if there is any.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rich.cells import cell_len, set_cell_size

from tracellm.report.texts import text
from tracellm.report.tree.folded import folded
from tracellm.report.tree.invariants import run_passes
from tracellm.report.tree.nodes import Node, calls_below, raised_here, walk
from tracellm.report.tree.overlap import times_once, total_once
from tracellm.report.tree.step_groups import condense
from tracellm.report.wording.request_names import RequestNames, request_names
from tracellm.report.wording.safe_text import visible
from tracellm.report.wording.titles import call_name, caller_line, error, moved, result, steps_name, steps_title, time
from tracellm.trace import names
from tracellm.trace.memo import per_trace
from tracellm.trace.model import Span, Trace

__all__ = ["Row", "calltree", "folded_tree", "rows"]

MOST_STEP_GROUPS = 40
"""Maximum number of groups of alike steps; if there are more, those in the middle share one row."""

_LONGEST_RESULT = 60
_LONGEST_ERROR = 200
"""Characters."""

_LEAST_RESULT = len(" → list…")
"""Minimum width of a result, in columns."""

_MOST_MORE = 4
"""Maximum number of calls that a group adds to an earlier one before its calls are written out again."""

_NUMBERS = (7, 10, 10, 11)
"""Widths in columns of count, total, own and recording time, each with a leading blank."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the tree. `lines` joins it to the row above. A remark has neither count nor times."""

    lines: str
    title: str
    returned: str = ""
    count: int = 0
    total_ns: int | None = None
    own_ns: int | None = None
    """None for a row without calls of its own: a line of the script, a group of steps."""
    recording_ns: int | None = None
    """Recording time; None as for `own_ns`."""


@per_trace
def folded_tree(trace: Trace) -> list[Node]:
    """Return the folded call tree, which `calltree` writes. It is made once for a trace: do not change it."""
    return list(_written_out(run_passes(folded(trace), partial(condense, most=MOST_STEP_GROUPS)).roots))


def calltree(trace: Trace, *, lang: str = "en", width: int = 100) -> str:
    """Return the call tree as text, `width` columns wide, ending in a newline."""
    roots = folded_tree(trace)
    if not roots:
        return text(lang, "diagram.nothing") + "\n"
    heads = [text(lang, f"calltree.{name}") for name in ("call", "calls", "total", "own", "recording")]
    if not any(node.recording_ns for node in walk(roots)):
        heads.pop()
    widths = _NUMBERS[: len(heads) - 1]
    title_width = max(width - sum(widths), 20)
    lines = [
        _columns(cells[: len(heads)], title_width, widths)
        for cells in (_cells(row, title_width) for row in rows(roots, request_names(trace), lang))
    ]
    return "\n".join([_columns(heads, title_width, widths), *lines]) + "\n"


def _cells(row: Row, title_width: int) -> list[str]:
    title = row.lines + row.title
    if row.returned and cell_len(title) + _LEAST_RESULT <= title_width:
        title = _cut(f"{title} → {row.returned}", title_width)
    times = ["" if ns is None else time(ns) for ns in (row.total_ns, row.own_ns, row.recording_ns or None)]
    return [title, f"×{row.count:,}" if row.count > 1 else "", *times]


def _columns(cells: list[str], title_width: int, widths: Sequence[int]) -> str:
    """Return a line of text. Widths are those of a terminal: a Chinese character takes two columns."""
    first, *numbers = cells
    if not any(numbers):
        title_width += sum(widths)
    first = _cut(first, title_width)
    padded = (" " * max(most - cell_len(number), 1) + number for number, most in zip(numbers, widths, strict=True))
    return (set_cell_size(first, title_width) + "".join(padded)).rstrip()


def _cut(line: str, title_width: int) -> str:
    """Cut the line to `title_width` columns, with an ellipsis."""
    return line if cell_len(line) <= title_width else set_cell_size(line, title_width - 1).rstrip() + "…"


def rows(roots: Iterable[Node], names_of: RequestNames, lang: str) -> Iterator[Row]:
    """Yield the rows of folded trees, from top to bottom.

    The calls of steps are written out below the first group of a kind. A later group with nearly the same calls points
    to that one and names the others.
    """
    written: list[tuple[bool, set[str], str]] = []
    roots = list(roots)
    several = len({node.span.process.pid for node in roots if node.spans and node.span.process}) > 1
    # next: a node or a remark, the lines of its own row, those of the rows below it, and the caller
    stack: list[tuple[Node | str, str, str, Span | None]] = [(root, "", "", None) for root in reversed(roots)]
    while stack:
        node, lines, indent, caller = stack.pop()
        if isinstance(node, str):
            yield Row(lines, node)
            continue
        same_result = node.count == 1 or (node.spans and names.HTTP_METHOD in node.span.attributes)
        returned = result(node.span, _LONGEST_RESULT) if node.spans and same_result else ""
        total_ns, own_ns = times_once(node) if node.count > 1 and node.spans else (node.total_ns, node.own_ns)
        if node.kind == "line":
            total_ns = min(total_ns, total_once(span for child in calls_below(node) for span in child.spans))
        title = _title(node, names_of, lang)
        if node.kind == "call":
            mark = moved(node.span, caller, lang)
            if several and caller is None and node.span.process:
                mark = text(lang, "calltree.process", name=visible(node.span.process.name))
            title = f"{title} {mark}".rstrip()
            caller = node.span
        recording_ns = node.recording_ns if node.spans else None
        yield Row(lines, title, returned, node.count, total_ns, own_ns if node.spans else None, recording_ns)
        below: list[Node | str] = list(_written_out(node.children))
        if raised_here(node):
            below.append(f"✗ {error(node.span, _LONGEST_ERROR)}")
        if node.kind == "steps":
            decode, made = node.steps[0].kind == "decode", _names(node)
            for kind, known, name in written:
                if kind == decode and len(made - known) <= _MOST_MORE:
                    below = [_same_calls(name, made - known, lang)]
                    break
            else:
                written.append((decode, made, steps_name(node.steps, lang)))
        if node.hidden:
            below.append(text(lang, "calltree.deeper", n=len(node.hidden)))
        joined = [(child, f"{indent}├ ", f"{indent}│ ", caller) for child in below]
        if below:
            joined[-1] = (below[-1], f"{indent}└ ", f"{indent}  ", caller)
        stack += reversed(joined)


def _names(node: Node) -> set[str]:
    """Return the names of all calls below; a failed call gets a distinct name, so it is written out."""
    return {child.span.name + "!" * child.failed for child in walk(node.children) if child.kind == "call"}


def _same_calls(name: str, more: set[str], lang: str) -> str:
    if not more:
        return text(lang, "calltree.like", name=name)
    return text(lang, "calltree.like_and", name=name, more=text(lang, "step.comma").join(sorted(more)))


def _written_out(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the nodes that get a row; the calls of a repeated sequence replace its node."""
    for node in nodes:
        if node.kind == "repeat":
            yield from _written_out(node.children)
        else:
            yield node


def _title(node: Node, names_of: RequestNames, lang: str) -> str:
    if node.kind == "line":
        return caller_line(node.children[0].span)
    if node.kind == "steps":
        return steps_title(node.steps, names_of, lang)
    return f"✗ {call_name(node.span, lang)}" if node.failed else call_name(node.span, lang)
