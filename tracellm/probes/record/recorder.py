"""The recorder of a process: the buffer that probed calls append to, and its writing to the record file.

Each probed call of each thread appends one tuple to one list, without a lock. The thread that ends an engine step
encodes the buffer and appends it to the file, at some 0.3 us a call. The recorder's own thread does the same five times
a second if no step ends. It also records which calls are under way, and runs all work that can wait (`each_round`).

The buffer is bounded: on a full disk `_MOST_WAITING` records wait, and more are lost and counted. On a slow disk the
engine leaves writing to the thread.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from tracellm.probes.context.call_context import (
    RECORDING,
    SUBMITTED,
    USER_SPAN,
    OpenCall,
    Record,
    ThreadContext,
    find_thread_context,
    state,
)
from tracellm.probes.record.record_file import (
    DEFINITIONS,
    END,
    HEADER,
    KEPT,
    OPEN,
    RECORDS,
    Header,
    RecordFile,
    encode,
)
from tracellm.probes.wrapping.probe import Attributes, Site, site_numbered
from tracellm.probes.wrapping.summary import ArgumentAttributes, UserAttributes, VarArgsAttributes

__all__ = ["FLUSH_SECONDS", "Recorder", "define_site", "define_thread"]

FLUSH_SECONDS = 0.2
_MOST_AT_ONCE = 16_384  # records in a frame: encoding holds the interpreter's lock
_MOST_WAITING = 500_000  # records, some 150 MB
_MOST_KEPT_BYTES = 8 << 20  # of submissions that each segment of a ring begins with
_SLOW_SECONDS = 0.1  # after a longer write, only the thread writes
_LONGEST_END_SECONDS = 10.0

_site_of, _thread_of = itemgetter(0), itemgetter(3)


class Recorder:
    """Owns the buffer, the file and the thread of one recorded process; used by `Recording`.

    Args:
        path: the record file.
        header: its header.
        ring: number of last calls to keep; up to twice as many may be kept. None keeps all.
        submissions: targets of the catalog's entries that say how a request was submitted, which a ring keeps longer.
        each_round: called five times a second in the recorder's thread.
        report: called with a problem, as a sentence for the user.

    Attributes:
        buffer: records that are not written yet.
        batches: records that were written, for the live feed; filled only if `keeps_batches`.
        calls: records written.
        lost: calls that could not be written.
        dropped: calls that a ring did not keep.
        bytes: bytes written.
        steps: engine steps that have ended.
        seconds: processor time spent writing.
        longest_seconds: longest time that an engine waited for a write.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        ring: int | None,
        submissions: Collection[str],
        each_round: Callable[[], None],
        report: Callable[[str], None],
    ) -> None:
        self.buffer: list[Record] = []
        self.batches: deque[list[Record]] = deque()
        self.keeps_batches = False
        self.calls = self.lost = self.dropped = self.bytes = self.steps = 0
        self.seconds = self.longest_seconds = 0.0
        self.path = path
        self._header = header
        self._ring = ring
        self._submissions = submissions
        self._each_round = each_round
        self._report = report
        self._file: RecordFile | None = None
        self._begin = 0  # number of this segment's first record
        self._num_before = 0  # records of the segment before
        self._is_setup = ring is not None  # until the first request
        self._steps_written = 0  # of a ring
        self._kept: deque[tuple[Record, bytes]] = deque()
        self._kept_bytes = 0
        self._step_sites: set[int] = set()
        self._kept_sites: set[int] = {SUBMITTED}
        self._sites: set[int] = set()  # defined in this segment
        self._threads: set[int] = set()
        self._open: set[int] = set()  # calls written as under way
        self._writing = threading.Lock()
        self._is_slow = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracellm-recorder", daemon=True)
        self._append = self.buffer.append

    def start(self, begin_file: bool = True) -> None:
        """Start the thread; create the file now, or else with the first record.

        Raises:
            OSError: the file cannot be created.
        """
        if begin_file:
            self._file = self._new_file()
        self._thread.start()

    def abandon(self) -> None:
        """Remove the file, where the recording could not start."""
        self._stopping.set()
        if self._file is not None:
            self._file.close()
            self._file.path.unlink(missing_ok=True)

    def forget(self) -> None:
        """Close the file in a fork of the process that it belongs to."""
        if self._file is not None:
            self._file.close()

    @property
    def is_idle(self) -> bool:
        """True if nothing has been recorded."""
        return not (self.calls or self.buffer or state.open)

    def step_ended(self, parent: int) -> None:
        """Write what was recorded up to the end of a step, whose caller is `parent`."""
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
        """Write the buffer; return False if another thread is writing, and `wait` is false."""
        if not wait and self._writing.locked():
            return False
        with self._writing:
            begin = time.thread_time()
            self._flush_all(len(self.buffer))
            self.seconds += time.thread_time() - begin
        return True

    def write_all(self) -> None:
        """Write the buffer, and the calls under way: written calls then have their callers of requests and steps."""
        with self._writing:
            begin = time.thread_time()
            # The count first: a call that ends in between is written in the next round. In the other order, it would be
            # written as open after its record.
            count, open_calls = len(self.buffer), state.open.copy()
            try:
                if not self._flush_all(count):
                    self._write_open(open_calls)
            except OSError as error:
                self._cannot_write(error)
            self.seconds += time.thread_time() - begin

    def stop(self, ended: int, last: Record | None) -> bool:
        """Write the rest, with the script's own record, and end the thread.

        Return False if the rest could not be written in time: the recording's end is missing.
        """
        self._stopping.set()
        if last is not None:
            self.buffer.append(last)
        finish = threading.Thread(target=self._finish, args=(ended,), name="tracellm-end", daemon=True)
        try:
            finish.start()
        except RuntimeError:  # at interpreter exit no thread can start
            self._finish(ended)
            return True
        finish.join(_LONGEST_END_SECONDS)
        if finish.is_alive():
            self._report(f"the end of the recording could not be written within {_LONGEST_END_SECONDS:.0f} s")
            return False
        return True

    # -- inside --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(FLUSH_SECONDS):
            for work in (self.write_all, self._each_round):
                try:
                    work()
                except Exception as error:  # later records can still be written
                    self._report(f"part of this run is not recorded: {type(error).__name__}: {error}")

    def _finish(self, ended: int) -> None:
        self._thread.join()
        try:
            self.write_all()
            with self._writing:
                # Other threads go on: a call that ends after this was written as an open one.
                if refused := self._flush_all(len(self.buffer)):
                    self.lost += refused
                    self._report(f"{refused:,} calls are not recorded")
                if self._file is not None:
                    self._file.append(encode(END, ended))
        except OSError as error:
            self._cannot_write(error)
        except Exception as error:
            self._report(f"part of this run is not recorded: {type(error).__name__}: {error}")
        finally:
            if self._file is not None:
                self._file.close()

    def _most_at_once(self) -> int:
        """Return the most records of the next frame; a ring's segment holds `ring` records."""
        if self._ring is None:
            return _MOST_AT_ONCE
        available = self._begin + self._ring - self.calls
        return min(_MOST_AT_ONCE, available if available > 0 else self._ring)

    def _flush_all(self, left: int) -> int:
        """Write the first `left` records of the buffer; return how many of them the disk refused."""
        while left > 0 and (count := self._flush(min(left, self._most_at_once()))):
            left -= count
        return min(left, len(self.buffer))

    def _flush(self, count: int) -> int:
        """Write the first `count` records of the buffer; return how many left it, 0 if the disk refused them."""
        records = self.buffer[:count]
        if state.append == self._append:  # the disk may hang
            state.append = self._append_bounded
        try:
            self._write(records)
        except OSError as error:
            self._cannot_write(error)
            return 0
        except Exception as error:  # a fault of tracellm must neither disturb the engine nor repeat
            self._report(f"{count:,} calls are not recorded: {type(error).__name__}: {error}")
            self.lost += count
            del self.buffer[:count]
            return count
        finally:
            if state.append == self._append_bounded:
                state.append = self._append
        # Ctrl-C cannot come between these two statements; a frame written twice has the same number.
        self.calls += count
        del self.buffer[:count]
        if self._ring is not None:
            self._steps_written += sum(record[0] in self._step_sites for record in records)
            self._keep([record for record in records if record[0] in self._kept_sites])
        if self.keeps_batches:
            self.batches.append(records)
        return count

    def _write(self, records: list[Record]) -> None:
        file = self._file
        if file is None or self._is_full():
            file = self._rotate()
        sites, threads = set(map(_site_of, records)), set(map(_thread_of, records))
        frame, begin = self._encoded(records), time.monotonic()
        self._append_frame(file, sites, threads, frame)
        self._is_slow = time.monotonic() - begin > _SLOW_SECONDS

    def _is_full(self) -> bool:
        """Return whether a ring begins a new segment: after `ring` records, and after the setup."""
        if self._ring is None:
            return False
        return self.calls - self._begin >= self._ring or (self._is_setup and bool(self._kept))

    def _encoded(self, records: list[Record]) -> bytes:
        try:
            return encode(RECORDS, self.calls, records)
        except Exception:  # an integer of more than 64 bits, half of a surrogate pair, an endless structure
            return encode(RECORDS, self.calls, [_encodable(record) for record in records])

    def _keep(self, records: list[Record]) -> None:
        """Keep the submissions of requests, which the next segments begin with; the oldest are dropped."""
        for record in records:
            content = encode(*_encodable(record))
            self._kept.append((record, content))
            self._kept_bytes += len(content)
        while self._kept_bytes > _MOST_KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[1])

    def _append_frame(self, file: RecordFile, sites: set[int], threads: set[int], frame: bytes) -> None:
        """Append a frame, after the definitions of its sites and threads that are new in this segment."""
        sites -= self._sites
        threads -= self._threads
        frames = [frame]
        if sites or threads:
            new_sites = [(number, define_site(site_numbered(number))) for number in sites if number >= 0]
            new_threads = [(number, define_thread(find_thread_context(number))) for number in threads]
            frames.insert(0, encode(DEFINITIONS, new_sites, new_threads))
        before = file.size
        file.append(*frames)
        self.bytes += file.size - before
        self._sites |= sites
        self._threads |= threads
        probes = {number: site_numbered(number).probe for number in sites if number >= 0}
        self._step_sites.update(number for number, probe in probes.items() if probe.is_step)
        self._kept_sites.update(number for number, probe in probes.items() if probe.target in self._submissions)

    def _write_open(self, open_calls: dict[int, OpenCall | Callable[[], Any]]) -> None:
        """Write the calls under way that this segment does not have yet.

        Raises:
            OSError: they could not be written.
        """
        self._open &= open_calls.keys()
        new = []
        for call in open_calls.keys() - self._open:
            begun = open_calls[call]
            if isinstance(begun, tuple):
                new.append((call, *begun, None))
            else:
                try:
                    new.append((call, USER_SPAN, 0, 0, 0, _plain_facts(begun())))
                except Exception as error:  # the next round tries again
                    self._report(f"an open span is not recorded: {type(error).__name__}: {error}")
        if not new:
            return
        if self._file is None:
            self._file = self._rotate()
        sites, threads = {record[1] for record in new}, {record[3] for record in new}
        self._append_frame(self._file, sites, threads, encode(OPEN, new))
        self._open |= {record[0] for record in new}

    def _rotate(self) -> RecordFile:
        """Begin a new segment; rename the full one to the setup, or to the one before, which it replaces."""
        if self._file is not None:
            is_setup = self._is_setup and bool(self._kept)
            self._file.set_aside(is_setup)
            self._file = None
            self._is_setup = False
            if not is_setup:
                self.dropped += self._num_before
                self._num_before = self.calls - self._begin
            self._begin = self.calls
        self._header.steps = self._steps_written
        state.segment += 1
        self._file = file = self._new_file()
        self._sites.clear()
        self._threads.clear()
        self._open.clear()
        if self.calls:
            sites, threads = {record[0] for record, _ in self._kept}, {record[3] for record, _ in self._kept}
            kept = [msgspec.Raw(content) for _, content in self._kept]
            self._append_frame(file, sites, threads, encode(KEPT, self.calls, kept))
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
        self._report(f"the recording cannot be written ({error.strerror}): part of this run may be missing")
        surplus = len(self.buffer) - _MOST_WAITING
        if surplus > 0:
            del self.buffer[:surplus]
            self.lost += surplus


