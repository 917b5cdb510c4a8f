"""Spans of a recording under way, made from its record files as they grow: for the console and the collector.

The files are the queue between the run and its readers: what is not read yet waits on disk, and the engine neither
waits nor keeps it in memory. A reader keeps a ring's segment open until it is read to its end.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from tracellm.probes.catalog import ENTRIES_BY_TARGET
from tracellm.probes.catalog.report_needs import SAMPLERS, SUBJECTS
from tracellm.probes.record.record_file import (
    DEFINITIONS,
    END,
    KEPT,
    OPEN,
    RECORDS,
    RecordFileError,
    RecordReader,
    facts_of,
    record_files,
    segments_of,
)
from tracellm.probes.spans.builder import SpanBuilder, SpanSite
from tracellm.probes.wrapping.probe import Entry
from tracellm.trace.model import Span

__all__ = ["RecordTail", "SpanFeed"]

_MOST_AT_ONCE = 4096


class SpanFeed:
    """Makes spans of one process's records as they come; used by the tail and the live feed.

    With `span_names`, only spans with these names are made, those with more than arguments and result, and those that
    others depend on.

    Attributes:
        num_left_out: number of spans that were not made.
    """

    def __init__(self, builder: SpanBuilder, span_names: Collection[str] | None = None) -> None:
        self.num_left_out = 0
        self.builder = builder
        self._span_names = span_names
        self._uses: dict[int, str] = {}

    def select(self, span_names: Collection[str]) -> None:
        """Make only these spans from now on."""
        self._span_names = span_names
        self._uses.clear()

    def spans(self, records: Iterable[Any], facts_of: Callable[[Any], Any] | None = None) -> Iterator[Span]:
        """Yield the spans of these records, whose facts `facts_of` decodes; skip a record that is damaged."""
        builder, uses = self.builder, self._uses
        for record in records:
            number = record[0]
            use = uses.get(number)
            if use is None:
                use = uses[number] = _SPAN if number < 0 else _use(builder.sites[number], self._span_names)
            try:
                if use is not _SPAN and record[7] is None:
                    self.num_left_out += 1
                    facts = record[6]
                    if use is _NONE or (use is _SAMPLES and builder.tracker.steps >= _STEPS_WITH_SAMPLES):
                        facts = None
                    elif facts_of is not None:
                        facts = facts_of(facts)
                    builder.follow(number, record[1], record[2], facts)
                    continue
                *begin, facts, error = record
                facts = facts if facts_of is None else facts_of(facts)
                yield from builder.build((*begin, facts, error))
            except Exception:  # the conversion reports it
                continue


_SPAN, _FACTS, _SAMPLES, _NONE = "span", "facts", "samples", ""
"""Uses of a site's calls: a span; facts for the enclosing call; sampled tokens (facts, too); none."""

_SAMPLERS = frozenset((*SUBJECTS["samples"], *SAMPLERS))
_STEPS_WITH_SAMPLES = 16
"""Number of steps with described tokens if only some spans are made; describing takes as long as everything else."""


def _use(site: SpanSite, span_names: Collection[str] | None) -> str:
    samples = site.target in _SAMPLERS
    if span_names is None or site.name in span_names or (site.observe is not None and not samples):
        return _SPAN
    if site.gives is not None:
        return _SAMPLES if samples else _FACTS
    return _SPAN if site.timed and not site.in_short else _NONE


