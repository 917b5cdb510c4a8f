"""Messages from the student's process: the outcome of each case, as msgpack behind a length of four bytes.

A random word precedes each message. Code that writes to all open files does not have it, and damages the results
instead of forging them.
"""

from typing import Any

import msgspec

__all__ = [
    "Begun",
    "Ended",
    "Message",
    "NotLoaded",
    "NotRun",
    "Outcome",
    "Raised",
    "Started",
    "Tampered",
    "Value",
    "Work",
]


class Work(msgspec.Struct):
    """The task of the process: cases as (name of the check, case)."""

    folder: str
    lab: int
    cases: list[tuple[str, Any]]
    memory: int
    """Limit in bytes of the address space."""
    seconds: int
    """Limit of CPU time."""
    word: bytes
    """Precedes each message."""
    strongest: str
    """Kind of isolation to try first."""
    files: dict[str, str]
    """Name of the student's file for each module."""
    kernels: str
    """Folder with the engine's compiled kernels, so that it computes as in the grader's process."""
    checks: str = ""
    """Source text of further checks, those of a twist."""


class Started(msgspec.Struct, tag=True):
    """The process is isolated, and loads the student's files next."""

    isolation: str


class Begun(msgspec.Struct, tag=True):
    """The case `index` begins."""

    index: int


class Value(msgspec.Struct, tag=True):
    """A case returned."""

    output: Any


class Raised(msgspec.Struct, tag=True):
    """A case raised an exception; file, line and function are the deepest frame in a student's file, or empty."""

    kind: str
    message: str
    file: str = ""
    line: int = 0
    function: str = ""
    traceback: str = ""


class NotLoaded(msgspec.Struct, tag=True):
    """A student's file cannot be imported."""

    error: Raised


class Tampered(msgspec.Struct, tag=True):
    """The student's code changed a part of the grader, or of Python's own functions."""

    name: str


class Ended(msgspec.Struct, tag=True):
    """The process ended in a case.

    `how` is timeout, exit, signal, output, processes, memory or results; `detail` is the seconds, the exit status, the
    signal's name or the limit.
    """

    how: str
    detail: str
    loading: bool = False
    """True if it ended while the student's files were imported."""


class NotRun(msgspec.Struct, tag=True):
    """A case that did not run, because earlier ones ended the process too often or took too long."""


Message = Started | Begun | Value | Raised | NotLoaded | Tampered
"""Messages of the process."""

Outcome = Value | Raised | NotLoaded | Tampered | Ended | NotRun
"""Result of a case."""
