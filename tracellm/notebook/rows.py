"""Lists that show themselves as a table, in text and HTML: processes, kernels, the stages and tokens of a request."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, TypeVar

from rich.cells import cell_len

from tracellm.report.texts import Language, text

__all__ = ["MOST_ROWS", "Rows", "html_table", "text_table"]

T = TypeVar("T")

MOST_ROWS = 200
_LONG = 24


class Rows(list[T]):
    """A list with a row for each element.

    Args:
        elements: the elements.
        lang: language of the heads.
        heads: names of the columns; those whose name ends in `<` are aligned to the left.
        cells: function that returns an element's cells.
        nothing: sentence in place of a table without rows.
    """

    def __init__(
        self,
        elements: Iterable[T],
        lang: Language,
        heads: Sequence[str],
        cells: Callable[[T], Sequence[str]],
        nothing: str = "",
    ) -> None:
        super().__init__(elements)
        self._lang: Language = lang
        self._left = [head.endswith("<") for head in heads]
        self._heads = [head.removesuffix("<") for head in heads]
        self._cells = cells
        self._nothing = nothing

    def _rows(self) -> list[Sequence[str]]:
        return [self._heads, *map(self._cells, self[:MOST_ROWS])]

    def _more(self) -> list[str]:
        left = len(self) - MOST_ROWS
        return [text(self._lang, "page.more", n=left)] if left > 0 else []

    def __str__(self) -> str:
        """Return the table as lines of text."""
        if not self and self._nothing:
            return self._nothing
        return "\n".join([*text_table(self._rows(), self._left), *self._more()])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: the table, as text and as HTML."""
        if not self and self._nothing:
            return {"text/plain": self._nothing, "text/html": f"<p>{escape(self._nothing)}</p>"}
        more = "".join(f"<p>{escape(line)}</p>" for line in self._more())
        return {"text/plain": str(self), "text/html": html_table(self._rows(), self._left) + more}

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the table: IPython prefers its own display of lists to `text/plain` above."""
        printer.text(str(self))


def text_table(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> list[str]:
    """Return the lines of a table, whose first row has the heads; `left` is true for columns aligned to the left."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(_padded, row, widths, left)).rstrip() for row in rows]


def html_table(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> str:
    """Return the table as HTML with styles of its own, which scrolls where it is too wide."""

    longest = (max(map(cell_len, column)) for column in zip(*rows, strict=True))
    # A narrow page would break a long text after each word.
    columns = [
        (is_left, ";min-width:12em" if most > _LONG else "") for is_left, most in zip(left, longest, strict=True)
    ]

    def line(tag: str, row: Sequence[str]) -> str:
        nowrap = ";white-space:nowrap" if tag == "td" else ""
        aligns = (f"text-align:left{wide}" if is_left else f"text-align:right{nowrap}" for is_left, wide in columns)
        cells = "".join(
            f'<{tag} style="{align};padding:2px 12px 2px 0;vertical-align:top">{escape(value)}</{tag}>'
            for value, align in zip(row, aligns, strict=True)
        )
        return f'<tr style="background:none">{cells}</tr>'

    heads, *others = rows
    body = "".join(line("td", row) for row in others)
    return (
        '<div style="overflow-x:auto"><table style="border:none;margin:4px 0;color:inherit;font:inherit">'
        f"{line('th', heads)}{body}</table></div>"
    )


def _padded(value: str, width: int, to_the_left: bool) -> str:
    blanks = " " * (width - cell_len(value))
    return value + blanks if to_the_left else blanks + value
