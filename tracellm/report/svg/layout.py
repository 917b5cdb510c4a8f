"""Where the lifelines stand: as close together as the texts between them allow."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tracellm.report.diagram import Diagram, Item, Loop, Message, Note, messages
from tracellm.report.svg.measure import text_width, wrap
from tracellm.report.visible import visible

__all__ = ["LABEL", "LOOP_LABEL", "MARGIN", "TITLE", "WIDEST", "Columns", "Label", "columns", "label"]

TITLE, LABEL = 13.0, 11.5
"""Font sizes in pixels: of a lifeline's name, and of everything else."""
MARGIN = 16.0
"""Pixels left free at both sides of the drawing."""
WIDEST, MOST_LINES = 180.0, 3
"""A label is wrapped at this many pixels, or where its arrow ends if that is farther, and cut after this many lines;
its whole text is shown on hovering."""

LOOP_LABEL = 120.0
"""A loop's label has at least this many pixels before it is wrapped."""
BOUNDARY = 36.0
"""Pixels between the boxes of two processes, besides what is between any two lifelines."""
NARROWEST = 260.0
"""A drawing of one lifeline is this wide all the same, for its notes."""


@dataclass(frozen=True, slots=True)
class Label:
    """A text as it will be drawn."""

    lines: tuple[str, ...]
    width: float
    whole: str | None
    """The uncut text, when `lines` do not hold all of it."""


def label(text: str, widest: float = WIDEST, most_lines: int = MOST_LINES) -> Label:
    """`text` wrapped and measured."""
    shown = visible(text)
    lines, complete = wrap(shown, LABEL, widest, most_lines)
    return Label(tuple(lines), max(text_width(line, LABEL) for line in lines), None if complete else shown)


@dataclass(frozen=True, slots=True)
class Columns:
    """Each lifeline's middle and the width of its head, and of the whole drawing, in pixels."""

    x: dict[str, float]
    heads: dict[str, float]
    width: float


def _arrows(items: Iterable[Item]) -> Iterator[Message | Note]:
    for item in items:
        if isinstance(item, Loop):
            yield from _arrows(item.items)
        elif isinstance(item, Message) or (isinstance(item, Note) and not item.phase):
            yield item


def columns(diagram: Diagram) -> Columns:
    """A place for each lifeline, from left to right, each as far left as the heads and labels before it permit."""
    order = {participant.id: index for index, participant in enumerate(diagram.participants)}
    heads = {
        p.id: max(text_width(visible(p.label), TITLE), text_width(visible(p.below), LABEL)) + 24
        for p in diagram.participants
    }
    needs: dict[tuple[int, int], float] = {}  # (left, right) -> pixels between their middles
    for item in _arrows(diagram.items):
        if isinstance(item, Note):
            left, right = sorted((order[item.first], order[item.last]))
            if left == right:
                continue
            wanted = label(item.text).width - 40
        else:
            left, right = sorted((order[item.source], order[item.target]))
            wanted = label(item.text).width + 34
            if left == right:  # a call to itself: its label may run on over the next lifeline
                right, wanted = left + 1, min(wanted, 130.0)
        if right < len(order):
            needs[left, right] = max(needs.get((left, right), 0.0), wanted)
    first_of_box = {box.participants[0] for box in diagram.boxes if box.participants}
    middles: list[float] = []
    for index, participant in enumerate(diagram.participants):
        head = heads[participant.id]
        if index == 0:
            middles.append(MARGIN + head / 2 + 8)
            continue
        before = heads[diagram.participants[index - 1].id]
        at = middles[-1] + (before + head) / 2 + 14 + (BOUNDARY if participant.id in first_of_box else 0)
        for (left, right), wanted in needs.items():
            if right == index:
                at = max(at, middles[left] + wanted)
        middles.append(at)
    right_edge = middles[-1] + heads[diagram.participants[-1].id] / 2 if middles else 0.0
    for item in _arrows(diagram.items):
        if isinstance(item, Note):
            last = middles[max(order[item.first], order[item.last])]
            right_edge = max(right_edge, last + label(item.text).width / 2 + 12)
        elif item.source == item.target:
            right_edge = max(right_edge, middles[order[item.source]] + label(item.text).width + 34)
    for loop, depth in _loops(diagram.items):
        first = min((order[id] for one in messages(loop.items) for id in (one.source, one.target)), default=0)
        right_edge = max(right_edge, middles[first] + LOOP_LABEL + 40 + 6 * depth)
    return Columns(
        x={p.id: round(middles[order[p.id]], 1) for p in diagram.participants},
        heads=heads,
        width=round(max(right_edge + MARGIN + 8, NARROWEST), 1),
    )


def _loops(items: Iterable[Item], depth: int = 0) -> Iterator[tuple[Loop, int]]:
    for item in items:
        if isinstance(item, Loop):
            yield item, depth
            yield from _loops(item.items, depth + 1)
