"""Recording for a benchmark: what `tracellm run --explain` does meanwhile is done, and what it leaves thrown away."""

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tracellm.probes.session import Recording

__all__ = ["Depth", "recorded"]

Depth = Literal["default", "request", "step", "layer", "kernel"]
"""As far as `--detail` says; "default" is without it."""


@contextmanager
def recorded(depth: Depth | None) -> Iterator["Recording | None"]:
    """Record what happens; None: do not."""
    if depth is None:
        yield None
        return
    from tracellm.probes.selection import Selection
    from tracellm.probes.session import Recording
    from tracellm.report.console import Console

    selection = Selection.of(None if depth == "default" else depth)
    console = Console("en", io.StringIO())
    with (
        tempfile.TemporaryDirectory() as folder,
        Recording(Path(folder) / "run", selection=selection, listener=console) as recording,
    ):
        yield recording
