"""Spans while the run goes on, for those in the recorded process who show them: the console, the program's metrics.

Only the few kinds of spans that they want are made, five times a second, in the recorder's thread: of this process's
from the batches that were just written, of other processes' from their record files. Where there are several processes,
spans wait until those that ended before them must have come, and are shown in the order in which they ended. A feed
that falls behind skips ahead: it never slows the engine.
"""

import heapq
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tracellm.probes.context.call_context import Record, find_thread_context
from tracellm.probes.record.definitions import define_place, define_site
from tracellm.probes.record.record_file import Header
from tracellm.probes.record.recorder import Recorder
from tracellm.probes.spans.builder import SpanBuilder
from tracellm.probes.spans.tail import RecordTail, SpanFeed
from tracellm.probes.wrapping.probe import Entry, site_numbered
from tracellm.trace.model import Span

__all__ = ["HOLD_NS", "Listener", "LiveFeed"]

HOLD_NS = 500_000_000
"""Longer than it takes until a record is in the file: a process writes five times a second at least."""

_MOST_BEHIND = 200_000
"""Records that may wait for the feed; beyond, it skips them."""

_MOST_SECONDS = 0.01
"""Processor time of a round, of which there are five a second: what is left waits for the next."""


class Listener(Protocol):
    """Called with each ended span that it wants, in the order in which they end.

    Attributes:
        names: names of the spans that it wants besides those that have more than arguments and result; None: all.
    """

    names: frozenset[str] | None

    def __call__(self, span: Span) -> None:
        """Take a span that has ended."""


class LiveFeed:
    """Feeds `listeners` with spans of the process that `recorder` records, and of others in the same folder.

    `now` is the wall clock in nanoseconds, `tell` is given the problem when a listener fails: it gets no other span.

    Attributes:
        skipped: calls of this process that the feed skipped, as it fell behind.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        recorder: Recorder,
        header: Header,
        entries: Mapping[str, Entry],
        now: Callable[[], int],
        tell: Callable[[str], None],
    ) -> None:
        self.skipped = 0
        self._listeners = list(listeners)
        self._recorder = recorder
        self._now = now
        self._tell = tell
        every = [one.names for one in listeners]
        wanted = None if None in every else frozenset().union(*(one for one in every if one is not None))
        self._builder = SpanBuilder(header, entries)
        self._feed = SpanFeed(self._builder, wanted)
        self._others = RecordTail(recorder.path.parent, (recorder.path.name,), entries, wanted)
        self._holds = False
        self._held: list[tuple[int, int, Span]] = []
        self._count = itertools.count()
        self._under_way: Iterator[Span] = iter(())
        recorder.batches.clear()
        recorder.keeps_batches = True

    def look(self, has_others: bool = False) -> None:
        """Feed what is new; hold some of it back where there are other processes."""
        self._holds = self._holds or has_others
        self._skip()
        enough = time.thread_time() + _MOST_SECONDS
        for span in self._own():
            time.sleep(0)  # else the engine would wait for the interpreter's lock for 5 ms at a time
            if self._holds:
                heapq.heappush(self._held, (span.end_ns, next(self._count), span))
            else:
                self._show(span)
            if time.thread_time() > enough:
                break
        if self._holds:
            self._read_others()
            self._show_until(self._now() - HOLD_NS)

    def end(self, ended: int) -> None:
        """Feed all that is left: the recording has ended at this time."""
        own = [*self._own(), *self._builder.close(ended)]
        self._read_others()
        for span in [*own, *(one for one in self._others.never_ended() if not one.open)]:
            if not span.open:
                heapq.heappush(self._held, (span.end_ns, next(self._count), span))
        self._show_until(None)

    def _own(self) -> Iterator[Span]:
        """The spans of this process that were not fed yet; a caller may stop anywhere, and go on later."""
        while True:
            for span in self._under_way:  # noqa: UP028  (`yield from` would close it when the caller stops)
                yield span
            if not self._recorder.batches:
                return
            records = self._recorder.batches.popleft()
            self._define(records)
            self._under_way = self._feed.spans(records)

    def _define(self, records: Sequence[Record]) -> None:
        sites = {record[0] for record in records} - self._builder.sites.keys()
        places = {record[3] for record in records} - self._builder.places.keys()
        if sites or places:
            self._builder.define(
                [(number, define_site(site_numbered(number))) for number in sites if number >= 0],
                [(number, define_place(find_thread_context(number))) for number in places],
            )

    def _skip(self) -> None:
        batches = self._recorder.batches
        while sum(map(len, list(batches))) > _MOST_BEHIND:
            self.skipped += len(batches.popleft())

    def _read_others(self) -> None:
        while spans := self._others.new(_MOST_BEHIND):
            for span in spans:
                heapq.heappush(self._held, (span.end_ns, next(self._count), span))

    def _show_until(self, until_ns: int | None) -> None:
        while self._held and (until_ns is None or self._held[0][0] <= until_ns):
            self._show(heapq.heappop(self._held)[2])

    def _show(self, span: Span) -> None:
        for listener in self._listeners.copy():
            try:
                listener(span)
            except Exception as error:
                self._listeners.remove(listener)
                self._tell(f"the live log stopped: {type(error).__name__}: {error}")
