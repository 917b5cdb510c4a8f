"""When a recording goes on for long it tells less: of requests and steps everything but how probable tokens were.

A layer's call takes as long to record as a step's, and each step has hundreds; what they tell is in the first steps. So
where nobody said how deep to record (`Selection.deep_calls`), their probes are taken off after so many calls of a
process, between two steps of an engine. One step may be told of in part: where another engine is in one meanwhile, in
another thread, or where a process has a worker and no engine. What is captured of each step then takes as long as all
else, and most of that is to find the likeliest tokens; so these are left out too.
"""

from typing import Any

from tracellm.probes.install import Installation
from tracellm.probes.ledger import Ledger
from tracellm.probes.state import Made, Note, state
from tracellm.probes.writer import Writer

__all__ = ["Thinning"]


class Thinning:
    """Of one process, after so many calls; None: never."""

    def __init__(self, calls: int | None, writer: Writer, installation: Installation) -> None:
        self._calls = calls
        self._writer = writer
        self._installation = installation

    def step_ended(self) -> None:
        """Called by an engine: what was recorded is handed over, and it may be enough."""
        self._writer.wait_until_handed_over()
        self._thin_if_enough()

    def look(self) -> None:
        """Some five times a second: a process may have no steps, as a server's first has none."""
        if not any(not isinstance(one, Made) and one[0].is_step for one in state.open.copy().values()):
            self._thin_if_enough()

    def _thin_if_enough(self) -> None:
        if self._calls is None or self._writer.handed_over + len(self._writer.buffer) < self._calls:
            return
        state.thinned = True
        self._installation.thin()
        if state.append is not None:
            state.append(Note(_note, None))
        self._calls = None  # at last: where Ctrl-C strikes before, all of it is done at the next step


def _note(ledger: Ledger, facts: Any) -> None:
    if ledger.deep_steps is None:  # else another thread, too, saw that it was enough
        ledger.deep_steps = ledger.steps
