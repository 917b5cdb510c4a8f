"""The sequence diagram drawn as SVG, for a page without network and libraries.

The steps are: measure texts before any browser has seen them (`text_width`, `wrap`); place the lifelines, as close
together as the texts between them allow (`columns`); and write lifelines, arrows, activations, notes and loops in one
walk down the diagram (`draw`). The heads are a drawing of their own, so that a page can keep them in sight while the
rest scrolls. Colours come from the page's style sheet, by class: a strict content security policy refuses style
attributes.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup

from tracellm.report.diagram.model import Close, Diagram, Item, Loop, Message, Note, messages
from tracellm.report.wording.safe_text import visible

__all__ = ["Drawing", "columns", "draw", "text_width", "wrap"]

MONOSPACE = 0.61
"""Advance of a character of a monospaced font, in ems: 0.60 to 0.61 in common fonts."""
WIDE = 1.0
"""Advance of a Chinese character, in ems; with some room for emoji."""


def _advance(char: str) -> float:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0.0
    if ord(char) >= 0x1F000:
        return 1.3
    if unicodedata.east_asian_width(char) in "WF":
        return WIDE
    return MONOSPACE if ord(char) < 0x2000 else 0.9


def text_width(text: str, size: float) -> float:
    """Return the width in pixels of `text` in a monospaced font of `size` pixels."""
    return (MONOSPACE * len(text) if text.isascii() else sum(map(_advance, text))) * size


_PIECES = re.compile(r"\s+|[!-~…]*?[({=,;:)\]}>]+|[!-~…]+|.", re.DOTALL)
"""Pieces between which a line may break: at spaces, after punctuation (labels are calls such as `f(a=1, b=[2, 3])`),
and around each character beyond ASCII."""


def wrap(text: str, size: float, widest: float, most_lines: int) -> tuple[list[str], bool]:
    """Return `text` in lines of at most `widest` pixels, and whether it is complete.

    Text beyond `most_lines` is cut, with an ellipsis.
    """
    lines, line = [], ""
    for piece in _PIECES.findall(text):
        while text_width(line + piece, size) > widest:
            if line.strip():
                lines.append(line.rstrip())
                line, piece = "", piece.lstrip()
                continue
            fits = max(1, sum(text_width(piece[: end + 1], size) <= widest for end in range(len(piece))))
            lines.append(piece[:fits])
            piece = piece[fits:]
        line += piece
    if line.strip() or not lines:
        lines.append(line.rstrip())
    if len(lines) <= most_lines:
        return lines, True
    last = lines[most_lines - 1]
    while last and text_width(last + "…", size) > widest:
        last = last[:-1]
    return [*lines[: most_lines - 1], last + "…"], False


TITLE, LABEL = 13.0, 11.5
"""Font sizes in pixels: of a lifeline's name, and of everything else."""
MARGIN = 16.0
"""Margin at both sides of the drawing, in pixels."""
WIDEST, MOST_LINES = 180.0, 3
"""Width in pixels at which a label is wrapped, or the end of its arrow if that is farther; and its maximum number of
lines. The tooltip has the whole text."""

LOOP_LABEL = 120.0
"""Width in pixels that a loop's label has at least before it is wrapped."""
BOUNDARY = 36.0
"""Pixels between the boxes of two processes, besides those between any two lifelines."""
NARROWEST = 260.0
"""Width of a drawing of one lifeline, for its notes."""


@dataclass(frozen=True, slots=True)
class Label:
    """A text as it will be drawn."""

    lines: tuple[str, ...]
    width: float
    whole: str | None
    """The uncut text, if `lines` are not all of it."""


def label(text: str, widest: float = WIDEST, most_lines: int = MOST_LINES) -> Label:
    """Return `text` wrapped and measured."""
    shown = visible(text)
    lines, complete = wrap(shown, LABEL, widest, most_lines)
    return Label(tuple(lines), max(text_width(line, LABEL) for line in lines), None if complete else shown)


@dataclass(frozen=True, slots=True)
class Columns:
    """Middle of each lifeline and width of its head, and width of the whole drawing, in pixels."""

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
    """Place each lifeline, from left to right, as far left as the heads and labels before it permit."""
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
            if left == right:  # a call to itself: its label may extend over the next lifeline
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
        first = min(
            (order[id] for message in messages(loop.items) for id in (message.source, message.target)), default=0
        )
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


LINE = 15.0
"""Pixels from one line of text to the next."""
BAR = 8.0
"""Width of an activation."""
NOTE_LINES = 8
"""Lines of a note, which may be longer than an arrow's label: it has what changed in a step."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A sequence diagram as two pictures of one width, to be placed under each other."""

    head: Markup
    body: Markup


def draw(diagram: Diagram, tooltip: Callable[[Message], str] = lambda arrow: "") -> Drawing:
    """Return the diagram as SVG elements for an HTML page, with each text escaped.

    `tooltip` returns the tooltip of an arrow, besides its label.
    """
    places = columns(diagram)
    return Drawing(_head(diagram, places), _Body(diagram, places, tooltip).svg)


