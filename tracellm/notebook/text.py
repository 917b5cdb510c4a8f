"""Texts that show themselves in a notebook: plain text as it is, Mermaid as a picture.

A front end that draws Mermaid itself (`text/vnd.mermaid`: JupyterLab 4.1, Notebook 7) may do so; all others show the
picture, which needs no script. A cell has at most MOST_CHARACTERS.
"""

from html import escape
from typing import Any

from tracellm.report.html.cell import MOST_CHARACTERS
from tracellm.report.texts import Language, text

__all__ = ["Mermaid", "Text"]


class Text(str):
    """A text whose display is the text itself, lines and columns kept, without quotes."""

    lang: Language

    def __new__(cls, content: str, lang: Language = "en") -> "Text":
        """Return the text, with the language of what is said about it."""
        new = super().__new__(cls, content)
        new.lang = lang
        return new

    def _shown(self) -> str:
        """Return the text, or the first of its lines and the number of the others."""
        most = MOST_CHARACTERS // 3  # the display has it twice, once escaped
        if len(self) <= most:
            return str(self)
        first = self[: self.rfind("\n", 0, most) + 1] or self[:most]
        left = self.count("\n", len(first)) + (not self.endswith("\n"))
        return f"{first}\n{text(self.lang, 'cell.more_lines', n=left)}\n"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: `text/plain` and `text/html`."""
        shown = self._shown()
        return {"text/plain": shown, "text/html": f'<pre style="line-height:1.25">{escape(shown)}</pre>'}

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the text itself: IPython prefers its own display of strings to `text/plain` above."""
        printer.text(self._shown())


class Mermaid(Text):
    """A Mermaid diagram; `print` shows its text.

    Attributes:
        svg: the diagram as a static SVG.
    """

    svg: str

    def __new__(cls, content: str, svg: str, lang: Language = "en") -> "Mermaid":
        """Return the diagram with its picture."""
        new = super().__new__(cls, content, lang)
        assert isinstance(new, Mermaid)
        new.svg = svg
        return new

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: `text/plain`, `text/vnd.mermaid`, and the picture as `text/html`."""
        source = escape(self)
        if 3 * len(source) + len(self.svg) > MOST_CHARACTERS:
            large = text(self.lang, "cell.mermaid.large")
            return {"text/plain": self._shown(), "text/html": f"<p>{escape(large)}</p>"}
        page = (
            f'<div style="overflow-x:auto">{self.svg}</div><details style="margin:8px 0"><summary '
            f'style="cursor:pointer">{escape(text(self.lang, "cell.mermaid"))}</summary><pre>{source}</pre></details>'
        )
        return {"text/plain": str(self), "text/vnd.mermaid": str(self), "text/html": page}
