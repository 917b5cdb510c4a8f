"""The record file of a process: what probed calls left behind, as it was, appended once a step.

    TRACELLM-RECORDS 1\\n
    length (4 bytes, little endian), then so many bytes of MessagePack; and so on

Each such frame is an array whose first element is its kind:

- `[HEADER, {...}]`: the process, its clock pair, the ids; first in each file (`Header`).
- `[DEFINITIONS, [[number, site], ...], [[number, place], ...]]`: the meaning of numbers that later records use.
- `[RECORDS, first, [record, ...]]`: records (context: call_context.py), the first of which has this number among all.
- `[OPEN, [[call, site, parent call, place, start, facts], ...]]`: calls that last. Each is written once; a call that
  has no record later never ended.
- `[END, time]`: the recording ended.

A process that is killed leaves at most a torn last frame, which a reader leaves out. With a ring (`--ring N`) the file
is set aside when it holds N records, and replaces the one that was set aside before: the last N are always there.

MessagePack by msgspec takes 0.18 us and 48 bytes a record here, `marshal` 0.24 us and 53 bytes, `pickle` 0.48 us
(batches of 70 to 4,096 records of layers, 2.8 GHz Xeon); and unlike these it is safe to read from anybody.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

__all__ = [
    "DEFINITIONS",
    "END",
    "HEADER",
    "OPEN",
    "RECORDS",
    "SUFFIX",
    "Frame",
    "Header",
    "RawRecord",
    "RecordFile",
    "RecordFileError",
    "RecordReader",
    "encode",
    "facts_of",
    "record_files",
    "set_aside",
]

SUFFIX = ".records"
_BEFORE = ".before"  # of the segment that a ring has set aside

_MAGIC = b"TRACELLM-RECORDS 1\n"
_LENGTH = struct.Struct("<I")
HEADER, DEFINITIONS, RECORDS, OPEN, END = range(5)
_LONGEST = 1 << 30  # bytes of a frame: a longer one is damage

RawRecord = tuple[int, int, int, int, int, int, Raw, Any]
"""A record of a file, its facts still encoded."""


class Header(msgspec.Struct, omit_defaults=True):
    """Facts about the process that a reader needs.

    Attributes:
        process: the OTLP resource's attributes.
        clock: wall-clock and monotonic nanoseconds of one moment.
        root: number of the call that stands for the script.
        origins: `[first call, offset]`; a call's span id is its number plus the offset. The last one is this process's,
            those before it are of the processes that it was forked from.
        trace_id: 32 hexadecimal digits.
        outermost: span id of the parent of outermost calls.
        outside: span id of the script's parent, which is not in the recording.
        text: whether texts of users and models are recorded.
        untold: subjects (catalog/report_needs.py) that are not recorded whole.
        steps: engine steps before the first record, where a ring let go of them.
    """

    process: dict[str, Any]
    clock: tuple[int, int]
    root: int
    origins: list[tuple[int, int]]
    trace_id: str
    outermost: str
    outside: str | None = None
    text: bool = True
    untold: list[str] = []
    steps: int = 0


class Frame(NamedTuple):
    """A frame after the header: its kind, and the rest of it."""

    kind: int
    content: Any


class RecordFileError(Exception):
    """It is no record file, or of another version."""


# -- writing -----------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Stand-in for an object that MessagePack does not have; never fails."""
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
    """A frame without its length.

    Raises:
        Exception: something in it cannot be encoded, such as an integer of more than 64 bits.
    """
    return _encoder.encode((kind, *content))


class RecordFile:
    """Appends frames to the file `path`, which only its owner may read.

    Every frame is written at a known offset, so that one which was interrupted, or was written in part, is overwritten
    by the next. A program that closes all open files, as daemons do, loses nothing: the file is opened again.

    Raises:
        OSError: the file cannot be made; so does `append`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._descriptor = -1
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open(os.O_CREAT | os.O_TRUNC)
        self._write(_MAGIC)

    def append(self, *frames: bytes) -> None:
        """Append these in one go.

        Raises:
            OSError: not all of it could be written; nothing of it counts as written.
        """
        self._write(b"".join([part for frame in frames for part in (_LENGTH.pack(len(frame)), frame)]))

    def set_aside(self) -> None:
        """Close the file, and keep it as the segment before the one that follows.

        Raises:
            OSError: it cannot be renamed.
        """
        self.close()
        self.path.replace(set_aside(self.path))

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
        """Whether the descriptor is still that of this file, and not of another that the program opened."""
        try:
            status = os.fstat(self._descriptor)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file


def set_aside(path: Path) -> Path:
    """The segment of a ring before this one."""
    return path.with_name(f"{path.stem}{_BEFORE}{path.suffix}")


def record_files(traces: Path) -> dict[Path, list[Path]]:
    """Every record file in the folder `traces`, with the segments that there are of it, the oldest first."""
    segments: dict[Path, list[Path]] = {}
    for path in sorted(traces.glob(f"*{SUFFIX}")):
        if path.stem.endswith(_BEFORE):
            segments.setdefault(path.with_name(path.stem.removesuffix(_BEFORE) + SUFFIX), []).insert(0, path)
        else:
            segments.setdefault(path, []).append(path)
    return segments


# -- reading -----------------------------------------------------------------------------------------------------------


class _Records(msgspec.Struct, array_like=True):
    kind: int
    first: int
    records: list[RawRecord]


_decode_records = msgspec.msgpack.Decoder(_Records).decode
_decode_header = msgspec.msgpack.Decoder(tuple[int, Header]).decode
_decode_any = msgspec.msgpack.Decoder(list[Any]).decode


class RecordReader:
    """Reads a record file, also one that still grows: `frames` returns what is there and was not read before.

    The facts of records stay encoded (`msgspec.Raw`): most are alike, which their bytes show.

    Attributes:
        header: None until it was read.
        damaged: the file has a frame that cannot be read; nothing after it is.

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
        """The frames that are whole.

        Raises:
            RecordFileError: it is no record file, or of another version.
        """
        if not self._begun:
            begin = self._stream.read(len(_MAGIC))
            if begin != _MAGIC:
                self._stream.seek(0)
                if _MAGIC.startswith(begin):  # it is only just being made
                    return
                raise RecordFileError(f"{self.path} is no record file that this version of tracellm reads")
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
        """The open file's descriptor."""
        return self._stream.fileno()

    @property
    def is_torn(self) -> bool:
        """Whether there are bytes after the last frame that is whole."""
        return self.damaged or os.fstat(self._stream.fileno()).st_size > self._stream.tell()

    @property
    def position(self) -> int:
        """Number of bytes that have been read."""
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
        if kind == RECORDS:
            return Frame(kind, _decode_records(content))
        if kind not in (DEFINITIONS, OPEN, END):
            return None  # of a later version
        return Frame(kind, _decode_any(content)[1:])


def facts_of(raw: Raw) -> Any:
    """Decode the facts of a record."""
    return msgspec.msgpack.decode(raw)
