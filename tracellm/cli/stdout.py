"""What a command prints to stdout, which may not know all characters, and be closed before the end, as by `head`."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["as_much_as_wanted", "print_out"]


def print_out(output: str) -> None:
    """Print to stdout, and a newline where none ends it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    with as_much_as_wanted():
        sys.stdout.write(output if output.endswith("\n") else f"{output}\n")
        sys.stdout.flush()


@contextmanager
def as_much_as_wanted() -> Iterator[None]:
    """Around writing to stdout: who reads it may have enough before its end, which is no failure."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
