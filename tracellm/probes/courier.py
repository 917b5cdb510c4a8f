"""Stands for a desk that is in another process: packs the records, sends them there, and hears what comes back.

So what is done here for a call is to pack its record, a microsecond's work; spans are made of it beside the program,
at the lowest priority. That process is one for each that is recorded. It outlives it for as long as it has something to
write, so a program that is killed loses no more than what it had not packed. It is nobody's child: some kill a process
with all its children, and their children.
"""

import errno
import os
import pickle
import select
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracellm.probes.descriptor import Descriptor
from tracellm.probes.desk import AnyDesk, AnyRecord, Assignment, Desk, Pause, no_pause
from tracellm.probes.effort import Effort
from tracellm.probes.parcel import Packer, Unpacker
from tracellm.probes.spool import SpoolReader, SpoolWriter
from tracellm.probes.state import Made, Open, Record

__all__ = ["SIZE", "Courier"]

_CODE = """
import os, sys
if os.fork():
    os._exit(0)
own, others, *spool = sys.argv[1:]
sys.path[:0] = [own]
sys.path += [one for one in others.split(os.pathsep) if one and one not in sys.path]
from tracellm.probes.desk_process import main
main(*spool)
"""

SIZE = struct.Struct("<I")
"""The size of each answer, which stands before it."""

_AT_ONCE = 4  # records are packed in the time that it takes to make a span of one

_LONGEST_START_SECONDS = 10.0

_NOT_STARTED = "no process could be started to write this recording, so the recorded one did, and took longer for it"
_KILLED = "the process that wrote this recording was killed: what it had not written yet is missing"
_CLOSED = "the program closed the files of its recording: what it did just then is missing"

_SET_PIPE_SIZE, _PIPE_SIZE = 1031, 1 << 20  # of Linux: so many bytes of answers may wait until they are read


