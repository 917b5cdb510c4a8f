"""Messages from one process to another through files: as many as come, in order, whether the other has time or not.

A pipe would do if it were endless: the process that reads has the lowest priority, and whoever records must not wait
for it. The files are small, follow each other, and have no name any more once they are being read. They outlive the
process that writes them, so what it had written is read also if it was killed.
"""

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tracellm.probes.descriptor import Descriptor

__all__ = ["SpoolReader", "SpoolWriter"]

_SIZE = struct.Struct("<I")  # of the message that follows; 0: the next file goes on
_LARGEST = 16 << 20  # bytes; a longer file is not added to


def _file(folder: Path, name: str, number: int) -> Path:
    return folder / f".{name}.{number}.records"


class SpoolWriter:
    """Writes messages to files in `folder` that are called by `name`.

    Raises:
        OSError: they cannot be written; so do its methods.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._number = self._written = 0
        self._torn = b""  # the end of what could be written in part only: nothing may come before it
        self._following: Descriptor | None = None
        self._descriptor = self._open(0)

    def write(self, message: bytes) -> None:
        """Add a message, which is not empty. What cannot be written is not read, or, if part of it could be, later."""
        if self._written > _LARGEST:
            self._begin_another()
        self._finish()
        self._torn = content = _SIZE.pack(len(message)) + message
        try:
            self._finish()
        except OSError:
            if len(self._torn) == len(content):
                self._torn = b""
            raise

    def close(self) -> None:
        """There will be no other message."""
        for descriptor in (self._descriptor, self._following):
            if descriptor is not None:
                descriptor.close()

    def remove(self) -> None:
        """Close it; nobody will read what was not read yet."""
        self.close()
        for number in range(self._number + 2):
            with suppress(OSError):
                _file(self._folder, self._name, number).unlink()

    def _begin_another(self) -> None:
        if self._following is None:
            try:
                self._following = self._open(self._number + 1)  # there before whoever reads is told to look for it
            except OSError:  # then this one grows
                return
            self._torn += _SIZE.pack(0)
        self._finish()
        self._descriptor.close()
        self._descriptor, self._following = self._following, None
        self._number += 1
        self._written = 0

    def _open(self, number: int) -> Descriptor:
        file = _file(self._folder, self._name, number)
        return Descriptor(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600))

    def _finish(self) -> None:
        while self._torn:
            done = os.write(self._descriptor.number, self._torn)
            self._torn = self._torn[done:]
            self._written += done


class SpoolReader:
    """Reads what a SpoolWriter writes.

    Raises:
        OSError: there is nothing, or it cannot be read; so does `read`.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._number = 0
        self._stream = self._open()

    def read(self) -> bytes | None:
        """The next message; None if there is none yet, or not all of it."""
        while (message := self._read()) == b"":
            self._stream.close()
            self._number += 1
            self._stream = self._open()
        return message

    def close(self) -> None:
        """Nothing more is read."""
        self._stream.close()

    def _open(self) -> BinaryIO:
        file = _file(self._folder, self._name, self._number)
        stream = file.open("rb")
        file.unlink()  # it holds texts, and nobody else is to read it
        return stream

    def _read(self) -> bytes | None:
        begin = self._stream.tell()
        size = self._stream.read(_SIZE.size)
        if len(size) == _SIZE.size:
            (length,) = _SIZE.unpack(size)
            message = self._stream.read(length)
            if len(message) == length:
                return message
        self._stream.seek(begin)
        return None
