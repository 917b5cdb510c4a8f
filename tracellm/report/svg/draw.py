"""The drawing: one walk down the diagram that writes lifelines, arrows, activations, notes and loops.

The heads are a drawing of their own, so that a page can keep them in sight while the rest scrolls. Colours come from
the page's style sheet by class; nothing here has a style attribute, which a strict content security policy would
refuse.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup

from tracellm.report.diagram import Close, Diagram, Item, Loop, Message, Note, messages
from tracellm.report.svg.layout import LABEL, LOOP_LABEL, MARGIN, TITLE, WIDEST, Columns, Label, columns, label
from tracellm.report.svg.measure import text_width
from tracellm.report.visible import visible

__all__ = ["Drawing", "draw"]

LINE = 15.0
"""Pixels from one line of text to the next."""
BAR = 8.0
"""Width of an activation."""
NOTE_LINES = 8
"""A note may be longer than an arrow's label: it is what changed in a step."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A sequence diagram as two pictures of one width, to be placed under each other."""

    head: Markup
    body: Markup


def draw(diagram: Diagram, told: Callable[[Message], str] = lambda arrow: "") -> Drawing:
    """The diagram as SVG elements for an HTML page; each text in it is escaped.

    `told` gives what is to be said of an arrow besides its label, to whom points at it.
    """
    places = columns(diagram)
    return Drawing(_head(diagram, places), _Body(diagram, places, told).svg)


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


def _group(told: str, parts: list[Markup]) -> Markup:
    """An arrow with its label, and what is said of it."""
    drawn = Markup("").join(parts)
    return Markup('<g class="arrow"><title>{}</title>{}</g>').format(visible(told, keep="\n"), drawn) if told else drawn


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
    """Everything below the heads."""

    def __init__(self, diagram: Diagram, places: Columns, told: Callable[[Message], str]) -> None:
        self._told = told
        self._x = places.x
        self._width = places.width
        self._y = 12.0
        self._open: dict[str, list[float]] = {id: [] for id in places.x}  # where each open activation began
        self._under: list[Markup] = []  # frames and bands, behind the lifelines
        self._bars: list[Markup] = []
        self._over: list[Markup] = []
        self._items(diagram.items, depth=0)
        height = self._y + 10
        stems = [_path("stem", "M", x, 0, "V", height) for x in self._x.values()]
        content = self._under + stems + self._boundaries(diagram, places, height) + self._bars + self._over
        said = visible(" ".join(f"{one.label} {one.below}".rstrip() for one in diagram.participants))
        self.svg = _svg("lifelines", self._width, height, content, label=said)

    def _boundaries(self, diagram: Diagram, places: Columns, height: float) -> list[Markup]:
        """A line between the boxes of two processes, which what goes from one to the other has to cross."""
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
                    told, before = self._told(item), len(self._over)
                    self._message(item, titled=bool(told))
                    self._over[before:] = [_group(told, self._over[before:])]
                case Note():
                    self._note(item)
                case Loop():
                    self._loop(item, depth)
                case Close():
                    self._close(item.participant)

    def _edge(self, id: str, side: int) -> float:
        """The x at which an arrow meets a lifeline: at the side of its innermost activation."""
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
            shown = replace(shown, whole=None)  # it is in what is said of the arrow
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
        """How far right the labels of calls to itself go."""
        loops = [m for m in messages(items) if m.source == m.target]
        return max((self._x[m.source] + label(m.text).width + 40 for m in loops), default=0.0)
