"""Output of the console: boxes on a terminal, plain indented lines in a pipe or a file, nothing when quiet."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.box import ROUNDED
from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.console import RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

__all__ = ["Row", "Terminal", "rows"]

WIDEST = 104
"""Widest box, however wide the terminal."""


@dataclass(frozen=True, slots=True)
class Row:
    """A heading, its lines, and the time they took."""

    heading: str
    lines: list[str]
    time: str = ""


def rows(content: Sequence[Row]) -> RenderableType:
    """Return headings in one column, lines in another. Markup in the texts is not interpreted."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    timed = any(row.time for row in content)
    if timed:
        table.add_column(no_wrap=True, justify="right", style="dim")
    table.add_column(overflow="fold")
    for row in content:
        cells = [row.heading, *([row.time] if timed else []), "\n".join(row.lines)]
        table.add_row(*map(Text, cells))
    return table


class Terminal:
    """The stream that the console writes to."""

    def __init__(self, stream: TextIO | None, *, quiet: bool) -> None:
        self.stream = stream or sys.stderr
        self._closed = quiet
        self._seen_bars = 0.0
        self._rich = RichConsole(file=self.stream, markup=False, emoji=False, highlight=False, soft_wrap=False)

    def box(self, title: str, content: RenderableType) -> None:
        """Print a titled box; without a terminal, the title on a line of its own and the content indented."""
        if self._rich.is_terminal:
            width = min(self._rich.width, WIDEST)
            heading = Text(title, style="bold")
            self._print(
                Panel(content, title=heading, title_align="left", box=ROUNDED, border_style="cyan", width=width)
            )
        else:
            self._print(Text(f"== {title} =="), Padding(content, (0, 0, 0, 2)))

    def line(self, content: str, *, style: str = "", indent: int = 0) -> None:
        """Print one line, wrapped at the terminal's width."""
        if not style and content.isprintable() and indent + cell_len(content) <= self._rich.width:
            self._write(f"{' ' * indent}{content}".rstrip() + "\n")  # rich takes 0.3 ms for it
            return
        self._print(Padding(Text(content, style=style), (0, 0, 0, indent)))

    def brief(self, content: str) -> None:
        """Print one line, cut at the terminal's width; in a pipe or a file it is whole."""
        if self._rich.is_terminal:
            self._print(Text(content), no_wrap=True, overflow="ellipsis")
        else:
            self.verbatim(content)

    def verbatim(self, content: str) -> None:
        """Print one line that is never broken, such as a path to be copied."""
        self._print(Text(content), soft_wrap=True)

    def rendered(self, parts: Sequence[RenderableType], width: int) -> list[str]:
        """Return content as lines with the terminal's styles, cut at the width."""
        with self._rich.capture() as written:
            for part in parts:
                self._rich.print(part, width=width, no_wrap=True, overflow="ellipsis")
        return written.get().splitlines()

    def raw(self, output: str) -> None:
        """Write escape sequences at once, so that other threads do not write in between."""
        with self._unless_closed() as is_open:
            if is_open:
                self.stream.write(output)
                self.stream.flush()

    def _print(self, *content: RenderableType, **options: Any) -> None:
        with self._unless_closed() as is_open:
            if not is_open:
                return
            with self._rich.capture() as written:
                for part in content:
                    self._rich.print(part, **options)
            output = written.get()
            if not self._rich.is_terminal:
                output = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
            self._write(output)

    def _write(self, output: str) -> None:
        """Write lines beside progress bars."""
        with self._unless_closed() as is_open:
            if is_open:
                with self._beside_progress_bars():
                    self.stream.write(output)
                    self.stream.flush()

    @contextlib.contextmanager
    def _unless_closed(self) -> Iterator[bool]:
        """Context with whether the stream is open; if it turns out to be closed, the script and the recording go on."""
        try:
            yield not self._closed
        except (OSError, ValueError):
            self._closed = True

    @contextlib.contextmanager
    def _beside_progress_bars(self) -> Iterator[None]:
        """Hide tqdm's progress bars, if the script shows any, while something is written to the terminal.

        In a pipe or a file bars cannot be hidden: the text is written below them.
        """
        tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
        if tqdm is None:
            yield
            return
        with tqdm.get_lock():
            bars = [bar for bar in tqdm._instances if self._is_drawn_here(bar)]
            if self._rich.is_terminal:
                for bar in bars:
                    bar.clear(nolock=True)
            elif (drawn := max((bar.last_print_t for bar in bars), default=0.0)) > self._seen_bars:
                self._seen_bars = drawn
                self.stream.write("\n")
            yield
            if self._rich.is_terminal:
                for bar in bars:
                    bar.refresh(nolock=True)

    def _is_drawn_here(self, bar: Any) -> bool:
        """Return whether tqdm has drawn a bar on this stream.

        A bar with a delay that is not over must not be drawn here: it would stay for good.
        """
        started = getattr(bar, "start_t", None)  # it may be under construction
        if started is None or bar.last_print_t < started + bar.delay:
            return False
        standard = (sys.stdout, sys.stderr)  # on a terminal these are one
        both = self._rich.is_terminal and self.stream in standard and bar.fp in standard
        return bool(both or bar.fp == self.stream)
