"""Messages from the student's process: the outcome of each case, as msgpack behind a length of four bytes."""

from typing import Any

import msgspec

__all__ = ["Begun", "Ended", "Message", "NotLoaded", "NotRun", "Outcome", "Raised", "Value", "Work"]


class Work(msgspec.Struct):
    """The task of the process: cases as (name of the check, case)."""

    folder: str
    lab: int
    cases: list[tuple[str, Any]]
    memory: int
    """Limit in bytes of the address space."""
    seconds: int
    """Limit of CPU time."""
    processes: bool
    """True if the cases start processes of the engine."""


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


class Ended(msgspec.Struct, tag=True):
    """The process ended in a case.

    `how` is timeout, exit, signal, output, processes or results; `detail` is the seconds, the exit status, the signal's
    name or the limit.
    """

    how: str
    detail: str


class NotRun(msgspec.Struct, tag=True):
    """A case that did not run, because earlier ones ended the process too often or took too long."""


Message = Begun | Value | Raised | NotLoaded
"""Messages of the process."""

Outcome = Value | Raised | NotLoaded | Ended | NotRun
"""Result of a case."""
