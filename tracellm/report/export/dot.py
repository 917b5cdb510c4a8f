"""The objects of a run as a Graphviz graph: `dot -Tsvg FILE` draws it.

A box is a class, with how often it was called; the boxes of a process stand in a frame. A solid arrow is who calls
whom and how often, a bold one who started whom in a thread or a process of its own, a dashed one which messages went.
The language is https://graphviz.org/doc/info/lang.html.
"""

from collections.abc import Iterator

from tracellm.report.export.chosen import Chosen
from tracellm.report.export.objects import Object, Objects, objects
from tracellm.report.texts import text
from tracellm.report.wording.quantities import duration
from tracellm.report.wording.safe_text import shorten, visible
from tracellm.trace.model import Process

__all__ = ["dot", "quoted"]

_LONGEST = 60  # characters of a name
_FILLS = {"request": "#fde8d7", "step": "#fdf6d3", "layer": "#dcefe0", "kernel": "#dde8f6"}


def dot(chosen: Chosen, lang: str = "en") -> Iterator[bytes]:
    """The graph, line by line."""
    for line in _lines(objects(chosen), lang):
        yield f"{line}\n".encode("utf-8", "replace")


def quoted(said: str, most: int = _LONGEST) -> str:
    """A text as Graphviz shows it, at most `most` characters: on one line, nothing in it acting as syntax."""
    return '"' + shorten(visible(said), most).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lines(found: Objects, lang: str) -> Iterator[str]:
    ids = {one: f"n{number}" for number, one in enumerate(found.known)}
    processes: dict[int, list[Object]] = {}
    for one in found.known:
        processes.setdefault(id(one.process), []).append(one)
    yield "digraph objects {"
    yield f"  label={quoted(text(lang, 'export.dot.legend'), 200)} labelloc=t fontname=Helvetica fontsize=11"
    yield "  rankdir=TB ranksep=0.35 nodesep=0.2"
    yield '  node [shape=box style="filled,rounded" color="#8a8a8a" fontname=Helvetica fontsize=10 height=0.3]'
    yield '  edge [color="#555555" fontname=Helvetica fontsize=8 arrowsize=0.6]'
    for number, members in enumerate(processes.values()):
        yield f"  subgraph cluster_{number} {{"
        yield f'    label={quoted(_process(members[0].process))} style=rounded color="#b0b0b0" fontname=Helvetica'
        for one in members:
            label = f'{quoted(one.name)[:-1]}\\n×{one.calls:,}"'
            yield f'    {ids[one]} [label={label} fillcolor="{_FILLS[one.level]}" tooltip={quoted(one.level)}]'
        yield "  }"
    for (caller, callee), (count, time) in found.calls.items():
        style = " style=bold" if (caller, callee) in found.started else ""
        tooltip = quoted(f"{caller.name} → {callee.name}: ×{count:,}, {duration(time / 1e9)}")
        yield f'  {ids[caller]} -> {ids[callee]} [label="×{count:,}" tooltip={tooltip}{style}]'
    for (sender, receiver, kind), count in found.messages.items():
        label = quoted(f"{kind} ×{count:,}")
        yield f"  {ids[sender]} -> {ids[receiver]} [label={label} style=dashed constraint=false]"
    yield "}"


def _process(process: Process | None) -> str:
    return f"{process.name} (pid {process.pid})" if process else "?"
