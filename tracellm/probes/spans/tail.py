"""Spans of a recording that goes on, as its processes append to their record files: for the console and for a
collector.

The files are the queue between the run and whoever follows it: what is not read yet waits on disk, and the engine
neither waits nor keeps anything in memory for it. A file that a ring set aside is held open until it is read.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tracellm.probes.catalog.subjects import SAMPLERS, SUBJECTS
from tracellm.probes.record.record_file import (
    DEFINITIONS,
    END,
    OPEN,
    RECORDS,
    RecordFileError,
    RecordReader,
    facts_of,
    record_files,
)
from tracellm.probes.spans.builder import SpanBuilder
from tracellm.probes.spans.span_site import SpanSite
from tracellm.probes.spec import Entry
from tracellm.trace import names
from tracellm.trace.model import Process, Span

__all__ = ["MEASURED", "RecordTail", "SpanFeed", "is_to_send"]

MEASURED = ".measured-"
"""A file of this name and a process id lies beside the record files where the program in that process has a
MeterProvider: since it came, each request has been measured there."""

_MANY = 4096

_SAMPLES = frozenset((*SUBJECTS["samples"], *SAMPLERS))
_STEPS_WITH_SAMPLES = 16
"""Steps of a process that have their sampled tokens, where only some names are wanted; to describe them takes as long as
all else."""


class SpanFeed:
    """Makes spans of one process's records as they come; with `wanted`, only those that somebody wants of such names.

    That are spans of these names, those with more than arguments and result, and those that others are made of.
    """

    def __init__(self, builder: SpanBuilder, wanted: Collection[str] | None = None) -> None:
        self.builder = builder
        self.process = _process(builder.header.process)
        self._wanted = wanted
        self._uses: dict[int, str] = {}  # what becomes of a site's calls: a span, facts for others, or nothing

    def spans(self, records: Iterable[Any], facts_of: Callable[[Any], Any] | None = None) -> Iterator[Span]:
        """The spans of these records, whose facts `facts_of` decodes; a record that makes none is left out."""
        builder, uses = self.builder, self._uses
        for record in records:
            number = record[0]
            use = uses.get(number)
            if use is None:
                use = uses[number] = "span" if number < 0 else _use(builder.sites[number], self._wanted)
            if not use and record[7] is None:
                continue
            *begin, facts, error = record
            try:
                if facts_of is not None:
                    facts = facts_of(facts)
                if use == "samples" and builder.tracker.steps >= _STEPS_WITH_SAMPLES:
                    continue
                if use != "span" and error is None:
                    builder.give_facts(number, begin[2], facts)
                    continue
                for span in builder.build((*begin, facts, error)):
                    span.process = self.process
                    yield span
            except Exception:  # the conversion notes it
                continue


def _use(site: SpanSite, wanted: Collection[str] | None) -> str:
    if wanted is None or site.name in wanted or (site.observe is not None and site.target not in _SAMPLES):
        return "span"
    if site.gives is not None:
        return "samples" if site.target in _SAMPLES else "facts"
    return "span" if site.timed and not site.in_short else ""


class RecordTail:
    """Follows the record files in the folder `traces`, those to come too, without the files `earlier`, or `only` one.

    With `wanted`, spans of other names are left out that have no more than arguments and result.

    Attributes:
        let_go: spans to send that were in a segment which a ring removed before it was read.
    """

    def __init__(
        self,
        traces: Path,
        earlier: Collection[str] = (),
        entries: Mapping[str, Entry] | None = None,
        wanted: Collection[str] | None = None,
        only: str | None = None,
    ) -> None:
        self.let_go = 0
        self._only = only
        self._traces = traces
        self._earlier = frozenset(earlier)
        self._wanted = wanted
        self._entries = _every_entry() if entries is None else entries
        self._files: dict[Path, _Tail] = {}

    def new(self, limit: int) -> list[Span]:
        """Spans that have ended and were not returned before: `limit` or a few more of them, or all that there are."""
        spans: list[Span] = []
        for path in record_files(self._traces):
            if self._only not in (None, path.name):
                continue
            if path.name not in self._earlier and path not in self._files:
                self._files[path] = _Tail(path, self._entries, self._wanted)
        for tail in self._files.values():
            for batch in tail.batches():
                spans += batch
                if len(spans) >= limit:
                    break
        return spans

    def never_ended(self) -> list[Span]:
        """Calls and requests that were under way at the end, once each."""
        return [span for tail in self._files.values() for span in tail.close()]

    def count_rest(self) -> int:
        """How many spans are left to send in the files, which are not read any more; those that never ended, too."""
        count = 0
        while spans := self.new(_MANY):
            count += sum(map(is_to_send, spans))
        return count + sum(map(is_to_send, self.never_ended()))

    def never_met(self, written: int) -> int:
        """How many calls a ring let go before they were read."""
        return sum(tail.missed for tail in self._files.values())

    def program_measures(self, span: Span) -> bool:
        """Is this span one of a process where the program's own MeterProvider was given it?"""
        if span.name != names.REQUEST_SPAN or span.process is None:
            return False
        try:
            since = int((self._traces / f"{MEASURED}{span.process.pid}").read_bytes())
        except (OSError, ValueError):
            return False
        return span.end_ns >= since


