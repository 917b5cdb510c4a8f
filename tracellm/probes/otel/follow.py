"""The spans of a recording that goes on, as its processes add them to their files.

The files are the queue between the run and whoever sends its spans on: what is not read yet waits on disk, and the
engine neither waits nor keeps anything in memory for it. With `--ring` a file is set aside when it is full, removed
when the next one is, and the last two are made one at the end (probes/ring.py): it is held open while it is read.
"""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from tracellm.trace import names, otlp
from tracellm.trace.model import Span

__all__ = ["MEASURED", "PIECE", "Files", "is_to_send"]

MEASURED = ".measured-"
"""A file of this name and a process id lies beside the trace files where the program in that process has a
MeterProvider: since it came, each life in the trace file has been measured there."""

PIECE = 1 << 18
"""Bytes read at a time: some 300 spans."""

_MANY = 4096


class Files:
    """The trace files in the folder `traces`, those to come too; without `earlier`, which are another recording's.

    `ring` is how many spans of each process are kept, where not all are. With `wanted` those of other names are left
    out that tell no more than any call does (`otlp.Decoder`).

    Attributes:
        let_go: spans to send that were in a file which was removed before they were read, and that are in no other.
    """

    def __init__(
        self,
        traces: Path,
        earlier: Collection[str] = (),
        ring: int | None = None,
        wanted: Collection[str] | None = None,
    ) -> None:
        self.let_go = 0
        self._met = 0  # of spans that ended, with a ring, each once
        self._decoder = otlp.Decoder(wanted)
        self._traces = traces
        self._earlier = frozenset(earlier)
        self._ring = ring
        self._tails: dict[tuple[int, int], _Tail] = {}
        self._open: dict[str, Span] = {}
        self._given: dict[str, _Known] = {}
        self._unread: dict[str, _Known] = {}

    def new(self, limit: int) -> list[Span]:
        """Spans that have ended and were not given before: `limit` or a few more of them, fewer if there are no more.

        A line that is damaged is left out: whoever reads the folder afterwards tells of it.
        """
        spans: list[Span] = []
        for tail in self._look():
            while len(spans) < limit and (lines := tail.piece()):
                for line in lines.splitlines():
                    spans += self._first_time(tail.process, self._ended(line))
        return spans

    def never_ended(self) -> list[Span]:
        """The calls and requests that were told of when they began, and of whose end no file tells; once each."""
        left, self._open = list(self._open.values()), {}
        return left

    @property
    def left_out(self) -> int:
        """How many spans were left out that nobody wants."""
        return self._decoder.left_out

    def count_rest(self) -> int:
        """How many spans are left to send in the files, which are not read any more; those that never ended, too."""
        count = 0
        while spans := self.new(_MANY):
            count += sum(map(is_to_send, spans))
        return count + sum(map(is_to_send, self.never_ended()))

    def never_met(self, written: int) -> int:
        """How many of so many spans that were written nobody has seen here: their file came and went between two looks.

        With a ring only; and when all is read that is there.
        """
        return 0 if self._ring is None else max(0, written - self._met)

    def program_measures(self, span: Span) -> bool:
        """Is this span one of a process where the program's own MeterProvider was told of it?"""
        if span.name != names.REQUEST_SPAN or span.process is None:
            return False
        try:
            since = int((self._traces / f"{MEASURED}{span.process.pid}").read_bytes())
        except (OSError, ValueError):
            return False
        return span.end_ns >= since

    def close(self) -> None:
        """Nothing is read any more."""
        for tail in self._tails.values():
            tail.close()
        self._tails = {}

    def _look(self) -> list["_Tail"]:
        """What is being read of each file, the older of a process before the newer."""
        found: dict[tuple[int, int], _Tail] = {}
        for path in sorted(self._traces.glob("*.jsonl")):
            if path.name not in self._earlier and (tail := _Tail.of(path)) is not None:
                if tail.file in self._tails:
                    tail.close()
                    tail = self._tails[tail.file]
                found[tail.file] = tail
        for file, tail in self._tails.items():
            if file not in found:
                self._let_go(tail)
                tail.close()
        self._tails = found
        return list(found.values())

    def _let_go(self, tail: "_Tail") -> None:
        """Count what was not read of a file that was removed; where files are made one, some of that comes again."""
        unread = self._unread.setdefault(tail.process, _Known(2 * (self._ring or 0)))
        while lines := tail.piece():
            for line in lines.splitlines():
                new = [span for span in self._ended(line) if unread.add(span.span_id)]
                self._met += len(new)
                self.let_go += sum(map(is_to_send, new))

    def _ended(self, line: bytes) -> Iterator[Span]:
        try:
            of_processes = self._decoder.decode(line)
        except otlp.OtlpError:
            return
        for _, spans in of_processes:
            for span in spans:
                if span.open:
                    self._open[span.span_id] = span
                else:
                    self._open.pop(span.span_id, None)
                    yield span

    def _first_time(self, process: str, spans: Iterator[Span]) -> Iterator[Span]:
        if self._ring is None:
            yield from spans
            return
        given, unread = self._given.setdefault(process, _Known(self._ring)), self._unread.get(process, ())
        for span in spans:
            if given.add(span.span_id):
                if span.span_id in unread:
                    self.let_go -= is_to_send(span)
                else:
                    self._met += 1
                yield span


def is_to_send(span: Span) -> bool:
    """Not if the program itself sends this span."""
    return names.SENT not in span.attributes


class _Tail:
    """A file that is read as it grows, and held open: so it is the same one when it is renamed."""

    def __init__(self, stream: BinaryIO, process: str) -> None:
        status = os.fstat(stream.fileno())
        self.file = status.st_dev, status.st_ino
        self.process = process
        self._stream = stream
        self._read = 0  # bytes

    @classmethod
    def of(cls, path: Path) -> "_Tail | None":
        """The file of this name; None if it has gone meanwhile."""
        try:
            return cls(path.open("rb", buffering=0), path.name.partition(".")[0])
        except OSError:
            return None

    def piece(self) -> bytes:
        """Whole lines that were not read before; none when there are none."""
        content = b""
        try:
            self._stream.seek(self._read)
            while piece := self._stream.read(PIECE):
                content += piece
                if b"\n" in piece:
                    break
        except OSError:
            return b""
        lines = content[: content.rfind(b"\n") + 1]
        self._read += len(lines)
        return lines

    def close(self) -> None:
        """It is not read any more."""
        self._stream.close()


class _Known:
    """The last spans of a process that were given, or were not, by their ids; `most` or more of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._before: set[str] = set()
        self._now: set[str] = set()

    def __contains__(self, span_id: object) -> bool:
        return span_id in self._now or span_id in self._before

    def add(self, span_id: str) -> bool:
        """Know this one from now on. Was it not known yet?"""
        if span_id in self:
            return False
        if len(self._now) >= self._most:
            self._before, self._now = self._now, set()
        self._now.add(span_id)
        return True
