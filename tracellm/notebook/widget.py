"""A run as a widget, whose selection is Python's too: `view = run.widget()`, `view.step`, `view.request`, `view.block`.

It shows the frame of a run's display, and needs a kernel; the display alone does not. anywidget: https://anywidget.dev.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import anywidget
import traitlets

from tracellm.notebook.steps import RunStep
from tracellm.report.html.cell import cell_document

if TYPE_CHECKING:
    from tracellm.notebook.requests import RunRequest
    from tracellm.notebook.run import Run

__all__ = ["RunWidget"]


class RunWidget(anywidget.AnyWidget):
    """Requests and steps of a run.

    Attributes:
        engine: index of the selected engine, from 0.
        step: number of the selected step.
        request: id of the selected request, or None.
        block: the selected KV cache block, or None.
    """

    _esm = Path(__file__).with_suffix(".js")
    document = traitlets.Unicode().tag(sync=True)
    engine = traitlets.Int(0).tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    request = traitlets.Unicode(None, allow_none=True).tag(sync=True)
    block = traitlets.Int(None, allow_none=True).tag(sync=True)

    def __init__(self, run: "Run") -> None:
        document, self.left_out = cell_document(run.trace, run.lang, linked=True)
        super().__init__(document=document, step=run.steps[0].number if len(run.steps) else 0)
        self._run = run

    @property
    def selected_step(self) -> RunStep:
        """The selected step."""
        return next(step for step in self._run.steps if (step.engine, step.number) == (self.engine, self.step))

    @property
    def selected_request(self) -> "RunRequest | None":
        """The selected request, if any."""
        return None if self.request is None else self._run.requests[self.request]
