"""The thread that turns records into spans and writes them, and the buffer between it and the probed calls.

Every probed call of every thread appends to one list; appending and cutting off its front are each a single operation
that no other thread can interrupt, so nothing is locked and nothing is dropped. The order in the list is the order in
which calls ended. The file is written a whole line at a time, and calls that last are told of before they end, so that
a run that is killed loses what it did in the last moment and no more.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from tracellm.probes.build import Builder
from tracellm.probes.listeners import Listener, Listeners
from tracellm.probes.state import Made, Note, Record, state
from tracellm.probes.withheld import Withheld
from tracellm.trace import otlp
from tracellm.trace.model import Process, Span

__all__ = ["Writer"]

FLUSH_SECONDS = 0.2
_SLICE = 64  # records built without a pause: under the interpreter's lock, a pause lets the engine go on
_PAUSE_SECONDS = 0.0005


class Writer:
    """Owns the buffer, the thread and the file of one process.

    In its thread `listeners` hear of the spans that have ended, in the order in which they end, and `each_round` is
    called whenever it has looked whether there is something to write.
    """

    def __init__(
        self,
        file: Path,
        process: Process,
        builder: Builder,
        listeners: Iterable[Listener],
        version: str,
        each_round: Callable[[], None] | None = None,
    ) -> None:
        self.buffer: list[Record | Note | Made] = []
        self.problems: list[str] = []
        self._file = file
        self._descriptor: int | None = None
        self._process = process
        self._builder = builder
        self._listeners = Listeners(listeners, self._tell)
        self._version = version
        self._each_round = each_round
        self._withheld = Withheld(builder.is_told)
        self._under_way: Collection[int] = ()  # calls that had not ended when this was last looked at
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracellm-writer", daemon=True)

    def start(self) -> None:
        """Begin to write in the background."""
        self._thread.start()

    def stop(self, last: Callable[[], Iterable[Span]]) -> None:
        """Write all that is left, then the spans that `last` makes, and end the thread."""
        self._stopping.set()
        self._thread.join()
        self._listeners.look()  # others may have come and gone since the last look
        spans, ending = self._drain(pause=False), list(last())
        self._listeners.hear(ending)
        open_still = self._builder.unfinished(state.open)  # in threads that outlive the recording
        self._write([*self._withheld.rest(), *spans, *ending, *open_still])
        self._listeners.end()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _run(self) -> None:
        while not self._stopping.wait(FLUSH_SECONDS):
            spans = self._drain(pause=True)
            under_way = state.open.copy()  # in one piece: a dict's copy cannot be interrupted by a probed call
            lasting = {call: one for call, one in under_way.items() if call in self._under_way}
            self._under_way = under_way.keys()
            opened = list(self._builder.unfinished(lasting))
            self._write([*opened, *self._withheld.release(spans)], pause=True)
            self._listeners.look()
            if self._each_round is not None:
                self._each_round()

    def _drain(self, pause: bool) -> list[Span]:
        """The spans of what is in the buffer now, which the listeners have heard; what comes meanwhile waits."""
        spans: list[Span] = []
        left = len(self.buffer)
        while left:
            records = self.buffer[: min(left, _SLICE)]
            del self.buffer[: len(records)]
            left -= len(records)
            new = [span for record in records for span in self._builder.build(record)]
            self._listeners.hear(new)
            spans += new
            self._rest(pause)
        return spans

    def _rest(self, pause: bool) -> None:
        if pause and not self._stopping.is_set():
            time.sleep(_PAUSE_SECONDS)

    def _write(self, spans: Sequence[Span], pause: bool = False) -> None:
        """Add lines to the file, all in one go: what belongs together is there together."""
        lines = []
        for first in range(0, len(spans), _SLICE):
            lines.append(self._encoded(spans[first : first + _SLICE]))
            self._rest(pause)
        content = b"".join(lines)
        if not content:
            return
        try:
            if self._descriptor is None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            while content:
                content = content[os.write(self._descriptor, content) :]
        except OSError as error:
            self._tell(f"{self._file} cannot be written ({error.strerror}): part of this run is not recorded")

    def _encoded(self, spans: Sequence[Span]) -> bytes:
        """The spans as lines of the file; one that cannot be written must not take the others with it."""
        try:
            return otlp.encode(self._process, spans, self._version)
        except Exception as error:
            if len(spans) > 1:
                return b"".join(self._encoded([span]) for span in spans)
            self._tell(f"a call of {spans[0].name} cannot be written: {type(error).__name__}")
            return b""

    def _tell(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
