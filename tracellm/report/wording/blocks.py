"""Blocks of a text report: headings, paragraphs and tables, as plain text for a terminal or as Markdown.

The callers escape invisible characters in texts of a user's script; Markdown's syntax is escaped here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

__all__ = ["Block", "Column", "Heading", "Paragraph", "Table", "markdown", "plain", "wrapped"]

_GAP = 2  # columns between two columns of a table
_NARROW, _NARROWEST = 16, 8  # columns of a text column: preferred least, and least


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a part."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Some sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: `number` aligns it to the right, `code` marks names from the source in Markdown."""

    head: str
    number: bool = False
    code: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; a cell is a list of lines. Text is wrapped on a narrow page, numbers never are."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Sequence[str], ...], ...]
    title: str = ""


Block = Heading | Paragraph | Table


def plain(blocks: Sequence[Block], width: int) -> str:
    """Return the blocks as text, lines of at most `width` columns, ending in a newline."""
    parts = []
    for block in blocks:
        match block:
            case Heading(text):
                parts.append(f"== {text} ==")
            case Paragraph(text):
                parts.append("\n".join(wrapped(text, width)))
            case Table():
                parts.append("\n".join([*([block.title] if block.title else []), *_lines(block, width)]))
    text = "\n\n".join(parts) + "\n"
    return text.replace(" ==\n\n", " ==\n")


def markdown(blocks: Sequence[Block], level: int = 2) -> str:
    """Return the blocks as Markdown, headings at `level`."""
    parts = []
    for block in blocks:
        match block:
            case Heading(text):
                parts.append(f"{'#' * level} {_escaped(text)}")
            case Paragraph(text):
                parts.append(_escaped(text))
            case Table():
                parts += [f"**{_escaped(block.title)}**"] if block.title else []
                parts.append("\n".join(_markdown_table(block)))
    return "\n\n".join(parts) + "\n"


# -- plain text -------------------------------------------------------------------------------------------------------


def _lines(table: Table, width: int) -> Iterator[str]:
    heads = tuple([column.head] for column in table.columns)
    widths = _widths(table, width)
    for row in (heads, *table.rows) if any(column.head for column in table.columns) else table.rows:
        cells = [
            list(cell) if column.number else [part for line in cell for part in wrapped(line, most)]
            for cell, column, most in zip(row, table.columns, widths, strict=True)
        ]
        for index in range(max(1, *map(len, cells))):
            parts = []
            for cell, column, most in zip(cells, table.columns, widths, strict=True):
                text = cell[index] if index < len(cell) else ""
                parts.append(" " * (most - cell_len(text)) + text if column.number else set_cell_size(text, most))
            yield (" " * _GAP + (" " * _GAP).join(parts)).rstrip()


def _widths(table: Table, width: int) -> list[int]:
    """Return the widths of the columns: those of their cells, or less on a narrow page. Names shrink last."""
    widths = []
    for index, column in enumerate(table.columns):
        cells = [line for row in table.rows for line in row[index]]
        widths.append(max(map(cell_len, (column.head, *cells))))
    available = width - _GAP * len(widths)
    for code, narrowest in ((False, _NARROW), (True, _NARROW), (False, _NARROWEST)):
        texts = [
            index
            for index, column in enumerate(table.columns)
            if not column.number and column.code is code and widths[index] > narrowest
        ]
        _narrow(widths, texts, available, narrowest)
    return widths


def _narrow(widths: list[int], texts: list[int], available: int, narrowest: int) -> None:
    """Shrink the widest of the columns `texts` until all fit into `available`, or the widest has the minimum width."""
    while texts and (excess := sum(widths) - available) > 0:
        most = max(widths[index] for index in texts)
        if most <= narrowest:
            return
        widest = [index for index in texts if widths[index] == most]
        floor = max((widths[index] for index in texts if widths[index] < most), default=0)
        for index in widest:
            widths[index] = max(most - -(-excess // len(widest)), floor, narrowest)


_PIECE = re.compile(r"\s+|[（“《]*(?:[^\s\u2e80-\uffef]+|.)[，。：；、）”》]*")
"""Pieces between which a line may break: words and Chinese characters, each with its punctuation."""


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` columns; a word longer than a line is broken."""
    lines: list[str] = []
    line = ""
    for piece in _PIECE.findall(text):
        if cell_len(line + piece) <= width or (not line and not piece.strip()):
            line += piece if line or not lines else piece.lstrip()
            continue
        if line.strip():
            lines.append(line.rstrip())
        line = piece.lstrip()
        while cell_len(line) > width:
            taken = _taken(line, width)
            lines.append(line[:taken])
            line = line[taken:]
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def _taken(text: str, width: int) -> int:
    """Return the number of characters of the text that fit into `width` columns; at least one."""
    used = 0
    for index, char in enumerate(text):
        used += cell_len(char)
        if used > width:
            return max(index, 1)
    return len(text)


# -- Markdown ---------------------------------------------------------------------------------------------------------


def _markdown_table(table: Table) -> Iterator[str]:
    yield _markdown_row([_escaped(column.head) for column in table.columns])
    yield "|" + "|".join("---:" if column.number else "---" for column in table.columns) + "|"
    for row in table.rows:
        yield _markdown_row(
            [
                "<br>".join(map(_code if column.code else _escaped, cell))
                for cell, column in zip(row, table.columns, strict=True)
            ]
        )


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


_EDGE = re.compile(r"(?<![^\W_])_+|_+(?![^\W_])")
"""Underscores at a word's edge, which would make it italic; those inside of words do not."""


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*{}\[\]#|~$])", r"\\\1", text)
    return _EDGE.sub(lambda found: "\\_" * len(found[0]), text)


def _code(text: str) -> str:
    """Return a name as inline code; GitHub takes a `|` in a table for the end of a cell unless it is escaped."""
    if not text:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")
