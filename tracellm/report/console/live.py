"""The live view of `tracellm run --explain --live`: the engine's state at the foot of the terminal.

The last lines of the terminal are outside its scrolling region, as apt's progress bar is: the script, its progress bars
and its child processes print above them as usual, and nothing of theirs is redirected. The view is drawn by the thread
that feeds the console, at most twice a second.
"""

import os
import time
from collections import deque
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.rule import Rule
from rich.text import Text

from tracellm.report.console.listener import Console
from tracellm.report.console.rate import TokenRate
from tracellm.report.console.terminal import Terminal
from tracellm.report.texts import Language, text
from tracellm.report.wording.changes import held_reason
from tracellm.report.wording.quantities import duration
from tracellm.report.wording.titles import step_kind
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.steps import STEP_SPAN, Step

__all__ = ["COLUMNS", "LINES", "LiveConsole", "fits"]

COLUMNS, LINES = 60, 16
"""Least size of the terminal."""

_SECONDS = 0.5  # between two drawings, of some 2 ms each
_CHANGES = 4
_HEIGHT = 5 + _CHANGES
_BAR = 20


def fits(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that is large enough, and can move its cursor."""
    try:
        return stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb") and _is_large(_size(stream))
    except (OSError, ValueError):
        return False


def _size(stream: TextIO) -> os.terminal_size:
    """Return the columns and lines of a terminal.

    Raises:
        OSError: it is none.
    """
    return os.get_terminal_size(stream.fileno())


def _is_large(size: os.terminal_size) -> bool:
    return size.columns >= COLUMNS and size.lines >= LINES


class LiveConsole(Console):
    """The brief console, with its lines about steps in the live view instead of the log."""

    def __init__(self, lang: Language = "en", stream: TextIO | None = None) -> None:
        super().__init__(lang, stream, brief=True, explain=False)
        self._foot = _Foot(self._terminal)
        self._began = self._drawn = time.monotonic()
        self._current: Span | None = None
        self._rate = TokenRate()
        self._past: deque[str] = deque(maxlen=_CHANGES)

    def __call__(self, span: Span) -> None:
        """Take a span that has ended, and draw the view if it is due."""
        super().__call__(span)
        if span.name != STEP_SPAN or span.attributes.get(names.STEP_KIND, "unknown") == "unknown":
            return
        self._current = span
        self._rate.add(span)
        if time.monotonic() - self._drawn >= _SECONDS:
            self._draw()
            self._drawn = time.monotonic()

    def close(self) -> None:
        """Give the foot of the terminal back."""
        self._foot.close()

    def finish(self, *args: object, **kwargs: object) -> None:
        """Give the foot of the terminal back, and print the outputs and the outcome of the run."""
        self._foot.close()
        super().finish(*args, **kwargs)  # type: ignore[arg-type]

    def _print_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._past.append(self._run_line(run))

    def _draw(self) -> None:
        if self._current is None:
            return
        step = self._read(self._current)
        lines = [*self._past, *([self._run_line(self._run)] if self._run is not None else [])][-_CHANGES:]
        self._foot.draw(self._title(step), [*self._rows(step)], lines)

    def _title(self, step: Step) -> str:
        seconds = duration(time.monotonic() - self._began)
        kind = step_kind(step.kind, self._lang)
        return self._engine_prefix() + text(self._lang, "console.live.title", index=step.index, kind=kind, time=seconds)

    def _rows(self, step: Step) -> list[tuple[str, str]]:
        """Return the headings and the contents of the view."""
        lang = self._lang
        queues = text(lang, "console.live.running", running=len(step.running), waiting=step.num_waiting)
        if step.held:
            first = step.held[0]
            queues += f" · {first.request_id}: {held_reason(first.reason, first.details, lang, first.request_id)}"
        decode = sum(request.num_tokens for request in step.requests if request.phase == "decode")
        budget = {"used": step.num_tokens, "budget": step.token_budget}
        used = step.blocks_total - step.blocks_free
        return [
            (text(lang, "console.live.queues"), queues),
            (
                text(lang, "page.budget"),
                f"{_bar(step.num_tokens, step.token_budget)} "
                + text(lang, "page.budget.sum", **budget, prefill=step.num_tokens - decode, decode=decode),
            ),
            (
                text(lang, "page.blocks"),
                f"{_bar(used, step.blocks_total)} "
                + text(lang, "console.live.blocks", used=used, total=step.blocks_total),
            ),
            (text(lang, "console.live.rate"), self._rates()),
        ]

    def _rates(self) -> str:
        """Return the tokens per second of the last two seconds."""
        rates = self._rate.per_second()
        return text(self._lang, "console.live.rates", output=rates[0], prompt=rates[1]) if rates else "…"


def _bar(used: int, whole: int) -> str:
    filled = min(_BAR, -(-_BAR * used // whole)) if whole > 0 else 0
    return "█" * filled + "░" * (_BAR - filled)


class _Foot:
    """The last lines of the terminal, kept out of its scrolling region while the view is shown."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._size: os.terminal_size | None = None  # of the terminal when the lines were reserved

    def draw(self, title: str, rows: list[tuple[str, str]], lines: list[str]) -> None:
        """Draw the view; a terminal that has become too small has none."""
        try:
            size = _size(self._terminal.stream)
        except (OSError, ValueError):
            return
        if size != self._size:
            self.close()
            if not _is_large(size):
                return
            self._reserve(size)
        head = max(cell_len(heading) for heading, _ in rows) + 2
        facts = [Text.assemble((set_cell_size(heading, head), "bold"), content) for heading, content in rows]
        width = size.columns - 1
        rule = Rule(Text(title, style="bold"), align="left", style="cyan")
        parts: list[RenderableType] = [rule, *facts, *(Text(line, style="dim") for line in lines)]
        drawn = self._terminal.rendered(parts, width)[:_HEIGHT]
        drawn += [""] * (_HEIGHT - len(drawn))
        first = size.lines - _HEIGHT + 1
        placed = "".join(f"\x1b[{first + i};1H{line}\x1b[K" for i, line in enumerate(drawn))
        self._terminal.raw(f"\x1b7{placed}\x1b8")

    def close(self) -> None:
        """Clear the lines, and let the whole terminal scroll again."""
        size, self._size = self._size, None
        if size is not None:
            first = size.lines - _HEIGHT + 1
            self._terminal.raw(f"\x1b7\x1b[r\x1b[{first};1H\x1b[J\x1b8")

    def _reserve(self, size: os.terminal_size) -> None:
        """Scroll the text up if it reaches the last lines, and limit the scrolling to those above."""
        self._size = size
        scroll = "\x1bD" * _HEIGHT + f"\x1b[{_HEIGHT}A"  # keeps the column of an unfinished line
        self._terminal.raw(f"{scroll}\x1b7\x1b[1;{size.lines - _HEIGHT}r\x1b8")
