"""The objects of a run and who calls whom, as a Graphviz graph: `dot -Tsvg FILE` draws it.

An object is a class in a process (or a module, for its functions, or the script), as a lifeline of a sequence diagram
is. There is no order: each pair is counted once, however often it called.

A box is a class, with the number of its calls; the boxes of a process stand in a frame. A solid arrow is a caller and
how often it called, a bold one a start of a thread or a process, a dashed one messages. The language is
https://graphviz.org/doc/info/lang.html.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tracellm.report.export.chosen import Chosen, same_thread
from tracellm.report.texts import text
from tracellm.report.wording.quantities import duration
from tracellm.report.wording.safe_text import shorten, visible
from tracellm.trace import names
from tracellm.trace.model import Process, Span
from tracellm.trace.names import LEVELS, Level

__all__ = ["Object", "Objects", "dot", "objects", "quoted"]


@dataclass(slots=True, eq=False)
class Object:
    """A class in a process: the number of its calls, and the coarsest level of these."""

    name: str
    process: Process | None
    calls: int = 0
    level: Level = "kernel"


@dataclass(slots=True, eq=False)
class Objects:
    """The objects in the order of their first calls, and what goes between them.

    Attributes:
        known: all objects.
        calls: number and nanoseconds of calls, by caller and callee; without calls of an object to itself.
        started: pairs of which the first started a thread or a process in which the second began to run.
        messages: number of messages, by sender, receiver and type.
    """

    known: list[Object] = field(default_factory=list)
    calls: dict[tuple[Object, Object], tuple[int, int]] = field(default_factory=dict)
    started: set[tuple[Object, Object]] = field(default_factory=set)
    messages: dict[tuple[Object, Object, str], int] = field(default_factory=dict)


def objects(chosen: Chosen) -> Objects:
    """Return the objects of the chosen calls, in linear time."""
    found = Objects()
    by_key: dict[tuple[int, str], Object] = {}

    def of(span: Span) -> Object:
        key = id(span.process), span.lifeline
        known = by_key.get(key)
        if known is None:
            known = by_key[key] = Object(span.lifeline, span.process)
            found.known.append(known)
        return known

    for span in chosen.calls:
        callee = of(span)
        callee.calls += 1
        callee.level = min(callee.level, span.level, key=LEVELS.index)
        around = chosen.caller(span)
        if around is not None and (caller := of(around)) is not callee:
            count, time = found.calls.get((caller, callee), (0, 0))
            found.calls[caller, callee] = count + 1, time + span.duration_ns
            if not same_thread(around, span):
                found.started.add((caller, callee))
    for message in chosen.trace.messages:
        send, receive = message.send, message.receive
        if receive is None or not (chosen.holds(send) and chosen.holds(receive)):
            continue
        # encoders and decoders only help the classes that exchange messages
        ends = of(chosen.caller(send) or send), of(chosen.caller(receive) or receive)
        key = *ends, str(send.attributes.get(names.MESSAGE_TYPE, "?"))
        found.messages[key] = found.messages.get(key, 0) + 1
    return found


_LONGEST = 60  # characters of a name
_FILLS = {"request": "#fde8d7", "step": "#fdf6d3", "layer": "#dcefe0", "kernel": "#dde8f6"}


def dot(chosen: Chosen, lang: str = "en") -> Iterator[bytes]:
    """Yield the graph, line by line."""
    for line in _lines(objects(chosen), lang):
        yield f"{line}\n".encode("utf-8", "replace")


def quoted(label: str, most: int = _LONGEST) -> str:
    """Return a text in quotes on one line of at most `most` characters, with Graphviz's syntax escaped."""
    return '"' + shorten(visible(label), most).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lines(found: Objects, lang: str) -> Iterator[str]:
    ids = {obj: f"n{number}" for number, obj in enumerate(found.known)}
    processes: dict[int, list[Object]] = {}
    for obj in found.known:
        processes.setdefault(id(obj.process), []).append(obj)
    yield "digraph objects {"
    yield f"  label={quoted(text(lang, 'export.dot.legend'), 200)} labelloc=t fontname=Helvetica fontsize=11"
    yield "  rankdir=TB ranksep=0.35 nodesep=0.2"
    yield '  node [shape=box style="filled,rounded" color="#8a8a8a" fontname=Helvetica fontsize=10 height=0.3]'
    yield '  edge [color="#555555" fontname=Helvetica fontsize=8 arrowsize=0.6]'
    for number, members in enumerate(processes.values()):
        yield f"  subgraph cluster_{number} {{"
        yield f'    label={quoted(_process(members[0].process))} style=rounded color="#b0b0b0" fontname=Helvetica'
        for obj in members:
            label = f'{quoted(obj.name)[:-1]}\\n×{obj.calls:,}"'
            yield f'    {ids[obj]} [label={label} fillcolor="{_FILLS[obj.level]}" tooltip={quoted(obj.level)}]'
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
