"""Recording for a benchmark: what `tracellm run --explain` does meanwhile is done, and what it leaves thrown away."""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracellm.probes.session import Recording
    from tracellm.trace.names import Level

__all__ = ["recorded"]


@contextmanager
def recorded(level: "Level | None") -> Iterator["Recording | None"]:
    """Record all that happens down to a level; None: do not."""
    if level is None:
        yield None
        return
    from tracellm.probes.selection import Selection
    from tracellm.probes.session import Recording
    from tracellm.report.console import Console

    console = Console("en", io.StringIO())
    with (
        tempfile.TemporaryDirectory() as folder,
        Recording(Path(folder) / "run", selection=Selection(level), listener=console) as recording,
    ):
        yield recording
