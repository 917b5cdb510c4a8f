"""Printing to stdout, which may lack characters, have any width, and be closed early, as by `head`."""

import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["closed_early", "print_out", "width_of_terminal"]

_NARROWEST, _WIDEST = 60, 140


def print_out(output: str) -> None:
    """Print to stdout, with a newline at the end."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    with closed_early():
        sys.stdout.write(output if output.endswith("\n") else f"{output}\n")
        sys.stdout.flush()


@contextmanager
def closed_early() -> Iterator[None]:
    """Context for writing to stdout, in which a closed pipe is not an error."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end


def width_of_terminal() -> int:
    """Return the terminal's width, from 60 to 140 columns."""
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)
