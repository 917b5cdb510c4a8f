"""A line below a notebook's cell while a recorded run generates: step, queues, KV cache, tokens per second.

It appears once a run has generated for two seconds, changes twice a second, and is empty afterwards. `explain` uses it
in a Jupyter kernel, in place of the console log of a terminal.
"""

import time
from typing import Any

from tracellm.report.console import Console
from tracellm.report.console.rate import TokenRate
from tracellm.report.texts import Language, text
from tracellm.report.wording.titles import step_kind
from tracellm.trace import names
from tracellm.trace.model import Span
from tracellm.trace.steps import STEP_SPAN, read_step

__all__ = ["LiveLine"]

_FIRST_SECONDS = 2.0
_SECONDS = 0.5


class LiveLine(Console):
    """A console that prints nothing, and shows the last step in one line of the cell's output."""

    def __init__(self, lang: Language) -> None:
        super().__init__(lang, quiet=True)
        self._rate = TokenRate()
        self._due: float | None = None
        self._handle: Any = None
        self._line = ""

    def __call__(self, span: Span) -> None:
        """Take a span that has ended, and show the line if it is due."""
        if span.name != STEP_SPAN or span.attributes.get(names.STEP_KIND, "unknown") == "unknown":
            return
        self._rate.add(span)
        now = time.monotonic()
        if self._due is None:
            self._due = now + _FIRST_SECONDS
        elif now >= self._due:
            self._due = now + _SECONDS
            self._show(self._describe(span))

    def close(self) -> None:
        """Empty the line."""
        if self._handle is not None:
            self._show("")
            self._handle = None

    def finish(self, *args: object, **kwargs: object) -> None:
        """Empty the line: the cell shows the run itself."""
        self.close()

    def _describe(self, span: Span) -> str:
        step = read_step(span)
        rates = self._rate.per_second()
        return text(
            self._lang,
            "cell.live",
            index=step.index,
            kind=step_kind(step.kind, self._lang),
            running=len(step.running),
            waiting=step.num_waiting,
            used=step.blocks_total - step.blocks_free,
            total=step.blocks_total,
            output=rates[0] if rates else 0,
        )

    def _show(self, line: str) -> None:
        from IPython.display import display

        shown = {"text/plain": line}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
