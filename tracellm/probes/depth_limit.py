"""A long recording goes less deep: of requests and steps everything but how probable tokens were.

Each step has hundreds of calls of layers and operations, and what they show is in the first steps. So where nobody
asked for a depth (`Selection.depth_limit`), their probes are taken off when a process has recorded so many bytes,
between two steps of an engine. One step may be recorded in part: where another engine is in one meanwhile, in another
thread, or where a process has a worker and no engine.
"""

from collections.abc import Callable

from tracellm.probes.context.call_context import DEPTH_LIMITED, state
from tracellm.probes.install.installation import Installation
from tracellm.probes.record.recorder import Recorder
from tracellm.probes.wrapping.probe import site_numbered

__all__ = ["DepthLimit"]


class DepthLimit:
    """Limits one process to so many bytes of records; None: it has no limit. `reached` is called when it is."""

    def __init__(
        self, most_bytes: int | None, recorder: Recorder, installation: Installation, reached: Callable[[int], None]
    ) -> None:
        self._most_bytes = most_bytes
        self._recorder = recorder
        self._installation = installation
        self._reached = reached
        self._is_new = False

    def step_ended(self, parent: int) -> None:
        """Write the step's records, and see whether that is enough."""
        self._recorder.step_ended(parent)
        self._limit_if_enough()

    def look(self) -> None:
        """See whether it is enough where no step is under way: a server's first process has none; report it."""
        steps = (one for one in state.open.copy().values() if isinstance(one, tuple))
        if not any(site_numbered(site).probe.is_step for site, *_ in steps):
            self._limit_if_enough()
        if self._is_new:
            self._is_new = False
            self._reached(self._recorder.steps)

    def _limit_if_enough(self) -> None:
        if self._most_bytes is None or self._recorder.bytes < self._most_bytes:
            return
        state.depth_limited = True
        self._installation.limit_depth()
        if state.append is not None:
            state.append((DEPTH_LIMITED, 0, 0, 0, 0, 0, None, None))
        self._most_bytes = None  # at last: where Ctrl-C strikes before, all of it is done at the next step
        self._is_new = True
