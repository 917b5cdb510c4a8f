"""Texts that show themselves in a notebook: plain text as it is, Mermaid as a diagram where one is drawn.

JupyterLab 4.1 and Notebook 7 draw `text/vnd.mermaid`; other front ends show the text.
"""

from html import escape
from typing import Any

__all__ = ["Mermaid", "Text"]


class Text(str):
    """A text whose display is the text itself, lines and columns kept, without quotes."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: `text/plain` and `text/html`."""
        return {"text/plain": str(self), "text/html": f'<pre style="line-height:1.25">{escape(self)}</pre>'}

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the text itself: IPython prefers its own display of strings to `text/plain` above."""
        printer.text(str(self))


class Mermaid(str):
    """A Mermaid diagram; `print` shows its text."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return the display for IPython: `text/plain` and `text/vnd.mermaid`."""
        return {"text/plain": str(self), "text/vnd.mermaid": str(self)}

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the text itself, as `Text` does."""
        printer.text(str(self))
