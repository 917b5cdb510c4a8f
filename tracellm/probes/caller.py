"""The user's line: where in their own code the call was made that a probe sees."""

import linecache
import os
import sys
import sysconfig
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from tracellm.probes.brief import Also
from tracellm.trace import names

__all__ = ["CALLER", "Where", "caller", "caller_attributes"]

_PROBES = str(Path(__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))

_START = ""
"""The current folder when the recorder was imported; a script may leave it, or remove it."""
with suppress(OSError):
    _START = os.getcwd()


@cache
def _belongs_to(file: str) -> str:
    """Whose code a file holds: the `probes`, the rest of `tracellm`, a `library`, or the `user`."""
    if file.startswith(_OURS):
        return "probes" if file.startswith(_PROBES) else "tracellm"
    packaged = "site-packages" in file or "dist-packages" in file
    if packaged or file.startswith((*_LIBRARIES, "<frozen")):
        return "library"
    _user_files.add(file)
    return "user"


_user_files: set[str] = set()


Where = tuple[CodeType, int]
"""A call in the code: the code that made it, and how many bytes into it. Its line is worked out later: in a long script
that takes several microseconds."""


def caller() -> Where | None:
    """Where in the user's code the call is made that is being recorded; None when it was the engine that called.

    To be called by what a probed call's wrapper calls, or by that itself.
    """
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        owner = _belongs_to(code.co_filename)
        if owner == "user":
            return code, frame.f_lasti
        if owner == "tracellm":
            return None
        frame = frame.f_back  # type: ignore[assignment]
    return None


CALLER = Also(
    caller,
    "((_code, _frame.f_lasti) if (_code := (_frame := _getframe(1)).f_code).co_filename in _user_files else _also())",
    {"_getframe": sys._getframe, "_user_files": _user_files},
)
"""For the probe of a user's function (brief.py), which is mostly called by the user: that is seen without a call."""


def caller_attributes(where: Where | None) -> dict[str, Any]:
    """The user's line as attributes, not to be changed; the file from the folder of the start, if it lies there."""
    if where is None:
        return {}
    code, position = where
    known = _known.get((id(code), position))
    if known is None:
        known = code, _line_attributes(code.co_filename, _line_of(code, position))
        if len(_known) < 10_000:
            _known[id(code), position] = known  # with the code, so that no other comes to have its id
    return known[1]


_known: dict[tuple[int, int], tuple[CodeType, dict[str, Any]]] = {}


def _line_of(code: CodeType, position: int) -> int:
    lines = (line for start, end, line in code.co_lines() if start <= position < end and line is not None)
    return next(lines, code.co_firstlineno)


def _line_attributes(file: str, line: int) -> dict[str, Any]:
    below = _START and Path(file).is_relative_to(_START)
    short = Path(file).relative_to(_START).as_posix() if below else file
    attributes: dict[str, Any] = {names.CALLER_FILE: short, names.CALLER_LINE: line}
    if text := linecache.getline(file, line).strip():
        attributes[names.CALLER_TEXT] = text
    return attributes