def _svg(kind: str, width: float, height: float, content: list[Markup], *, label: str = "") -> Markup:
    open_tag = Markup('<svg class="{}" width="{:g}" height="{:g}" viewBox="0 0 {:g} {:g}"{}>').format(
        kind,
        width,
        height,
        width,
        height,
        Markup(' role="img" aria-label="{}"').format(label) if label else Markup(' aria-hidden="true"'),
    )
    return open_tag + Markup("").join(content) + Markup("</svg>")


def _rect(kind: str, x: float, y: float, width: float, height: float, radius: float = 0) -> Markup:
    return Markup('<rect class="{}" x="{:g}" y="{:g}" width="{:g}" height="{:g}" rx="{:g}"/>').format(
        kind, round(x, 1), round(y, 1), round(width, 1), round(height, 1), radius
    )


def _path(kind: str, *points: object) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(
        kind, " ".join(f"{round(p, 1):g}" if isinstance(p, float | int) else str(p) for p in points)
    )


def _text(kind: str, x: float, y: float, text: str, whole: str | None = None) -> Markup:
    title = Markup("<title>{}</title>").format(whole) if whole else ""
    return Markup('<text class="{}" x="{:g}" y="{:g}">{}{}</text>').format(kind, round(x, 1), round(y, 1), text, title)


def _group(tooltip: str, parts: list[Markup]) -> Markup:
    """Return an arrow with its label and its tooltip."""
    drawn = Markup("").join(parts)
    return (
        Markup('<g class="arrow"><title>{}</title>{}</g>').format(visible(tooltip, keep="\n"), drawn)
        if tooltip
        else drawn
    )


def _lines(kind: str, x: float, y: float, shown: Label) -> list[Markup]:
    return [_text(kind, x, y + index * LINE, line, shown.whole) for index, line in enumerate(shown.lines)]


def _head(diagram: Diagram, places: Columns) -> Markup:
    top = 22.0 if diagram.boxes else 4.0
    tall = 44 if any(participant.below for participant in diagram.participants) else 28
    height = top + tall + 6
    out = []
    for box in diagram.boxes:
        left = min(places.x[id] - places.heads[id] / 2 for id in box.participants) - 6
        right = max(places.x[id] + places.heads[id] / 2 for id in box.participants) + 6
        out += [_rect("box", left, 2, right - left, height - 4, 6), _text("boxname", left + 8, 16, visible(box.label))]
    for participant in diagram.participants:
        x, wide = places.x[participant.id], places.heads[participant.id]
        out.append(_rect("lifeline", x - wide / 2, top, wide, tall, 5))
        middle = top + tall / 2 - (8 if participant.below else 0)
        out.append(_text("name", x, middle + TITLE * 0.36, visible(participant.label)))
        if participant.below:
            out.append(_text("below", x, middle + 16 + LABEL * 0.36, visible(participant.below)))
    return _svg("heads", places.width, height, out)


