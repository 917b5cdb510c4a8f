"""A `Diagram` as a static SVG, for places without scripts, such as an exported notebook.

Each item has a row, so an arrow's text may be longer than the arrow: it runs on over the lifelines to its right. Lines
and texts have the colour of the page around the picture.
"""

from collections.abc import Iterable
from html import escape
from textwrap import wrap

from rich.cells import cell_len

from tracellm.report.diagram.mermaid import NOTE_WIDTH
from tracellm.report.diagram.model import Close, Diagram, Item, Loop, Message, Note
from tracellm.report.wording.safe_text import visible

__all__ = ["to_svg"]

_COLUMN = 6.4
"""Width of a column of text; an estimate, as the font is the reader's."""
_ROW = 24
_MARGIN = 12
_GAP = 18
_NARROWEST = 84
_COLOURS = {"call": "currentColor", "return": "currentColor", "error": "#d55e00", "message": "#3a86c8"}


def to_svg(diagram: Diagram) -> str:
    """Return the diagram as an SVG element."""
    return _Drawing(diagram).svg()


def _width(content: str) -> float:
    return cell_len(content) * _COLUMN


class _Drawing:
    """The shapes of a diagram, drawn from top to bottom."""

    def __init__(self, diagram: Diagram) -> None:
        self._diagram = diagram
        self._x: dict[str, float] = {}
        self._half: dict[str, float] = {}
        right = float(_MARGIN)
        for participant in diagram.participants:
            names = visible(participant.label), visible(participant.below)
            width = max(_NARROWEST, *(1.15 * _width(name) + _GAP for name in names))  # the names are bold
            self._x[participant.id], self._half[participant.id] = right + width / 2, width / 2
            right += width + _GAP
        self._right = right - _GAP + _MARGIN
        self._lanes = self._right
        self._open: dict[str, list[float]] = {id: [] for id in self._x}
        self._under: list[str] = []
        """Shapes below the others: frames, lifelines and activations."""
        self._shapes: list[str] = []
        self._y = float(_MARGIN)

    def svg(self) -> str:
        """Draw everything."""
        top = self._heads()
        self._items(self._diagram.items, 0)
        bottom = self._y + _ROW / 2
        lifelines = [
            f'<line x1="{x:.0f}" y1="{top:.0f}" x2="{x:.0f}" y2="{bottom:.0f}" stroke="currentColor" '
            'stroke-opacity=".25"/>'
            for x in self._x.values()
        ]
        width, height = f"{self._right + _MARGIN:.0f}", f"{bottom + _MARGIN:.0f}"
        size = (
            f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" style="max-width:none;height:{height}px"'
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="system-ui, sans-serif" '
            f'font-size="11" fill="currentColor">{"".join([*lifelines, *self._under, *self._shapes])}</svg>'
        )

    def _text(self, x: float, y: float, content: str, more: str = "") -> None:
        if "middle" not in more:
            self._right = max(self._right, x + _width(content))
        self._shapes.append(f'<text x="{x:.0f}" y="{y:.0f}"{more}>{escape(content)}</text>')

    def _frame(self, x: float, y: float, width: float, height: float, more: str) -> None:
        self._under.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="4" fill="none" '
            f'stroke="currentColor" {more}/>'
        )

    def _heads(self) -> float:
        """Draw the names of processes and lifelines; return the height where the lifelines begin."""
        if self._diagram.boxes:
            for box in self._diagram.boxes:
                first, last = box.participants[0], box.participants[-1]
                x = self._x[first] - self._half[first] - 5
                self._frame(x, self._y, self._x[last] + self._half[last] + 5 - x, _ROW * 2.9, 'stroke-opacity=".3"')
                self._text(x + 6, self._y + 14, visible(box.label), ' opacity=".75"')
            self._y += _ROW * 0.9
        for participant in self._diagram.participants:
            x, half = self._x[participant.id], self._half[participant.id]
            self._frame(x - half, self._y, half * 2, _ROW * 1.6, 'stroke-opacity=".6"')
            lines = [visible(name) for name in (participant.label, participant.below) if name]
            for number, line in enumerate(lines):
                height = self._y + (24 if len(lines) == 1 else 17 + 14 * number)
                weight = "" if number else ' font-weight="600"'
                self._text(x, height, line, f' text-anchor="middle"{weight}')
        self._y += _ROW * 1.6
        top = self._y
        self._y += _ROW / 2
        return top

    def _items(self, items: Iterable[Item], depth: int) -> None:
        for item in items:
            match item:
                case Message():
                    self._message(item)
                case Close():
                    self._close(item.participant, self._y)
                case Note():
                    self._note(item)
                case Loop():
                    self._loop(item, depth)

    def _message(self, message: Message) -> None:
        start, end = self._x[message.source], self._x[message.target]
        colour = _COLOURS[message.kind]
        dashed = ' stroke-dasharray="4 3"' if message.kind in ("return", "error") else ""
        self._y += _ROW
        y = self._y
        if message.source == message.target:
            path = f"M{start:.0f} {y - 8:.0f}h26v10h-22"
            self._text(start + 32, y, visible(message.text))
            end, way = start + 4, -1
            y += 2
        else:
            way = 1 if end > start else -1
            path = f"M{start:.0f} {y:.0f}H{end:.0f}"
            self._text(min(start, end) + 8, y - 5, visible(message.text))
        x = end - way
        head = {
            "error": f"M{x - way * 9:.0f} {y - 4:.0f}l{way * 8} 8m0 -8l{-way * 8} 8",
            "message": f"M{x - way * 7:.0f} {y - 4:.0f}l{way * 7} 4l{-way * 7} 4",
        }.get(message.kind, f"M{x:.0f} {y:.0f}l{-way * 7} -4v8z")
        filled = "none" if message.kind in ("error", "message") else colour
        self._shapes.append(f'<path d="{path}" fill="none" stroke="{colour}"{dashed}/>')
        self._shapes.append(f'<path d="{head}" fill="{filled}" stroke="{colour}"/>')
        if message.closes:
            self._close(message.source, y)
        if message.opens:
            self._open[message.target].append(y)

    def _close(self, participant: str, y: float) -> None:
        began = self._open[participant].pop()
        x = self._x[participant] - 3 + 3 * len(self._open[participant])
        self._under.append(
            f'<rect x="{x:.0f}" y="{began:.0f}" width="6" height="{max(y - began, 2):.0f}" fill="currentColor" '
            'fill-opacity=".2"/>'
        )

    def _note(self, note: Note) -> None:
        if note.phase:
            self._y += _ROW * 1.2
            self._shapes.append(
                f'<path d="M{_MARGIN} {self._y + 5:.0f}H{self._lanes - _MARGIN:.0f}" stroke="currentColor" '
                'stroke-opacity=".5"/>'
            )
            self._text(_MARGIN, self._y, visible(note.text), ' font-weight="600"')
            return
        lines = wrap(visible(note.text), NOTE_WIDTH) or [""]
        self._y += 10
        x = self._x[note.first] - 10
        width = max(self._x[note.last] + 10 - x, *(_width(line) + 16 for line in lines))
        height = 15 * len(lines) + 6
        self._shapes.append(
            f'<rect x="{x:.0f}" y="{self._y:.0f}" width="{width:.0f}" height="{height}" rx="3" fill="currentColor" '
            'fill-opacity=".1"/>'
        )
        for number, line in enumerate(lines):
            self._text(x + 8, self._y + 14 + 15 * number, line)
        self._y += height

    def _loop(self, loop: Loop, depth: int) -> None:
        self._y += 12
        top, x = self._y, _MARGIN / 2 + 5 * depth
        self._text(x + 6, top + 14, f"↻ {visible(loop.text)}", ' font-weight="600"')
        self._y += 14
        self._items(loop.items, depth + 1)
        self._y += 12
        self._frame(x, top, self._lanes - 2 * x, self._y - top, 'stroke-opacity=".5" stroke-dasharray="2 3"')
