"""An open file of the recording's own, in a process whose program may do with open files what it likes.

A daemon closes all that is open, and what it opens next has the same numbers. So whoever uses a number for long looks
first whether it is still the same file's: what is another's must be neither read, nor written, nor closed.
"""

import errno
import os
from contextlib import suppress

__all__ = ["Descriptor"]


class Descriptor:
    """The open file that has this number now."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._file = self._at_number()

    @property
    def number(self) -> int:
        """Its number.

        Raises:
            OSError: it was closed.
        """
        if self._at_number() != self._file:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._number

    def close(self) -> None:
        """Close it, unless somebody has."""
        with suppress(OSError):
            os.close(self.number)

    def _at_number(self) -> tuple[int, int, str]:
        """What tells a file from any other. A file that nobody has open any more leaves its inode to the next one, so
        its name counts as well, where the system tells it; not its folder's, which may be renamed."""
        status = os.fstat(self._number)
        try:
            path = os.readlink(f"/proc/self/fd/{self._number}").removesuffix(" (deleted)")
        except OSError:  # there is no /proc
            path = ""
        return status.st_dev, status.st_ino, os.path.basename(path)
