"""The process beside a recorded one in which its spans are made and written.

It has the lowest priority, so that it takes what the engine leaves, and reads what courier.py has packed for it from
files (spool.py): records come as fast as they like. A byte on its stdin says that there is something to read; when its
stdin ends so has the recording, or the recorded process was killed, and all that was packed is still written. On its
stdout it tells of the spans that somebody there wants to hear, and what it has done.
"""

import os
import pickle
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tracellm.probes.build import Builder
from tracellm.probes.courier import SIZE
from tracellm.probes.desk import Assignment, Desk, no_pause
from tracellm.probes.listeners import Listeners
from tracellm.probes.parcel import Unpacker
from tracellm.probes.spool import SpoolReader
from tracellm.trace.model import Process, Span

__all__ = ["main"]

_READ = 65_536
_LOWEST_PRIORITY = 19


class _Ear:
    """Keeps the spans that a listener in the recorded process wants to hear."""

    title = "what is told of spans"

    def __init__(self, names: frozenset[str] | None) -> None:
        self.names = names
        self.heard: list[Span] = []

    def __call__(self, span: Span) -> None:
        self.heard.append(span)

    def look(self) -> None:
        """Nothing to do."""

    def end(self) -> None:
        """Nothing to do."""


class _Clerk:
    """Does what messages say; `answers` is where to tell of it.

    Attributes:
        has_ended: the recording has, and all of it is written.
    """

    def __init__(self, answers: BinaryIO) -> None:
        self._answers: BinaryIO | None = answers
        self._mistakes: list[Any] = []
        self._problems: list[str] = []
        self._unpacker = Unpacker(self._mistakes)
        self._ears: list[_Ear] = []
        self._said: dict[str, Any] = {}
        self._asked = 0
        self.has_ended = False
        self._before = time.process_time()  # to start Python takes more than most runs have to write

    def do(self, message: bytes) -> None:
        """Do what this message says."""
        try:
            kind, *content = self._unpacker.unpack(message)
            getattr(self, f"_{kind}")(*content)
        except Exception as error:  # what comes after it is still to be written
            self._tell(f"part of this run is not recorded: {type(error).__name__}: {error}")

    def end(self) -> None:
        """There will be no other message."""
        if not self.has_ended:
            self._desk.cut_off()

    def answer(self) -> None:
        """Tell what was heard, and what has changed."""
        heard = [span for ear in self._ears for span in ear.heard]
        for ear in self._ears:
            ear.heard.clear()
        said = {
            **self._desk.told(),
            "let_go": self._desk.let_go,
            "seconds": time.process_time() - self._before,
            "ended": self.has_ended,
            "asked": self._asked,
        }
        said |= {"mistakes": [*self._mistakes], "problems": [*self._problems]}
        is_news = heard or self.has_ended or any(said[one] != self._said.get(one) for one in ("spans", "asked"))
        if self._answers is None or not is_news:
            return
        self._said = said
        content = pickle.dumps((heard, said), 5)
        try:
            self._answers.write(SIZE.pack(len(content)) + content)
            self._answers.flush()
        except OSError:  # nobody is there any more to hear it
            self._answers = None

    def _begin(
        self,
        file: str,
        process: Process,
        described: dict[str, Any],
        ears: tuple[frozenset[str] | None, ...],
        ring: int | None,
    ) -> None:
        self._ears = [_Ear(names) for names in ears]
        builder, listeners = Builder.as_described(described), Listeners(self._ears, self._tell)
        self._desk = Desk(Assignment(Path(file), process, builder, listeners, ring, self._tell))

    def _take(self, records: list[Any]) -> None:
        self._desk.take(records, no_pause)

    def _look(self, lasting: dict[int, Any]) -> None:
        self._desk.look(lasting)
        self.answer()

    def _say(self, asked: int) -> None:
        self._asked = asked
        self.answer()

    def _end(self, ended: int, last: Any, under_way: dict[int, Any]) -> None:
        self._desk.end(ended, last, under_way)
        self.has_ended = True

    def _tell(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)


def main(folder: str, name: str) -> None:
    """The process's life: until the recording or its stdin ends, and all that is in the spool of this name is done."""
    with suppress(OSError):
        os.nice(_LOWEST_PRIORITY)
    spool, clerk = SpoolReader(Path(folder), name), _Clerk(sys.stdout.buffer)
    goes_on = True
    while goes_on and not clerk.has_ended:
        goes_on = bool(os.read(sys.stdin.fileno(), _READ))
        while (message := spool.read()) is not None:
            clerk.do(message)
    clerk.end()
    clerk.answer()
    spool.close()
