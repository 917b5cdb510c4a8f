"""What the live log hears where a run has several processes: all of them in one order, from their files.

The main process hears its own spans as soon as they are made. Those of others come a moment later, when they are in
their files; so while there are others every span is held back for a little longer than that takes, and then told in the
order in which they ended.
"""

import heapq
import itertools
import sys
from collections.abc import Callable, Collection
from pathlib import Path

from tracellm.probes.otel.follow import Files
from tracellm.probes.ring import set_aside
from tracellm.trace.model import Span

__all__ = ["Follower", "Live"]

HOLD_NS = 800_000_000
"""Longer than it takes until a span is in the file: a process writes five times a second, and may withhold a span for
two rounds."""


class Follower:
    """Reads what is added to the trace files in a folder, except what the process of the file `own` writes.

    `ring` is how many spans of each process are kept, where not all are: some may be let go before they are read. With
    `names`, spans of other names are left out that tell no more than any call does; but with a ring nothing is, as what
    is there twice is known by its span.

    Attributes:
        count: how many spans were read, or seen and left out.
    """

    def __init__(self, traces: Path, own: Path, ring: int | None = None, names: Collection[str] | None = None) -> None:
        self.count = 0
        self._files = Files(traces, (own.name, set_aside(own).name), ring, names if ring is None else None)

    def new(self) -> list[Span]:
        """The spans that ended and were not read before; a line that is not whole yet, or is damaged, is left."""
        before = self._files.left_out
        spans = self._files.new(sys.maxsize)
        self.count += len(spans) + self._files.left_out - before
        return spans

    def close(self) -> None:
        """Nothing is read any more."""
        self._files.close()


class Live:
    """A listener between the writer and `listener`, which hears of other processes too.

    It wants to hear `names` (see Listener), as does the follower. `others` says whether there are any, `now` is the
    wall clock in nanoseconds.
    """

    title = "the live log"

    def __init__(
        self,
        listener: Callable[[Span], None],
        names: frozenset[str] | None,
        follower: Follower,
        others: Callable[[], bool],
        now: Callable[[], int],
    ) -> None:
        self.names = names
        self._listener = listener
        self._follower = follower
        self._others = others
        self._now = now
        self._holds = False
        self._held: list[tuple[int, int, Span]] = []
        self._count = itertools.count()

    def __call__(self, span: Span) -> None:
        """A span of this process has ended."""
        if self._holds:
            heapq.heappush(self._held, (span.end_ns, next(self._count), span))
        else:
            self._listener(span)

    def look(self) -> None:
        """Read what the others have written, and tell what has been held for long enough."""
        if self._holds or self._others():
            self._holds = True
            self._take_new()
            self._tell(self._now() - HOLD_NS if self._held else 0)

    def end(self) -> None:
        """The others have ended, as has this process: tell all that is left."""
        self._take_new()
        self._tell(None)
        self._follower.close()

    def _take_new(self) -> None:
        for span in self._follower.new():
            heapq.heappush(self._held, (span.end_ns, next(self._count), span))

    def _tell(self, until_ns: int | None) -> None:
        while self._held and (until_ns is None or self._held[0][0] <= until_ns):
            self._listener(heapq.heappop(self._held)[2])
