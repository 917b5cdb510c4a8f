"""Where records become spans and are written to the file of their process.

A desk knows no thread and no clock but those of the records: whoever has them hands them over (writer.py), in the
recorded process itself or in one of its own beside it (desk_process.py). The file is written a whole line at a time,
and calls that last are told of before they end, so that a run that is killed loses what it did in the last moment and
no more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tracellm import __version__
from tracellm.probes.build import Builder
from tracellm.probes.effort import Effort
from tracellm.probes.listeners import Listeners
from tracellm.probes.ring import RingFile
from tracellm.probes.scribe import Scribe, Written
from tracellm.probes.state import Made, Note, Open, Record, Told
from tracellm.probes.trace_file import Line, TraceFile
from tracellm.probes.withheld import Withheld
from tracellm.trace.model import Process, Span
from tracellm.trace.otlp.encoding import line, opening

__all__ = ["AnyDesk", "AnyRecord", "Assignment", "Desk", "Pause", "no_pause"]

AnyRecord = Record | Note | Made | Told

Pause = Callable[[], int]
"""Lets the threads of the recorded program run; returns how many records may be done until it is to be called again."""

_SPANS_IN_A_LINE = 64


class Assignment(NamedTuple):
    """What a desk is to write, and where.

    Attributes:
        file: where the spans of the process go, all of them or the last `ring`.
        process: whose they are.
        builder: makes them.
        listeners: hear of those that have ended, in the order in which they end.
        tell: is given a problem, for people.
    """

    file: Path
    process: Process
    builder: Builder
    listeners: Listeners
    ring: int | None
    tell: Callable[[str], None]


class AnyDesk(Protocol):
    """A Desk, or what stands for one in another process (courier.py).

    Attributes:
        effort: what it costs the recorded process.
    """

    effort: Effort

    @property
    def is_quick(self) -> bool:
        """Is it a matter of a microsecond or two to hand a record over?"""

    @property
    def let_go(self) -> int:
        """How many spans were not kept, where only the last were wanted."""

    def take(self, records: Sequence[AnyRecord], pause: Pause) -> None:
        """Write these, which have ended in this order; `pause` now and then."""

    def look(self, lasting: Mapping[int, Open | Made]) -> None:
        """Some five times a second: these calls have been under way for a while."""

    def end(self, ended: int, last: Record | None, under_way: Mapping[int, Open | Made]) -> None:
        """There will be no other record: the recording ended at this time, with the script's own record, if this is the
        script's process, while these calls were under way."""

    def told(self) -> dict[str, Any]:
        """What run.json says of this process: see `Desk.told`."""


class Desk:
    """Writes the records of one process."""

    def __init__(self, assigned: Assignment) -> None:
        builder, ring, tell = assigned.builder, assigned.ring, assigned.tell
        self.effort = Effort()
        self._builder = builder
        self._listeners = assigned.listeners
        self._tell = tell
        self._scribe = Scribe(builder, assigned.listeners, tell)
        self._withheld = Withheld(builder.origin[0], builder.told_open)
        self._opening = opening(assigned.process, __version__)
        file = assigned.file
        self._file = TraceFile(file) if ring is None else RingFile(file, ring, builder.told_open.clear)

    @property
    def let_go(self) -> int:
        """How many spans were not kept."""
        return self._file.let_go

    @property
    def is_quick(self) -> bool:
        """No: it makes spans of them."""
        return False

    def told(self) -> dict[str, Any]:
        """How many calls ended, how long they took to capture what is told of them, and the spans written; of how many
        steps more is told than requests and steps, if not of all."""
        builder = self._builder
        told = {"calls": builder.calls, "capture_ns": builder.capture_ns, "spans": self.effort.spans}
        return {**told, "deep_steps": builder.ledger.deep_steps}

    def take(self, records: Sequence[AnyRecord], pause: Pause) -> None:
        """Write these records."""
        written = Written()
        first, size = 0, pause()
        while first < len(records):
            self._listeners.hear(self._scribe.write(records[first : first + size], written))
            first += size
            size = pause()
        self._write(self._withheld.release(written))

    def look(self, lasting: Mapping[int, Open | Made]) -> None:
        """Tell of calls that last, and write what has waited for that."""
        self._write_unfinished(lasting)
        self._withheld.look()
        self._write(self._withheld.release(Written()))

    def end(self, ended: int, last: Record | None, under_way: Mapping[int, Open | Made]) -> None:
        """Write all that is left; `under_way` are calls in threads that outlive the recording."""
        written = Written()
        self._listeners.hear(self._scribe.write_spans(self._last_spans(ended, last), written))
        self._write([*self._withheld.rest(), *written.texts])
        self._to_file(self._file.settle)
        self._write_unfinished(under_way)
        self._file.close()
        if unkept := self._builder.notes.let_go:
            self._tell(f"{unkept:,} attributes, events or links told of calls under way were too many to keep")

    def cut_off(self) -> None:
        """Write all that has waited: the process was killed."""
        self._write(self._withheld.rest())
        self._to_file(self._file.settle)
        self._file.close()

    def _last_spans(self, ended: int, last: Record | None) -> Iterator[Span]:
        yield from self._builder.close(ended)
        if last is not None:
            yield from self._builder.build(last)

    def _write_unfinished(self, calls: Mapping[int, Open | Made]) -> None:
        """Tell once of calls, and of requests, that have not ended."""
        written = Written()
        self._scribe.write_spans(self._builder.unfinished(calls), written)
        self._write(written.texts, ended=False)

    def _write(self, texts: Sequence[str], ended: bool = True) -> None:
        size = _SPANS_IN_A_LINE
        parts = [texts[first : first + size] for first in range(0, len(texts), size)]
        lines = [Line(line(self._opening, part), len(part) if ended else 0) for part in parts]
        self.effort.spans += sum(one.spans for one in lines)
        self._to_file(partial(self._file.write, lines))

    def _to_file(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as error:
            self._tell(f"{self._file.path} cannot be written ({error.strerror}): part of this run is not recorded")


def no_pause() -> int:
    """For a process in which nobody else wants to run."""
    return 1024
