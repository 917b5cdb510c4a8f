"""An exception as a record keeps it: type, message and the lines it passed, but none of the objects it holds on to.

Formatting waits until the record is built. Frames of the probes themselves are left out, so what is recorded, and what
is printed, is the traceback of the program without them.
"""

import linecache
import os
from pathlib import Path
from types import TracebackType

__all__ = ["PROBE_FILE", "ErrorSummary", "is_an_end", "is_probe_file", "remember", "stack_trace", "without_probes"]

ErrorSummary = tuple[str, str, list[tuple[str, int, str]]]
"""`(type, message, [(file, line, function), ...])`, the outermost line first."""

PROBE_FILE = "<tracellm probe"
"""The beginning of the file names of generated wrappers (codegen.py)."""

_PROBES = (str(Path(__file__).parents[1]) + os.sep, PROBE_FILE)
"""The beginnings of the file names of this package, and of the wrappers that it generates."""

_IMPORTLIB = "<frozen importlib"

_MAX_FRAMES = 100


def is_probe_file(filename: str) -> bool:
    """Is this the file name of the probes' own code, or of a wrapper that they have generated?"""
    return filename.startswith(_PROBES)


def remember(error: BaseException) -> ErrorSummary:
    """A plain copy of `error`."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        message = str(error)
    except Exception:  # a broken __str__ must not replace the error that is under way
        message = ""
    codes = ((step.tb_frame.f_code, step.tb_lineno) for step in _steps(error.__traceback__))
    lines = [(code.co_filename, line, code.co_name) for code, line in codes]
    return name, message, lines[-_MAX_FRAMES:]


def is_an_end(error: BaseException, loop: bool = False) -> bool:
    """Is this exception no failure: exit status 0, or a loop that is stopped?"""
    if isinstance(error, SystemExit):
        return error.code in (None, 0)
    if type(error) is RuntimeError:  # raised by vLLM's shared memory in a worker that waits there
        return loop and error.args == ("cancelled",)
    return loop and type(error).__name__ in ("CancelledError", "GeneratorExit")


def stack_trace(error: ErrorSummary) -> str:
    """The traceback as Python prints it."""
    kind, message, lines = error
    text = ["Traceback (most recent call last):"]
    for file, line, function in lines:
        text.append(f'  File "{file}", line {line}, in {function}')
        if source := linecache.getline(file, line).strip():
            text.append(f"    {source}")
    text.append(f"{kind}: {message}" if message else kind)
    return "\n".join(text)


def without_probes(error: BaseException) -> None:
    """Take the probes' own frames out of the traceback of `error`, and of the exceptions that it came from."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _without_probes(one.__traceback__)
        pending += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            pending += one.exceptions


def _without_probes(traceback: TracebackType | None) -> TracebackType | None:
    following = None
    for step in reversed(_steps(traceback)):
        step.tb_next = following
        following = step
    return following


def _steps(traceback: TracebackType | None) -> list[TracebackType]:
    """The frames that a traceback would have without probes.

    Python leaves out importlib's own frames of an `import` statement, but not where the import hook stands among them.
    """
    kept: list[TracebackType] = []
    while traceback is not None:
        if is_probe_file(traceback.tb_frame.f_code.co_filename):
            chunk = len(kept)
            while chunk and kept[chunk - 1].tb_frame.f_code.co_filename.startswith(_IMPORTLIB):
                chunk -= 1
            if chunk < len(kept) and kept[chunk].tb_frame.f_code.co_name != "_gcd_import":  # importlib.import_module
                del kept[chunk:]
        else:
            kept.append(traceback)
        traceback = traceback.tb_next
    return kept
