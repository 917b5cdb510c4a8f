"""The thread that turns records into spans and writes them, and the buffer between it and the probed calls.

Every probed call of every thread appends to one list; appending and cutting off its front are each a single operation
that no other thread can interrupt, so nothing is locked and nothing is dropped. The order in the list is the order in
which calls ended. Should the list grow too long, those who append wait (gate.py). The file is written a whole line at a
time, and calls that last are told of before they end, so that a run that is killed loses what it did in the last moment
and no more.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tracellm.probes.build import Builder
from tracellm.probes.effort import Effort
from tracellm.probes.gate import Gate
from tracellm.probes.listeners import Listener, Listeners
from tracellm.probes.ring import RingFile
from tracellm.probes.scribe import Scribe, Written
from tracellm.probes.state import Made, Note, Open, Record, Told, state
from tracellm.probes.trace_file import Line, TraceFile
from tracellm.probes.withheld import Withheld
from tracellm.trace.model import Process, Span
from tracellm.trace.otlp.encoding import line, opening

__all__ = ["Writer"]

FLUSH_SECONDS = 0.2
_SPANS_IN_A_LINE = 64
_CHUNK = 1024  # records that are written to the file in one go
_SLICE = 128  # records made to text without a pause: under the interpreter's lock, a pause lets the engine go on ...
_PAUSE_SECONDS = 0.0005
_BEHIND = 4096  # ... though not at once: whoever has it keeps it for 5 ms. With so many to do, there are fewer pauses
_FULL = 32_768  # records: with so many, those who make more wait until half of them are written


class Writer:
    """Owns the buffer, the thread and the file of one process.

    In its thread `listeners` hear of the spans that have ended, in the order in which they end, and `each_round` is
    called whenever it has looked whether there is something to write. With `ring` only the last so many spans are kept.

    Attributes:
        buffer: where records go.
        problems: what went wrong, for people.
        effort: what writing costs.
    """

    def __init__(
        self,
        file: Path,
        process: Process,
        builder: Builder,
        listeners: Iterable[Listener],
        version: str,
        each_round: Callable[[], None] | None = None,
        ring: int | None = None,
    ) -> None:
        self.buffer: list[Record | Note | Made | Told] = []
        self.problems: list[str] = []
        self.effort = Effort()
        self._builder = builder
        self._listeners = Listeners(listeners, self._tell)
        self._scribe = Scribe(builder, self._listeners, self._tell)
        self._withheld = Withheld(builder.origin[0], builder.told_open)
        self._opening = opening(process, version)
        self._file = TraceFile(file) if ring is None else RingFile(file, ring, builder.told_open.clear)
        self._each_round = each_round
        self._under_way: Collection[int] = ()  # calls that had not ended when this was last looked at
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracellm-writer", daemon=True)
        self._gate = Gate(self.buffer, self._thread)

    def start(self) -> None:
        """Begin to write in the background."""
        self._thread.start()

    def stop(self, last: Callable[[], Iterable[Span]]) -> None:
        """Write all that is left, then the spans that `last` makes, and end the thread."""
        self._stopping.set()
        self._gate.open()
        self._thread.join()
        with self.effort.spent():
            self._listeners.look()  # others may have come and gone since the last look
            self.catch_up()
            self._write_spans(last(), self._withheld.rest())
            self._to_file(self._file.settle)
            self._write_unfinished(state.open)  # in threads that outlive the recording
            self._listeners.end()
            self._file.close()

    @property
    def stats(self) -> dict[str, float]:
        """What run.json says of the writer."""
        return self.effort.told(self._gate.held_up_ns)

    @property
    def let_go(self) -> int:
        """How many spans were not kept, where only the last were wanted."""
        return self._file.let_go

    def _run(self) -> None:
        behind = False
        while not self._stopping.wait(0 if behind else FLUSH_SECONDS):
            try:
                with self.effort.spent():
                    self.catch_up()
                    self._look()
            except Exception as error:  # what comes after it is still to be written
                self._tell(f"part of this run is not recorded: {type(error).__name__}: {error}")
            behind = len(self.buffer) > _BEHIND

    def catch_up(self) -> None:
        """Write what is in the buffer now; what comes meanwhile waits."""
        left = len(self.buffer)
        while left > 0:
            chunk = self.buffer[: min(left, _CHUNK)]
            del self.buffer[: len(chunk)]
            left -= len(chunk)
            written = Written()
            size = _SLICE if len(self.buffer) < _BEHIND else _CHUNK
            for first in range(0, len(chunk), size):
                self._listeners.hear(self._scribe.write(chunk[first : first + size], written))
                self._pause()
            self._write(self._withheld.release(written))

    def _pause(self) -> None:
        """Let the others run, and see whether they are not too fast for this thread."""
        if self._stopping.is_set():
            return
        waiting = len(self.buffer)
        if waiting > _FULL:
            self._gate.close()
        elif waiting < _FULL // 2:
            self._gate.open()
        self.effort.lets_go()
        time.sleep(_PAUSE_SECONDS if waiting < _BEHIND else 0)
        self.effort.goes_on()

    def _look(self) -> None:
        """Tell of calls that were under way already at the last look, and write what has waited for that."""
        under_way = state.open.copy()  # in one piece: a dict's copy cannot be interrupted by a probed call
        lasting = {call: one for call, one in under_way.items() if call in self._under_way}
        self._under_way = under_way.keys()
        self._write_unfinished(lasting)
        self._withheld.look()
        self._write(self._withheld.release(Written()))
        self._listeners.look()
        if self._each_round is not None:
            self._each_round()

    def _write_spans(self, spans: Iterable[Span], before: list[str]) -> None:
        """Write these spans, which have ended, after the texts `before` them."""
        written = Written()
        self._listeners.hear(self._scribe.write_spans(spans, written))
        self._write([*before, *written.texts])

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

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