class Courier:
    """Stands for the desk that has this assignment; `mistakes` is told what probes did wrong.

    `locks` are open files whose locks the other process is to hold, too, for as long as it writes.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, assigned: Assignment, mistakes: list[Any], locks: Sequence[int] = ()) -> None:
        file, process, builder, listeners, ring, tell = self._assigned = assigned
        self.effort = Effort()
        self._listeners = listeners
        self._tell = tell
        self._mistakes = mistakes
        self._packer = Packer(builder, tell)
        self._own: AnyDesk | None = None  # once the other process is no more
        self._said: dict[str, Any] = {}
        self._asked = 0  # how often it was asked to say what it has done
        self._answers = bytearray()
        file.parent.mkdir(parents=True, exist_ok=True)
        self._spool = SpoolWriter(file.parent, file.stem)
        self._read_spool = lambda: SpoolReader(file.parent, file.stem)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: list[Descriptor] = []
        ears = (listeners.names,) if listeners else ()
        self._spool.write(self._packer.pack("begin", str(file), process, builder.described(), ears, ring))
        try:
            self._start(str(file.parent), file.stem, locks=locks)
        except OSError as error:
            self._do_without(f"{_NOT_STARTED} ({error.strerror})")
            self._spool.remove()

    def _start(self, *spool: str, locks: Sequence[int]) -> None:
        if not sys.executable:
            raise OSError(errno.ENOENT, "sys.executable is not set")
        own = str(Path(__file__).parents[2])  # where this package is; the script's own folder comes last
        others = os.pathsep.join(one for one in sys.path if os.path.isabs(one))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACELLM_")}
        self._process = process = subprocess.Popen(
            # Isolated: what is set up to watch the user's program must not watch this one.
            [sys.executable, "-I", "-c", _CODE, own, others, *spool],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=locks,
            process_group=0,  # Ctrl-C is meant for the run, which then ends this
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:  # these would close their numbers whosever they are by then
            self._pipes = [Descriptor(os.dup(one.fileno())) for one in (process.stdin, process.stdout)]
        self._wakes, self._hears = self._pipes
        os.set_blocking(self._wakes.number, False)
        os.set_blocking(self._hears.number, False)
        if sys.platform == "linux":
            import fcntl

            with suppress(OSError):
                fcntl.fcntl(self._hears.number, _SET_PIPE_SIZE, _PIPE_SIZE)

    def wait_for_start(self) -> None:
        """Until the only child has ended that this process has for it: a program that waits for any child of its own
        must not find it."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LONGEST_START_SECONDS)

    @property
    def let_go(self) -> int:
        """How many spans were not kept."""
        return self._own.let_go if self._own is not None else int(self._said.get("let_go", 0))

    @property
    def is_quick(self) -> bool:
        """Yes, as long as it only packs them."""
        return self._own is None

    def told(self) -> dict[str, Any]:
        """What the desk says of itself, as far as it is known."""
        return {**self._said, **(self._own.told() if self._own is not None else {})}

    def take(self, records: Sequence[AnyRecord], pause: Pause) -> None:
        """Send these records."""
        if self._own is not None:
            self._own.take(records, pause)
            return
        first, size = 0, _AT_ONCE * pause()
        while first < len(records):
            self._send(self._packer.pack_records(records[first : first + size]))
            first += size
            size = _AT_ONCE * pause()

    def look(self, lasting: Mapping[int, Open | Made]) -> None:
        """Send which calls last, have all of it read, and hear what the desk has to say."""
        if self._own is not None:
            self._own.look(lasting)
            return
        self._send(self._packer.pack("look", self._packer.sendable_calls(lasting)))
        assert self._process is not None
        self._process.poll()
        try:
            self._wake()
            if not self._hear():
                self._go_on_alone()
        except OSError:
            self._do_without(_CLOSED)

    def wait_until_read(self, seconds: float) -> None:
        """Until all that was sent is written, and told of by `told`; not longer than so many seconds."""
        if self._own is not None:
            return
        self._asked += 1
        deadline = time.monotonic() + seconds
        self._send(self._packer.pack("say", self._asked))
        with suppress(OSError):  # of which the next look will tell
            self._wake()
            answers = select.poll()
            answers.register(self._hears.number, select.POLLIN)
            while self._hear() and self._said.get("asked") != self._asked:
                if (left := deadline - time.monotonic()) <= 0:
                    break
                answers.poll(left * 1000)

    def end(self, ended: int, last: Record | None, under_way: Mapping[int, Open | Made]) -> None:
        """Send that this is the end, and wait until all is written."""
        if self._own is None:
            self._send(self._packer.pack("end", ended, last, self._packer.sendable_calls(under_way)))
            try:
                self._wait_for_end()
            except KeyboardInterrupt:  # whoever does not want to wait need not
                self._tell("it was interrupted while the last spans were being written: some may be missing here")
                self.forget()
                return
            except OSError:
                self._do_without(_CLOSED)
            if self._said.get("ended"):
                self.forget()
                return
            if self._own is None:
                self._go_on_alone()
        assert self._own is not None
        self._own.end(ended, last, under_way)

    def forget(self) -> None:
        """Leave the other process alone; also for a fork of this one, which is not the one to end it."""
        self._spool.close()
        if self._process is not None:
            self._process.returncode = self._process.poll() or 0  # else its end would be waited for
        for pipe in self._pipes:
            pipe.close()

    def _send(self, message: bytes) -> None:
        try:
            self._spool.write(message)
        except OSError as error:
            self._packer.forget_probes()
            self._tell(f"the recording cannot be written ({error.strerror}): part of this run is not recorded")

    def _wake(self) -> None:
        """Have all that was sent read."""
        with suppress(BlockingIOError, BrokenPipeError):  # it has much to do, and will look; or it is no more
            os.write(self._wakes.number, b".")

    def _hear(self) -> bool:
        """Read what the desk has said; False when it will say nothing more."""
        goes_on = True
        with suppress(BlockingIOError):
            while part := os.read(self._hears.number, _PIPE_SIZE):
                self._answers += part
            goes_on = False
        begin = 0
        while len(self._answers) >= begin + SIZE.size:
            (size,) = SIZE.unpack_from(self._answers, begin)
            end = begin + SIZE.size + size
            if len(self._answers) < end:
                break
            self._hear_one(bytes(self._answers[begin + SIZE.size : end]))
            begin = end
        del self._answers[:begin]
        return goes_on

    def _hear_one(self, answer: bytes) -> None:
        spans, said = pickle.loads(answer)
        self._listeners.hear(spans)
        self._said = said
        self._mistakes += [one for one in said["mistakes"] if one not in self._mistakes]
        for problem in said["problems"]:
            self._tell(problem)

    def _wait_for_end(self) -> None:
        self._spool.close()
        self._wake()  # its stdin may not end: a fork that was made in C has it, too
        self._wakes.close()
        os.set_blocking(self._hears.number, True)
        self._hear()
        assert self._process is not None
        self._process.wait()

    def _go_on_alone(self) -> None:
        """The other process is no more. What it has not begun to read is written by this one, as is what comes now."""
        try:
            spool = self._read_spool()
        except OSError:
            self._do_without(_KILLED)
            self._spool.remove()
            return
        own = self._do_without(_NOT_STARTED)
        unpacker = Unpacker(self._mistakes)
        for message in iter(spool.read, None):
            kind, *content = unpacker.unpack(message)
            if kind == "take":
                own.take(content[0], no_pause)
        spool.close()
        self._spool.remove()

    def _do_without(self, problem: str) -> AnyDesk:
        """What comes now is written by this process."""
        self._tell(problem)
        self.forget()
        self._own = Desk(self._assigned)
        self._own.effort = self.effort
        return self._own
