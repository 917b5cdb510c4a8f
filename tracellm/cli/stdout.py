"""Printing to stdout, which may lack characters, and may be closed before the end, as by `head`."""

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
    """Context for writing to stdout: a reader that closes it early is no failure."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