class _Body:
    """Return everything below the heads."""

    def __init__(self, diagram: Diagram, places: Columns, tooltip: Callable[[Message], str]) -> None:
        self._tooltip = tooltip
        self._x = places.x
        self._width = places.width
        self._y = 12.0
        self._open: dict[str, list[float]] = {id: [] for id in places.x}  # start of each open activation
        self._under: list[Markup] = []  # frames and bands, behind the lifelines
        self._bars: list[Markup] = []
        self._over: list[Markup] = []
        self._items(diagram.items, depth=0)
        height = self._y + 10
        stems = [_path("stem", "M", x, 0, "V", height) for x in self._x.values()]
        content = self._under + stems + self._boundaries(diagram, places, height) + self._bars + self._over
        label = visible(
            " ".join(f"{participant.label} {participant.below}".rstrip() for participant in diagram.participants)
        )
        self.svg = _svg("lifelines", self._width, height, content, label=label)

    def _boundaries(self, diagram: Diagram, places: Columns, height: float) -> list[Markup]:
        """Return a line between the boxes of two processes, crossed by all that goes from one to the other."""
        pairs = pairwise(box for box in diagram.boxes if box.participants)
        edges = ((left.participants[-1], right.participants[0]) for left, right in pairs)
        return [
            _path(
                "boundary",
                "M",
                (self._x[left] + places.heads[left] / 2 + self._x[right] - places.heads[right] / 2) / 2,
                *(0, "V", height),
            )
            for left, right in edges
        ]

    def _items(self, items: tuple[Item, ...], depth: int) -> None:
        for item in items:
            match item:
                case Message():
                    tooltip, before = self._tooltip(item), len(self._over)
                    self._message(item, titled=bool(tooltip))
                    self._over[before:] = [_group(tooltip, self._over[before:])]
                case Note():
                    self._note(item)
                case Loop():
                    self._loop(item, depth)
                case Close():
                    self._close(item.participant)

    def _edge(self, id: str, side: int) -> float:
        """Return the x at which an arrow meets a lifeline: at the side of its innermost activation."""
        depth = len(self._open[id])
        if not depth:
            return self._x[id]
        return self._x[id] + (depth - 1) * 3 + side * BAR / 2

    def _start(self, id: str) -> None:
        self._open[id].append(self._y)

    def _close(self, id: str) -> None:
        began = self._open[id].pop()
        x = self._x[id] - BAR / 2 + len(self._open[id]) * 3
        self._bars.append(_rect("activation", x, began, BAR, max(self._y - began, 6), 1.5))

    def _message(self, message: Message, titled: bool) -> None:
        shown = label(message.text, max(WIDEST, abs(self._x[message.target] - self._x[message.source]) - 40))
        if titled:
            shown = replace(shown, whole=None)  # the tooltip has it whole
        if message.source == message.target:
            self._to_itself(message, shown)
            return
        side = 1 if self._x[message.target] > self._x[message.source] else -1
        start = self._edge(message.source, side)
        text_y = self._y + LINE - 3
        self._y += len(shown.lines) * LINE + 5
        if message.opens:
            self._start(message.target)
        end = self._edge(message.target, -side)
        self._over += _lines(f"label {message.kind} middle", (start + end) / 2, text_y, shown)
        self._over.append(_path(message.kind, "M", start, self._y, "H", end - side * 1))
        self._over.append(self._tip(message.kind, end, self._y, side))
        if message.closes:
            self._close(message.source)
        self._y += 9

    def _tip(self, kind: str, x: float, y: float, side: int) -> Markup:
        if kind == "call":
            return _path("tip", "M", x, y, "L", x - side * 8, y - 4, "V", y + 4, "Z")
        if kind in ("return", "message"):
            return _path(f"{kind} solid", "M", x - side * 7, y - 4, "L", x, y, "L", x - side * 7, y + 4)
        x -= side * 8
        return _path("error solid", "M", x - 4, y - 4, "L", x + 4, y + 4, "M", x - 4, y + 4, "L", x + 4, y - 4)

    def _to_itself(self, message: Message, shown: Label) -> None:
        start = self._edge(message.source, 1)
        tall = max(len(shown.lines) * LINE, 16.0)
        top = self._y + 6
        if message.closes:
            self._close(message.source)
        if message.opens:
            self._y = top + tall
            self._start(message.target)
        end = self._edge(message.target, 1)
        out = max(start, end) + 18
        self._over.append(_path(message.kind, "M", start, top, "H", out, "V", top + tall, "H", end + 1))
        self._over.append(self._tip(message.kind, end, top + tall, -1))
        middle = top + tall / 2 - (len(shown.lines) - 1) * LINE / 2 + LABEL * 0.35
        self._over += _lines(f"label {message.kind}", out + 6, middle, shown)
        self._y = top + tall + 9

    def _note(self, note: Note) -> None:
        if note.phase:
            shown = label(note.text, self._width - 4 * MARGIN, 2)
            tall = len(shown.lines) * LINE + 12
            self._y += 8
            self._under.append(_rect("phase", MARGIN / 2, self._y, self._width - MARGIN, tall, 4))
            self._over += _lines("label phase", MARGIN + 4, self._y + LINE + 1, shown)
            self._y += tall + 10
            return
        left, right = sorted((self._x[note.first], self._x[note.last]))
        shown = label(note.text, max(210.0, right - left + 40), NOTE_LINES)
        middle = (left + right) / 2
        wide = max(right - left + 60, shown.width + 18)
        left = max(MARGIN / 2, middle - wide / 2)
        tall = len(shown.lines) * LINE + 8
        self._over.append(_rect("note", left, self._y + 3, wide, tall, 3))
        self._over += _lines("label noted middle", left + wide / 2, self._y + LINE + 3, shown)
        self._y += tall + 12

    def _loop(self, loop: Loop, depth: int) -> None:
        used = {id for message in messages(loop.items) for id in (message.source, message.target)}
        inset = depth * 6
        if used:
            left = max(min(self._x[id] for id in used) - 24, 4) + inset
            right = max(self._reach(loop.items), max(self._x[id] for id in used) + 40) - inset
        else:
            left, right = 4.0 + inset, self._width
        top = self._y + 4
        tag = text_width("loop", LABEL) + 14
        shown = label(loop.text, max(right - left - tag - 16, LOOP_LABEL), 2)
        right = min(max(right, left + tag + 16 + shown.width), self._width - 4)
        self._over.append(_path("tag", "M", left, top, "h", tag, "v", 12, "l", -6, 6, "H", left, "Z"))
        self._over.append(_text("label tag", left + 6, top + 13, "loop"))
        self._over += _lines("label loop", left + tag + 8, top + 13, shown)
        self._y = top + len(shown.lines) * LINE + 12
        self._items(loop.items, depth + 1)
        self._under.append(_rect("frame", left, top, right - left, self._y - top + 4))
        self._y += 14

    def _reach(self, items: tuple[Item, ...]) -> float:
        """Return the right edge of the labels of self-calls, in pixels; 0 without any."""
        loops = [m for m in messages(items) if m.source == m.target]
        return max((self._x[m.source] + label(m.text).width + 40 for m in loops), default=0.0)
