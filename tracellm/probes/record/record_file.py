"""The record file of a process: records of its probed calls, appended once a step, and read back for conversion.

    TRACELLM-RECORDS 2\\n
    length (4 bytes, little endian), then so many bytes of MessagePack; and so on

Each frame is an array whose first element is its kind; docs/run-folder.md describes them. Records are the tuples of
context/call_context.py. A killed process leaves at most a torn last frame, which a reader leaves out.

msgspec's MessagePack takes 0.18 us and 48 bytes a record here, `marshal` 0.24 us and 53 bytes, `pickle` 0.48 us
(batches of 70 to 4,096 records of layers, 2.8 GHz Xeon). Unlike these, it is safe to read from an untrusted source.
"""

import os
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from tracellm.probes.context.call_context import ThreadContext
from tracellm.trace.problems import Problem

__all__ = [
    "DEFINITIONS",
    "END",
    "HEADER",
    "KEPT",
    "OPEN",
    "RECORDS",
    "SUFFIX",
    "CallIds",
    "Frame",
    "Header",
    "RawRecord",
    "RecordFile",
    "RecordFileError",
    "RecordReader",
    "check_version",
    "encode",
    "facts_of",
    "record_files",
    "segments_of",
]

SUFFIX = ".records"
_RENAMED = (".setup", ".before")  # earlier segments of a ring, in their order

_VERSION = 2  # in version 1, a summary began with a word instead of a number
_MAGIC = b"TRACELLM-RECORDS %d\n" % _VERSION
_LENGTH = struct.Struct("<I")
HEADER, DEFINITIONS, RECORDS, OPEN, END, KEPT = range(6)
_LONGEST = 1 << 30  # bytes of a frame: a longer one is damage
_MASK = (1 << 64) - 1

RawRecord = tuple[int, int, int, int, int, int, Raw, Any]
"""A record as read, with its facts still encoded."""


class Header(msgspec.Struct, omit_defaults=True):
    """The recorded process, as a reader needs it.

    Attributes:
        process: attributes of the OTLP resource.
        clock: wall-clock and monotonic nanoseconds, read together.
        root: number of the call that stands for the script.
        origins: `[first call, offset]` pairs; a call's span id is its number plus the offset. The last pair is this
            process's, the others belong to the processes that it was forked from.
        trace_id: 32 hexadecimal digits.
        outermost: span id of the parent of outermost calls.
        outside: span id of the script's parent, which is not in the recording; or None.
        text: whether texts of users and models are recorded.
        left_out: subjects (catalog/report_needs.py) that are recorded in part or not at all.
        steps: engine steps before this segment.
    """

    process: dict[str, Any]
    clock: tuple[int, int]
    root: int
    origins: list[tuple[int, int]]
    trace_id: str
    outermost: str
    outside: str | None = None
    text: bool = True
    left_out: list[str] = []
    steps: int = 0


class CallIds:
    """Trace and span ids of a process's calls, computed from their numbers."""

    def __init__(self, header: Header) -> None:
        self.header = header

    def span_id(self, call: int) -> str:
        """Return the span id of a call; for a call of an earlier recording, that of the outermost calls' parent."""
        for first, offset in reversed(self.header.origins):
            if call >= first:
                return f"{call + offset & _MASK:016x}"
        return self.header.outermost

    def parent_of(self, call: int, trace_id: str | None, parent: str | None) -> tuple[str, str | None]:
        """Return the trace id, and the parent's span id, for calls made within `call`.

        `trace_id` is their trace, None for the recording's own; `parent` is the parent of outermost calls in it.
        """
        if trace_id is None:
            return self.header.trace_id, self.span_id(call)
        return trace_id, self.span_id(call) if call >= self.header.root else parent

    def parent_in_thread(self, call: int, thread: ThreadContext | None) -> tuple[str, str | None]:
        """Return the same for calls made within `call` in a thread's context."""
        scope = None if thread is None else thread.scope
        if scope is None or scope.recording != self.header.root:
            return self.parent_of(call, None, None)
        return self.parent_of(call, scope.trace_id, scope.parent)


class Frame(NamedTuple):
    """A frame after the header: its kind and its content."""

    kind: int
    content: Any


class RecordFileError(Exception):
    """The file is not a record file, or has another version; `problem` is the reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def segments_of(path: Path) -> list[Path]:
    """Return the paths that the segments of a record file may have, the oldest first."""
    return [*(path.with_name(f"{path.stem}{name}{path.suffix}") for name in _RENAMED), path]


def record_files(traces: Path) -> dict[Path, list[Path]]:
    """Return every record file in the folder `traces`, with its existing segments, the oldest first."""
    found = sorted(traces.glob(f"*{SUFFIX}"))
    names = [path.stem.removesuffix(_RENAMED[0]).removesuffix(_RENAMED[1]) for path in found]
    files = {traces / f"{name}{SUFFIX}" for name in names}
    return {path: [segment for segment in segments_of(path) if segment in found] for path in sorted(files)}


# -- writing -----------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Return a stand-in for an object that MessagePack has no form for; never raise."""
    kinds: tuple[Any, ...] = (str, int, float, bytes, tuple, list, dict)
    for kind in kinds:
        if isinstance(value, kind):
            return kind(value)
    with suppress(Exception):
        return value.__index__()  # NumPy's integers
    kind_of = type(value)
    return str(value) if kind_of.__module__ == "torch" else f"<{kind_of.__name__}>"


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)


