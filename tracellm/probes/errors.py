"""An exception as a record keeps it: type, message and the lines it passed, but none of the objects it holds on to.

Formatting waits until the record is built. Frames of the probes themselves are left out, so what is recorded is what
the program would have shown without them.
"""

import linecache
from pathlib import Path
from types import TracebackType

__all__ = ["PROBE_FILE", "Remembered", "is_an_end", "remember", "stack_trace", "without_probes"]

Remembered = tuple[str, str, list[tuple[str, int, str]]]
"""`(type, message, [(file, line, function), ...])`, the outermost line first."""

_OURS = frozenset(
    str(Path(__file__).with_name(f"{name}.py"))
    for name in ("wrap", "template", "around", "threads", "spawned", "gate", "install", "thinning", "writer")
)
"""The files whose frames stand between a probed call and its caller, or where one waits for what is recorded."""

PROBE_FILE = "<tracellm probe"
"""What the file names of generated wrappers begin with (template.py)."""

_MAX_FRAMES = 100


def remember(error: BaseException) -> Remembered:
    """A plain copy of what is to be told of `error`."""
    kind = type(error)
    name = (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        message = str(error)
    except Exception:  # a broken __str__ must not replace the error that is under way
        message = ""
    lines = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename not in _OURS:
            lines.append((code.co_filename, step.tb_lineno, code.co_name))
        step = step.tb_next
    return name, message, lines[-_MAX_FRAMES:]


def is_an_end(error: BaseException, loop: bool = False) -> bool:
    """Does this exception say only that it is time to end: exit status 0, or a loop that is told to stop?"""
    if isinstance(error, SystemExit):
        return error.code in (None, 0)
    if type(error) is RuntimeError:  # vLLM's shared memory says so to a worker that waits there
        return loop and error.args == ("cancelled",)
    return loop and type(error).__name__ in ("CancelledError", "GeneratorExit")


def stack_trace(error: Remembered) -> str:
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
    while traceback is not None and traceback.tb_frame.f_code.co_filename in _OURS:
        traceback = traceback.tb_next
    step = traceback
    while step is not None:
        following = step.tb_next
        while following is not None and following.tb_frame.f_code.co_filename in _OURS:
            following = following.tb_next
        step.tb_next = following
        step = following
    return traceback