class _Tail:
    """One process's file, segment after segment.

    Attributes:
        missed: records that were in segments which were gone before they were opened.
    """

    def __init__(self, path: Path, entries: Mapping[str, Entry], wanted: Collection[str] | None) -> None:
        self.missed = 0
        self._path = path
        self._entries = entries
        self._wanted = wanted
        self._reader: RecordReader | None = None
        self._feed: SpanFeed | None = None
        self._next = 0
        self._ended: int | None = None

    def batches(self) -> Iterator[list[Span]]:
        """The spans of each frame that was not read before."""
        while self._reader is not None or self._open():
            reader = self._reader
            assert reader is not None
            is_last = self._is_current(reader)  # asked before: what is set aside later is still read to its end
            try:
                for frame in reader.frames():
                    yield self._take(reader, *frame)
            except RecordFileError:
                return
            if is_last:
                return
            reader.close()
            self._reader = None

    def close(self) -> list[Span]:
        """The spans of calls and requests that never ended; nothing more is read."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        feed, self._feed = self._feed, None
        if feed is None:
            return []
        spans = list(feed.builder.close(self._ended))
        for span in spans:
            span.process = feed.process
        return spans

    def _open(self) -> bool:
        try:
            self._reader = RecordReader(self._path)
        except OSError:
            return False
        return True

    def _is_current(self, reader: RecordReader) -> bool:
        try:
            status = self._path.stat()
        except OSError:
            return True  # converted, or about to be made anew
        own = os.fstat(reader.fileno())
        return (status.st_dev, status.st_ino) == (own.st_dev, own.st_ino)

    def _take(self, reader: RecordReader, kind: int, content: Any) -> list[Span]:
        if self._feed is None:
            assert reader.header is not None
            self._feed = SpanFeed(SpanBuilder(reader.header, self._entries), self._wanted)
        builder = self._feed.builder
        if kind == DEFINITIONS:
            builder.define(*content)
        elif kind == OPEN:
            builder.note_open(content[0])
        elif kind == END:
            self._ended = content[0]
        elif kind == RECORDS:
            self.missed += max(0, content.first - self._next)
            records = content.records[max(0, self._next - content.first) :]
            self._next = content.first + len(content.records)
            return list(self._feed.spans(records, facts_of))
        return []


def is_to_send(span: Span) -> bool:
    """Not if the program itself sends this span."""
    return names.SENT not in span.attributes


def _process(attributes: dict[str, Any]) -> Process:
    return Process(attributes[names.PROCESS_PID], attributes[names.PROCESS_NAME], attributes)


def _every_entry() -> dict[str, Entry]:
    from tracellm.probes.catalog import EVERY_ENGINE

    return {entry.target: entry for entry in EVERY_ENGINE}