def define_site(site: Site) -> dict[str, Any]:
    """Return a site as plain data, without entries that are false, empty or None.

    `facts` is their form: `arguments` and `any` with the parameters' `names`, `user`, or `entry` for the form of the
    catalog's entry `target`. With `where` they are a pair with the user's line; `timed` facts follow the
    nanoseconds that their capture took.
    """
    probe = site.probe
    definition = {
        "name": site.name,
        "attributes": site.attributes,
        "defined": probe.defined,
        **_form(probe.attributes),
        "timed": probe.timed,
        "target": probe.target,
        "gives": probe.gives is not None,
        "observes": probe.observe is not None,
        "user_attributes": dict(probe.users_attributes or {}),
        "in_short": probe.in_short,
        "is_step": probe.is_step,
    }
    return {name: value for name, value in definition.items() if value or name in ("name", "attributes")}


def _form(attributes: Attributes | None) -> dict[str, Any]:
    match attributes:
        case None:
            return {}
        case ArgumentAttributes(names, where):
            return {"facts": "arguments", "names": names, "where": where}
        case VarArgsAttributes(names, where):
            return {"facts": "any", "names": names, "where": where}
        case UserAttributes():
            return {"facts": "user"}
    return {"facts": "entry"}


def define_thread(thread: ThreadContext | None) -> dict[str, Any]:
    """Return a thread context as plain data: the thread's name, None for the main one, and the trace of its calls."""
    if thread is None:
        return {}
    scope = thread.scope
    trace = None if scope is None else (scope.trace_id, scope.parent, scope.recording, scope.outside)
    return {"thread_name": thread.thread_name, "trace": trace}


def _encodable(record: Record) -> Record:
    """Return the record itself if it can be encoded, else one with plain facts."""
    *begin, facts, error = record
    return (*begin, _plain_facts(facts), _plain_facts(error))


def _plain_facts(value: Any, depth: int = 20) -> Any:
    try:
        encode(RECORDS, value)
    except Exception:
        if isinstance(value, tuple | list) and depth:
            return [_plain_facts(item, depth - 1) for item in value]
        if isinstance(value, dict) and depth:
            return {_plain_facts(str(name)): _plain_facts(item, depth - 1) for name, item in value.items()}
        if isinstance(value, float | int):
            return float(value) if abs(value) < 1e300 else str(value)[:100]
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
        return f"<{type(value).__name__}>"
    return value
