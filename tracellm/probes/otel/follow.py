"""The spans of a recording that goes on, as its processes add them to their files.

The files are the queue between the run and whoever sends its spans on: what is not read yet waits on disk, and the
engine neither waits nor keeps anything in memory for it.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from tracellm.trace import names, otlp
from tracellm.trace.model import Span

__all__ = ["MEASURED", "PIECE", "Files"]

MEASURED = ".measured-"
"""A file of this name and a process id lies beside the trace files where the program in that process has a
MeterProvider: since it came, each life in the trace file has been measured there."""

PIECE = 1 << 18
"""Bytes read at a time: some 300 spans."""

_START = b'"startTimeUnixNano":"'  # in each span once, and not within a text, where the quotes are escaped
_OPEN = b'{"key":"tracellm.open","value":{"boolValue":true}}'


class Files:
    """The trace files in the folder `traces`, those to come too; without `earlier`, which are another recording's."""

    def __init__(self, traces: Path, earlier: Collection[str] = ()) -> None:
        self._traces = traces
        self._earlier = frozenset(earlier)
        self._read: dict[Path, int] = {}  # bytes of each file
        self._open: dict[str, Span] = {}

    def new(self, limit: int) -> list[Span]:
        """Spans that have ended and were not given before: `limit` or a few more of them, fewer if there are no more.

        A line that is damaged is left out: whoever reads the folder afterwards tells of it.
        """
        spans: list[Span] = []
        for file in self._files():
            while len(spans) < limit and (lines := self._piece(file)):
                for line in lines.splitlines():
                    spans += self._ended(line)
        return spans

    def never_ended(self) -> list[Span]:
        """The calls and requests that were told of when they began, and of whose end no file tells; once each."""
        left, self._open = list(self._open.values()), {}
        return left

    def count_rest(self) -> int:
        """How many ended spans are left in the files, which are not read any more."""
        count = 0
        for file in self._files():
            while lines := self._piece(file):
                count += lines.count(_START) - lines.count(_OPEN)
        return count

    def program_measures(self, span: Span) -> bool:
        """Is this span one of a process where the program's own MeterProvider was told of it?"""
        if span.name != names.REQUEST_SPAN or span.process is None:
            return False
        return (self._traces / f"{MEASURED}{span.process.pid}").exists()

    def _files(self) -> list[Path]:
        return sorted(file for file in self._traces.glob("*.jsonl") if file.name not in self._earlier)

    def _piece(self, file: Path) -> bytes:
        """Whole lines of the file that were not read before; none when there are none."""
        start, content = self._read.get(file, 0), b""
        try:
            with file.open("rb") as stream:
                stream.seek(start)
                while piece := stream.read(PIECE):
                    content += piece
                    if b"\n" in piece:
                        break
        except OSError:
            return b""
        lines = content[: content.rfind(b"\n") + 1]
        self._read[file] = start + len(lines)
        return lines

    def _ended(self, line: bytes) -> Iterator[Span]:
        try:
            of_processes = otlp.decode(line)
        except otlp.OtlpError:
            return
        for _, spans in of_processes:
            for span in spans:
                if span.open:
                    self._open[span.span_id] = span
                else:
                    self._open.pop(span.span_id, None)
                    yield span