def encode(kind: int, *content: Any) -> bytes:
    """Return a frame without its length.

    Raises:
        Exception: the content cannot be encoded, such as an integer of more than 64 bits.
    """
    return _encoder.encode((kind, *content))


class RecordFile:
    """Appends frames to the file `path`, readable by its owner only; used by the recorder.

    Every frame is written at a known offset, and overwrites one that was interrupted or written in part. A program that
    closes all open files, as daemons do, loses nothing: the file is opened again.

    Raises:
        OSError: the file cannot be created; `append` raises it, too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._descriptor = -1
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open(os.O_CREAT | os.O_TRUNC)
        self._write(_MAGIC)

    def append(self, *frames: bytes) -> None:
        """Append these frames in one write.

        Raises:
            OSError: the write failed or was incomplete; none of the frames counts as written.
        """
        self._write(b"".join([part for frame in frames for part in (_LENGTH.pack(len(frame)), frame)]))

    def set_aside(self, is_setup: bool = False) -> None:
        """Close the file, and rename it to an earlier segment: the setup's, or the one before, which it replaces.

        Raises:
            OSError: the file cannot be renamed.
        """
        self.close()
        setup, before, _ = segments_of(self.path)
        self.path.replace(setup if is_setup else before)

    def close(self) -> None:
        """Close the file, unless the program has."""
        if self._is_own():
            os.close(self._descriptor)
        self._descriptor = -1

    def _write(self, content: bytes) -> None:
        if not self._is_own():
            self._open(0)
        done = 0
        try:
            while done < len(content):
                done += os.pwrite(self._descriptor, content[done:] if done else content, self.size + done)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size += done

    def _open(self, flags: int) -> None:
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
        status = os.fstat(self._descriptor)
        self._file = status.st_dev, status.st_ino

    def _is_own(self) -> bool:
        """Return whether the descriptor still belongs to this file: the program may have reused its number."""
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file


# -- reading -----------------------------------------------------------------------------------------------------------


class Records(msgspec.Struct, array_like=True):
    """Content of a RECORDS or KEPT frame; `first` is the number of its first record in the process."""

    kind: int
    first: int
    records: list[RawRecord]


_decode_records = msgspec.msgpack.Decoder(Records).decode
_decode_header = msgspec.msgpack.Decoder(tuple[int, Header]).decode
_decode_any = msgspec.msgpack.Decoder(list[Any]).decode


class RecordReader:
    """Reads the frames of a record file, also of one that still grows.

    The facts of records stay encoded (`msgspec.Raw`): most repeat, and equal bytes need decoding once.

    Attributes:
        header: the last header read, or None.
        damaged: whether a frame cannot be read; nothing after it is read.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: Header | None = None
        self.damaged = False
        self._stream = path.open("rb")
        self._begun = False

    def frames(self) -> Iterator[Frame]:
        """Yield the complete frames that were not read before.

        Raises:
            RecordFileError: the file is not a record file, or has another version.
        """
        if not self._begun:
            begin = self._stream.read(len(_MAGIC))
            if begin != _MAGIC:
                self._stream.seek(0)
                if _MAGIC.startswith(begin):  # the file is just being created
                    return
                check_version(self.path)
                raise RecordFileError(Problem("records_none", file=self.path))
            self._begun = True
        while not self.damaged and (content := self._next()) is not None:
            try:
                frame = self._decode(content)
            except (msgspec.MsgspecError, ValueError, IndexError, RecursionError):
                self.damaged = True
                return
            if frame is not None:
                yield frame

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._stream.fileno()

    @property
    def position(self) -> int:
        """Number of bytes read."""
        return self._stream.tell()

    def _next(self) -> bytes | None:
        begin = self._stream.tell()
        length = self._stream.read(_LENGTH.size)
        if len(length) == _LENGTH.size:
            (size,) = _LENGTH.unpack(length)
            if size <= _LONGEST:
                content = self._stream.read(size)
                if len(content) == size:
                    return content
        self._stream.seek(begin)
        return None

    def _decode(self, content: bytes) -> Frame | None:
        kind = content[1]  # after the array's length; kinds are small
        if kind == HEADER:
            self.header = _decode_header(content)[1]
            return None
        if self.header is None:
            raise ValueError("a frame before the header")
        if kind in (RECORDS, KEPT):
            return Frame(kind, _decode_records(content))
        if kind not in (DEFINITIONS, OPEN, END):
            return None  # of a later version
        return Frame(kind, _decode_any(content)[1:])


def check_version(path: Path) -> None:
    """Check that a record file has the version of the format that this tracellm reads.

    Raises:
        OSError: the file cannot be opened.
        RecordFileError: it has another version.
    """
    with path.open("rb") as stream:
        match = re.fullmatch(rb"TRACELLM-RECORDS (\d+)\n", stream.readline(40))
    if match is not None and int(match[1]) != _VERSION:
        raise RecordFileError(Problem("records_version", file=path, version=int(match[1]), known=_VERSION))


def facts_of(raw: Raw) -> Any:
    """Decode the facts of a record."""
    return msgspec.msgpack.decode(raw)