class RecordTail:
    """Reads the record files in a folder as they appear and grow; used by the sender, the metrics and the live feed.

    Args:
        traces: the folder.
        earlier: names of files to leave out.
        entries: the catalog's entries by their targets, by default of every engine.
        span_names: as in SpanFeed.
        only: name of the only file to read.
    """

    def __init__(
        self,
        traces: Path,
        earlier: Collection[str] = (),
        entries: Mapping[str, Entry] | None = None,
        span_names: Collection[str] | None = None,
        only: str | None = None,
    ) -> None:
        self._only = only
        self._traces = traces
        self._earlier = frozenset(earlier)
        self._span_names = span_names
        self._entries = ENTRIES_BY_TARGET if entries is None else entries
        self._files: dict[Path, _Tail] = {}

    def new(self, limit: int, find_files: bool = True) -> list[Span]:
        """Return at most `limit` spans that have ended and were not returned before, also of files that are new."""
        for path in record_files(self._traces) if find_files else ():
            if self._only not in (None, path.name):
                continue
            if path.name not in self._earlier and path not in self._files:
                self._files[path] = _Tail(path, self._entries, self._span_names)
        spans: list[Span] = []
        for left, tail in zip(range(len(self._files), 0, -1), self._files.values(), strict=True):
            spans += tail.take(-(-(limit - len(spans)) // left))  # a share for each
        return spans

    def never_ended(self) -> list[Span]:
        """Return the calls and requests that never ended; nothing more is read."""
        return [span for tail in self._files.values() for span in tail.close()]

    def count_rest(self, is_counted: Callable[[Span], bool]) -> int:
        """Return the number of remaining spans that count, including calls that never ended; most are not made."""
        self._span_names = frozenset()
        for tail in self._files.values():
            tail.select(self._span_names)
        count = 0
        while spans := self.new(_MOST_AT_ONCE):
            count += sum(map(is_counted, spans))
        left_out = sum(tail.num_left_out for tail in self._files.values())
        return count + left_out + sum(map(is_counted, self.never_ended()))

    @property
    def num_missed(self) -> int:
        """Number of records that a ring dropped before they were read."""
        return sum(tail.num_missed for tail in self._files.values())


class _Tail:
    """One process's file, segment after segment.

    Attributes:
        num_missed: number of records that a ring dropped before they were read.
    """

    def __init__(self, path: Path, entries: Mapping[str, Entry], span_names: Collection[str] | None) -> None:
        self.num_missed = 0
        self._path = path
        self._entries = entries
        self._span_names = span_names
        self._reader: RecordReader | None = None
        self._feed: SpanFeed | None = None
        self._frame: Iterator[Span] = iter(())  # the rest of the last frame
        self._next = 0
        self._ended: int | None = None

    @property
    def num_left_out(self) -> int:
        """Number of spans that were not made."""
        return self._feed.num_left_out if self._feed is not None else 0

    def select(self, span_names: Collection[str]) -> None:
        """Make only these spans from now on."""
        self._span_names = span_names
        if self._feed is not None:
            self._feed.select(span_names)

    def take(self, limit: int) -> list[Span]:
        """Return at most `limit` spans of records that were not read before."""
        spans = list(islice(self._frame, limit))
        while len(spans) < limit and self._advance():
            spans += islice(self._frame, limit - len(spans))
        return spans

    def close(self) -> list[Span]:
        """Return the spans of calls and requests that never ended; nothing more is read."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        feed, self._feed = self._feed, None
        return [] if feed is None else list(feed.builder.close(self._ended))

    def _advance(self) -> bool:
        """Go on to the next frame; return False if there is none yet."""
        while True:
            self._reader = self._reader or self._open(None)
            if self._reader is None:
                return False
            is_last = self._is_current(self._reader)  # before reading: what is renamed later is read to its end
            try:
                frame = next(self._reader.frames(), None)
            except RecordFileError:
                return False
            if frame is not None:
                self._frame = self._take(self._reader, *frame)
                return True
            if is_last:
                return False
            self._reader = self._open(self._reader)

    def _open(self, before: RecordReader | None) -> RecordReader | None:
        """Return the segment after `before`, which is read to its end; `before` itself if there is none yet."""
        for path in segments_of(self._path)[before is not None :]:
            try:
                reader = RecordReader(path)
            except OSError:
                continue
            if before is None or _inode(reader) != _inode(before):  # an open file's is not given to another
                if before is not None:
                    before.close()
                return reader
            reader.close()
        return before

    def _is_current(self, reader: RecordReader) -> bool:
        try:
            status = self._path.stat()
        except OSError:
            return True  # converted, or about to be created again
        return (status.st_dev, status.st_ino) == _inode(reader)

    def _take(self, reader: RecordReader, kind: int, content: Any) -> Iterator[Span]:
        if self._feed is None:
            assert reader.header is not None
            self._feed = SpanFeed(SpanBuilder(reader.header, self._entries), self._span_names)
        builder = self._feed.builder
        if kind == DEFINITIONS:
            builder.define(*content)
        elif kind == OPEN:
            builder.note_open(content[0])
        elif kind == END:
            self._ended = content[0]
        elif kind in (RECORDS, KEPT) and content.first > self._next:
            assert reader.header is not None
            self.num_missed += content.first - self._next
            self._next = content.first
            builder.skip(reader.header.steps, content.records if kind == KEPT else ())
        if kind == RECORDS:
            records = content.records[max(0, self._next - content.first) :]
            self._next = content.first + len(content.records)
            return self._feed.spans(records, facts_of)
        return iter(())


def _inode(reader: RecordReader) -> tuple[int, int]:
    status = os.fstat(reader.fileno())
    return status.st_dev, status.st_ino
