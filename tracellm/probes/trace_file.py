"""The file that a process writes its spans to, line after line."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Line", "TraceFile"]


class Line(NamedTuple):
    """A line of the file, newline included, and how many spans of calls that ended it has."""

    content: bytes
    spans: int


class TraceFile:
    """Adds lines to the file `path`, which is made when there is something to write.

    Attributes:
        let_go: how many spans were written and are there no more.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.let_go = 0
        self._descriptor: int | None = None

    def write(self, lines: Sequence[Line]) -> None:
        """Add lines in one go: what belongs together is there together.

        Raises:
            OSError: the file cannot be written.
        """
        content = b"".join([line.content for line in lines])
        if not content:
            return
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        while content:
            content = content[os.write(self._descriptor, content) :]

    def settle(self) -> None:
        """All calls that ended are written; what may come are those that did not.

        Raises:
            OSError: the file cannot be written.
        """

    def close(self) -> None:
        """There will be no other line."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
