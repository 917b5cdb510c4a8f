"""Exceptions as records keep them: type, message and stack, without references to live objects.

The stack is formatted when the span is made. Frames of the probes are left out, so recorded and printed tracebacks are
those of the program without them.
"""

import linecache
import os
from pathlib import Path
from types import TracebackType

__all__ = ["PROBE_FILE", "ErrorSummary", "is_an_end", "is_probe_file", "remember", "stack_trace", "without_probes"]

ErrorSummary = tuple[str, str, list[tuple[str, int, str]]]
"""`(type, message, [(file, line, function), ...])`, the outermost frame first."""

PROBE_FILE = "<tracellm probe"
"""Beginning of the file names of generated wrappers (wrapping/codegen.py)."""

_PROBES = (str(Path(__file__).parents[1]) + os.sep, PROBE_FILE)
_IMPORTLIB = "<frozen importlib"
_MAX_FRAMES = 100


def is_probe_file(filename: str) -> bool:
    """Return whether the file is part of the probes, or a generated wrapper."""
    return filename.startswith(_PROBES)


def remember(error: BaseException) -> ErrorSummary:
    """Return a plain copy of `error`."""
    kind = type(error)
    hides_module = kind.__module__ in ("builtins", "__main__")
    name = kind.__qualname__ if hides_module else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(error)
    except Exception:  # a broken __str__ must not replace the error that is under way
        message = ""
    codes = ((step.tb_frame.f_code, step.tb_lineno) for step in _program_frames(error.__traceback__))
    lines = [(code.co_filename, line, code.co_name) for code, line in codes]
    return name, message, lines[-_MAX_FRAMES:]


def is_an_end(error: BaseException, loop: bool = False) -> bool:
    """Return whether this exception is a normal end: exit status 0, or the end of a `loop`."""
    if isinstance(error, SystemExit):
        return error.code in (None, 0)
    if type(error) is RuntimeError:  # raised by vLLM's shared memory in a waiting worker
        return loop and error.args == ("cancelled",)
    return loop and type(error).__name__ in ("CancelledError", "GeneratorExit")


def stack_trace(error: ErrorSummary) -> str:
    """Return the traceback as Python prints it."""
    kind, message, lines = error
    text = ["Traceback (most recent call last):"]
    for file, line, function in lines:
        text.append(f'  File "{file}", line {line}, in {function}')
        if source := linecache.getline(file, line).strip():
            text.append(f"    {source}")
    text.append(f"{kind}: {message}" if message else kind)
    return "\n".join(text)


def without_probes(error: BaseException) -> None:
    """Remove the probes' frames from the tracebacks of `error` and of its causes."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        following = None
        for step in reversed(_program_frames(current.__traceback__)):
            step.tb_next = following
            following = step
        current.__traceback__ = following
        pending += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions


def _program_frames(traceback: TracebackType | None) -> list[TracebackType]:
    """Return the frames that the traceback would have without probes.

    Python hides importlib's frames of an `import` statement, but not when the import hook is among them.
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
