"""What the catalog's files share: reading an argument by name, the user's line, lists of plain entries."""

import linecache
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tracellm.probes.spec import Entry
from tracellm.trace import names
from tracellm.trace.names import Level

__all__ = ["argument", "called_by", "caller", "caller_attributes", "plain"]

_PACKAGE = str(Path(__file__).parents[2])


def plain(level: Level, module: str, *functions: str) -> list[Entry]:
    """Entries for functions of one module of the engine whose arguments and results, in short, say enough."""
    return [Entry(f"tracellm.engine.{module}:{function}", level) for function in functions]


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, name: str, otherwise: Any = None) -> Any:
    """The argument `name`, which is number `index` when it is given by position (0 is self, where there is one)."""
    return args[index] if len(args) > index else kwargs.get(name, otherwise)


@cache
def _is_machinery(file: str) -> bool:
    return file.startswith((_PACKAGE, "<frozen")) or "site-packages" in file or "dist-packages" in file


def caller() -> tuple[str, int] | None:
    """File and line of the user's call that led here: the innermost frame that is neither ours nor a library's."""
    frame = sys._getframe(1)
    while frame is not None:
        if not _is_machinery(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def caller_attributes(where: tuple[str, int] | None) -> dict[str, Any]:
    """The user's line as attributes; the file from the current folder, if it lies there."""
    if where is None:
        return {}
    file, line = where
    path = Path(file)
    short = path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else file
    attributes: dict[str, Any] = {names.CALLER_FILE: short, names.CALLER_LINE: line}
    if text := linecache.getline(file, line).strip():
        attributes[names.CALLER_TEXT] = text
    return attributes


def called_by(is_it: Callable[[Any], bool], most_frames: int = 40) -> bool:
    """Is one of the calls that are under way the one that `is_it(code)` knows?"""
    frame = sys._getframe(1)
    for _ in range(most_frames):
        if frame is None:
            return False
        if is_it(frame.f_code):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
