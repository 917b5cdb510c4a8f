"""The recorder of a process: the buffer that probed calls append to, and its way into the record file.

Each probed call of each thread appends one tuple to one list, which no other thread can interrupt: nothing is locked
and nothing is lost. Whoever ends an engine step encodes what is there and appends it to the file, some 0.3 us a call; a
thread does so five times a second where no step ends. That thread also writes which calls last, and sees to all that
can wait (`each_round`).

The buffer is bounded: while the file cannot be written, as on a full disk, records wait in it; beyond `_MOST_WAITING`
they are lost, and counted. Where the disk is slow, the engine leaves writing to the thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from tracellm.probes.context.call_context import RECORDING, USER_SPAN, Record, find_thread_context, state
from tracellm.probes.record.definitions import define_place, define_site
from tracellm.probes.record.record_file import DEFINITIONS, END, HEADER, OPEN, RECORDS, Header, RecordFile, encode
from tracellm.probes.wrapping.probe import site_numbered

__all__ = ["FLUSH_SECONDS", "Recorder"]

FLUSH_SECONDS = 0.2
_MOST_AT_ONCE = 16_384  # records in a frame: encoding holds the interpreter's lock
_MOST_WAITING = 500_000  # records, some 150 MB
_SLOW_SECONDS = 0.1  # a write that takes longer is left to the thread from then on
_LONGEST_END_SECONDS = 10.0

_site_of, _place_of = itemgetter(0), itemgetter(3)


class Recorder:
    """Owns the buffer, the file and the thread of one process.

    With `ring`, only the last so many calls are kept, or up to twice as many. `each_round` is called five times a
    second in the recorder's thread; `tell` is given a problem, for people.

    Attributes:
        buffer: where records go.
        batches: what was written and nobody has taken yet, if it `keeps_batches` for somebody.
        calls: records written so far.
        lost: calls that are not recorded, as the file could not be written.
        let_go: calls that a ring has let go.
        bytes: size of all that was written.
        steps: engine steps that have ended.
        seconds: processor time spent writing.
        longest_seconds: longest time that an engine waited for it.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        ring: int | None,
        each_round: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        self.buffer: list[Record] = []
        self.batches: deque[list[Record]] = deque()
        self.keeps_batches = False
        self.calls = self.lost = self.let_go = self.bytes = self.steps = 0
        self.seconds = self.longest_seconds = 0.0
        self.path = path
        self._header = header
        self._ring = ring
        self._each_round = each_round
        self._tell = tell
        self._file: RecordFile | None = None
        self._segments = [0, 0]  # first record of the segment before, and of this one
        self._steps_written = 0  # counted for a ring, whose segments begin with it
        self._step_sites: set[int] = set()
        self._sites: set[int] = set()  # defined in this segment
        self._places: set[int] = set()
        self._open: set[int] = set()  # calls that were written as lasting
        self._seen: Collection[int] = ()  # calls that were under way at the last round
        self._writing = threading.Lock()
        self._is_slow = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracellm-recorder", daemon=True)
        self._append = self.buffer.append

    def start(self, begin_file: bool = True) -> None:
        """Begin to write in the background; the file begins at once, or when there is something to write.

        Raises:
            OSError: the file cannot be made.
        """
        if begin_file:
            self._file = self._new_file()
        self._thread.start()

    def abandon(self) -> None:
        """Remove the file: there is no recording after all."""
        self._stopping.set()
        if self._file is not None:
            self._file.close()
            self._file.path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Leave the file alone: this is a fork of the process whose file it is."""
        if self._file is not None:
            self._file.close()

    @property
    def is_idle(self) -> bool:
        """Whether nothing was recorded yet."""
        return not (self.calls or self.buffer or state.open)

    def step_ended(self, parent: int) -> None:
        """Write what was recorded until the end of a step that was called from `parent`."""
        self.steps += 1
        if self._is_slow:
            return
        clock = state.clock
        start = clock()
        if self.flush(wait=False):
            end = clock()
            self.longest_seconds = max(self.longest_seconds, (end - start) / 1e9)
            self._append((RECORDING, 0, parent, 0, start, end, None, None))

    def flush(self, wait: bool = True) -> bool:
        """Write what is in the buffer now; False if another thread is writing, and `wait` is false."""
        if not wait and self._writing.locked():
            return False
        with self._writing:
            begin = time.thread_time()
            left = len(self.buffer)
            while left > 0 and (count := self._flush(min(left, self._most_at_once()))):
                left -= count
            self.seconds += time.thread_time() - begin
        return True

    def stop(self, ended: int, last: Record | None) -> bool:
        """Write all that is left, with the script's own record, and end the thread.

        False if the disk did not take it in time: the end is missing.
        """
        self._stopping.set()
        if last is not None:
            self.buffer.append(last)
        finish = threading.Thread(target=self._finish, args=(ended,), name="tracellm-end", daemon=True)
        try:
            finish.start()
        except RuntimeError:  # the interpreter starts no threads any more
            self._finish(ended)
            return True
        finish.join(_LONGEST_END_SECONDS)
        if finish.is_alive():
            self._tell(f"the disk did not take the end of the recording within {_LONGEST_END_SECONDS:.0f} s")
            return False
        return True

    # -- inside --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(FLUSH_SECONDS):
            try:
                self.flush()
                self.write_open()
                self._each_round()
            except Exception as error:  # what comes after it is still to be written
                self._tell(f"part of this run is not recorded: {type(error).__name__}: {error}")

    def _finish(self, ended: int) -> None:
        self._thread.join()
        try:
            self.flush()
            self.write_open(least_age=0)
            with self._writing:
                if self.buffer:
                    self.lost += len(self.buffer)
                    self._tell(f"{len(self.buffer):,} calls are not recorded")
                if self._file is not None:
                    self._file.append(encode(END, ended))
        except OSError as error:
            self._cannot_write(error)
        except Exception as error:
            self._tell(f"part of this run is not recorded: {type(error).__name__}: {error}")
        finally:
            if self._file is not None:
                self._file.close()

    def _most_at_once(self) -> int:
        """The most records of the next frame: a ring's segment takes so many and no more."""
        if self._ring is None:
            return _MOST_AT_ONCE
        room = self._ring - (self.calls - self._segments[1])
        return min(_MOST_AT_ONCE, room if room > 0 else self._ring)

    def _flush(self, count: int) -> int:
        """Write so many records from the front of the buffer; return their number, 0 if they cannot be written now."""
        records = self.buffer[:count]
        if state.append == self._append:  # the disk may not answer
            state.append = self._append_bounded
        try:
            self._write(records)
        except OSError as error:
            self._cannot_write(error)
            return 0
        except Exception as error:  # a fault of this program must not disturb the engine, nor come again
            self._tell(f"{count:,} calls are not recorded: {type(error).__name__}: {error}")
            self.lost += count
            del self.buffer[:count]
            return count
        finally:
            if state.append == self._append_bounded:
                state.append = self._append
        # Ctrl-C strikes between calls, so not between these two: a frame that is written twice has the same number.
        self.calls += count
        del self.buffer[:count]
        if self._ring is not None:
            self._steps_written += sum(record[0] in self._step_sites for record in records)
        if self.keeps_batches:
            self.batches.append(records)
        return count

    def _write(self, records: list[Record]) -> None:
        file = self._file
        if file is None or (self._ring is not None and self.calls - self._segments[1] >= self._ring):
            file = self._rotate()
        sites, places = set(map(_site_of, records)), set(map(_place_of, records))
        self._append_frame(file, sites, places, self._encoded(records))

    def _encoded(self, records: list[Record]) -> bytes:
        try:
            return encode(RECORDS, self.calls, records)
        except Exception:  # a number of more than 64 bits, half of a surrogate pair, an endless structure
            return encode(RECORDS, self.calls, [_encodable(record) for record in records])

    def _append_frame(self, file: RecordFile, sites: set[int], places: set[int], frame: bytes) -> None:
        """Append a frame, and before it the meaning of its sites and places where this segment does not define them."""
        sites -= self._sites
        places -= self._places
        frames = [frame]
        if sites or places:
            new_sites = [(number, define_site(site_numbered(number))) for number in sites if number >= 0]
            new_places = [(number, define_place(find_thread_context(number))) for number in places]
            frames.insert(0, encode(DEFINITIONS, new_sites, new_places))
        before, begin = file.size, time.monotonic()
        file.append(*frames)
        self._is_slow = time.monotonic() - begin > _SLOW_SECONDS
        self.bytes += file.size - before
        self._sites |= sites
        self._places |= places
        self._step_sites.update(number for number in sites if number >= 0 and site_numbered(number).probe.is_step)

    def write_open(self, least_age: int = 1) -> None:
        """Write calls that last: those that were under way already at the last round, or all for a `least_age` of 0."""
        open_calls = state.open.copy()  # in one piece: a dict's copy cannot be interrupted by a probed call
        lasting = {call: one for call, one in open_calls.items() if call in self._seen or not least_age}
        self._seen = open_calls.keys()
        self._open &= open_calls.keys()
        new = []
        for call in lasting.keys() - self._open:
            one = lasting[call]
            new.append((call, *one, None) if isinstance(one, tuple) else (call, USER_SPAN, 0, 0, 0, one()))
        if not new:
            return
        with self._writing:
            if self._file is None:
                self._file = self._rotate()
            sites, places = {one[1] for one in new}, {one[3] for one in new}
            self._append_frame(self._file, sites, places, encode(OPEN, new))
            self._open |= {one[0] for one in new}

    def _rotate(self) -> RecordFile:
        """Begin a new segment, and let go of the one before the last."""
        if self._file is not None:
            self._file.set_aside()
            self._file = None
            self.let_go = self._segments[1]
        self._segments = [self._segments[1], self.calls]
        self._header.steps = self._steps_written
        state.segment += 1
        self._file = file = self._new_file()
        self._sites.clear()
        self._places.clear()
        self._open.clear()
        return file

    def _new_file(self) -> RecordFile:
        file = RecordFile(self.path)
        file.append(encode(HEADER, self._header))
        return file

    def _append_bounded(self, record: Record) -> None:
        if len(self.buffer) < _MOST_WAITING:
            self._append(record)
        else:
            self.lost += 1

    def _cannot_write(self, error: OSError) -> None:
        self._tell(f"the recording cannot be written ({error.strerror}): part of this run may be missing")
        surplus = len(self.buffer) - _MOST_WAITING
        if surplus > 0:
            del self.buffer[:surplus]
            self.lost += surplus


def _encodable(record: Record) -> Record:
    """The record as it is if it can be encoded, else with its facts in words."""
    *begin, facts, error = record
    return (*begin, _facts_in_words(facts), _facts_in_words(error))


def _facts_in_words(value: Any, depth: int = 20) -> Any:
    try:
        msgspec.msgpack.encode(value)
    except Exception:
        if isinstance(value, tuple | list) and depth:
            return [_facts_in_words(one, depth - 1) for one in value]
        if isinstance(value, dict) and depth:
            return {str(name): _facts_in_words(one, depth - 1) for name, one in value.items()}
        if isinstance(value, float | int):
            return float(value) if abs(value) < 1e300 else str(value)[:100]
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
        return f"<{type(value).__name__}>"
    return value
