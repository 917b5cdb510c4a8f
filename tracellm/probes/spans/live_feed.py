"""Live feed: spans while the run goes on, for a listener in the recorded process, such as the console.

Only the kinds of spans that they need are made, five times a second, in the recorder's thread. Those of this process
come from the batches just written, others from the record files. With several processes, spans wait for those that
ended before them, and are fed in the order of their ends. A feed that falls behind catches up later, or skips calls of
this process: it never slows the engine.
"""

import heapq
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from tracellm.probes.context.call_context import Record, find_thread_context
from tracellm.probes.record.record_file import Header
from tracellm.probes.record.recorder import Recorder, define_site, define_thread
from tracellm.probes.spans.builder import SpanBuilder
from tracellm.probes.spans.tail import RecordTail, SpanFeed
from tracellm.probes.wrapping.probe import Entry, site_numbered
from tracellm.trace.model import Span

__all__ = ["HOLD_NS", "Listener", "LiveFeed"]

_Item = TypeVar("_Item")

HOLD_NS = 500_000_000
"""Longest time until a record is in the file: a process writes at least five times a second."""

_MOST_BEHIND = 200_000
"""Maximum number of records that wait for the feed; it skips more."""

_MOST_THREADS = 10_000
"""Number of threads kept from one batch to the next; each HTTP request of a server is one."""

_MOST_SECONDS = 0.005
"""Processor time for each part of one of the five rounds a second: spans of this process, of others, and listeners."""

_PAUSE_EVERY, _PAUSE = 0.0005, 0.0001
"""Seconds of processor time after which a part pauses, and seconds of the pause.

Without pauses another thread waits up to 5 ms for the GIL each time, an event loop for each token that it sends.
"""

_MOST_HELD = 20_000
"""Number of held spans from which the oldest are fed before more are read.

Meanwhile the records of other processes wait in their files, and those of this process in memory, up to _MOST_BEHIND.
"""

_MOST_AT_ONCE = 32
"""Number of spans of other processes read at a time."""


class Listener(Protocol):
    """Receives ended spans in the order of their ends.

    Attributes:
        names: names of the spans needed besides those with more than arguments and result; None: all.
    """

    names: frozenset[str] | None

    def __call__(self, span: Span) -> None:
        """Receive a span that has ended."""


class LiveFeed:
    """Feed of a listener with the spans of this process, and of others in the same folder; used by `Recording`.

    Args:
        listener: the receiver; without `names` it receives every span. After it raises, it receives no other.
        recorder: this process's recorder.
        header: header of its record file.
        entries: the catalog's entries by their targets.
        now: the wall clock in nanoseconds.
        report: called with a problem, as a sentence for the user.

    Attributes:
        skipped: calls of this process that were skipped.
    """

    def __init__(
        self,
        listener: Listener | Callable[[Span], None],
        recorder: Recorder,
        header: Header,
        entries: Mapping[str, Entry],
        now: Callable[[], int],
        report: Callable[[str], None],
    ) -> None:
        self.skipped = 0
        self._listener: Callable[[Span], None] | None = listener
        self._recorder = recorder
        self._now = now
        self._report = report
        self._builder = SpanBuilder(header, entries)
        wanted = getattr(listener, "names", None)
        self._feed = SpanFeed(self._builder, wanted)
        self._others = RecordTail(recorder.path.parent, (recorder.path.name,), entries, wanted)
        self._holds = False
        self._held: list[tuple[int, int, Span]] = []
        self._count = itertools.count()
        self._under_way: Iterator[Span] = iter(())
        self._all_read_until = 0
        recorder.batches.clear()
        recorder.keeps_batches = True

    def poll(self, has_others: bool = False) -> None:
        """Feed new spans; with other processes, hold the last ones back."""
        self._holds = self._holds or has_others
        self._skip()
        if not self._holds:
            _use(self._own(), self._show)
            return
        now = self._now()
        if len(self._held) >= _MOST_HELD:
            _use(self._due(None), self._show)
            return
        all_own, all_others = _use(self._own(), self._hold), _use(self._read_others(), self._hold_all)
        if all_own and all_others:
            self._all_read_until = now - HOLD_NS
        _use(self._due(self._all_read_until), self._show)

    def end(self, ended: int) -> None:
        """Feed the rest, when the recording has ended at `ended`."""
        own = [*self._own(), *self._builder.close(ended)]
        for spans in (own, *self._read_others(), self._others.never_ended()):
            self._hold_all(span for span in spans if not span.open)
        for span in self._due(None):
            self._show(span)

    def _own(self) -> Iterator[Span]:
        """Yield the spans of this process that are new; the caller may stop anywhere and continue later."""
        while True:
            for span in self._under_way:  # noqa: UP028  (`yield from` would close the iterator)
                yield span
            if not self._recorder.batches:
                return
            records = self._recorder.batches.popleft()
            self._define(records)
            self._under_way = self._feed.spans(records)

    def _define(self, records: Sequence[Record]) -> None:
        known = self._builder.threads
        for number in [*itertools.islice(known, max(len(known) - _MOST_THREADS, 0))]:
            del known[number]  # a batch that has it defines it again
        sites = {record[0] for record in records} - self._builder.sites.keys()
        threads = {record[3] for record in records} - known.keys()
        if sites or threads:
            self._builder.define(
                [(number, define_site(site_numbered(number))) for number in sites if number >= 0],
                [(number, define_thread(find_thread_context(number))) for number in threads],
            )

    def _skip(self) -> None:
        batches = self._recorder.batches
        while sum(map(len, list(batches))) > _MOST_BEHIND:
            self.skipped += len(batches.popleft())

    def _read_others(self) -> Iterator[list[Span]]:
        """Yield the spans of other processes that are new, some at a time."""
        spans = self._others.new(_MOST_AT_ONCE)
        while spans:
            yield spans
            spans = self._others.new(_MOST_AT_ONCE, find_files=False)

    def _hold(self, span: Span) -> None:
        heapq.heappush(self._held, (span.end_ns, next(self._count), span))

    def _hold_all(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self._hold(span)

    def _due(self, until_ns: int | None) -> Iterator[Span]:
        """Yield the held spans that ended until then, by default all of them, in the order of their ends."""
        while self._held and (until_ns is None or self._held[0][0] <= until_ns):
            yield heapq.heappop(self._held)[2]

    def _show(self, span: Span) -> None:
        if self._listener is None:
            return
        try:
            self._listener(span)
        except Exception as error:
            self._listener = None
            self._report(f"the live log stopped: {type(error).__name__}: {error}")


def _use(items: Iterator[_Item], use: Callable[[_Item], None]) -> bool:
    """Use items for _MOST_SECONDS of processor time, with pauses; return False if there may be more."""
    now = time.thread_time()
    end, next_pause = now + _MOST_SECONDS, now + _PAUSE_EVERY
    for item in items:
        use(item)
        now = time.thread_time()
        if now > end:
            return False
        if now > next_pause:
            time.sleep(_PAUSE)
            next_pause = now + _PAUSE_EVERY
    return True
