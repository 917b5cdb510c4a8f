"""The user's line: where in their own code the call was made that a probe sees."""

import linecache
import os
import sys
import sysconfig
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType

from tracellm.probes.context.exceptions import PROBE_FILE
from tracellm.probes.wrapping.summary import ExtraCapture, Where, caller_attributes

__all__ = ["CALLER", "Where", "caller", "caller_attributes"]

_PROBES = str(Path(__file__).parents[1]) + os.sep
_OURS = str(Path(__file__).parents[2]) + os.sep
_LIBRARIES = tuple(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib"))

_START = ""
"""The current folder when the recorder was imported; a script may leave it, or remove it."""
with suppress(OSError):
    _START = os.getcwd()


@cache
def _belongs_to(file: str) -> str:
    """Whose code a file holds: the `probes`, the rest of `tracellm`, a `library`, or the `user`."""
    if file.startswith(PROBE_FILE):
        return "probes"
    if file.startswith(_OURS):
        return "probes" if file.startswith(_PROBES) else "tracellm"
    packaged = "site-packages" in file or "dist-packages" in file
    if packaged or file.startswith((*_LIBRARIES, "<frozen")):
        return "library"
    return "user"


def caller() -> Where | None:
    """Where in the user's code the call is made that is being recorded; None when it was the engine that called.

    To be called by what a probed call's wrapper calls, or by that itself.
    """
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        owner = _belongs_to(code.co_filename)
        if owner == "user":
            return _known.get((id(code), frame.f_lasti)) or _learn(code, frame.f_lasti, frame.f_lineno)
        if owner == "tracellm":
            return None
        frame = frame.f_back  # type: ignore[assignment]
    return None


_known: dict[tuple[int, int], Where] = {}
"""By the code's id and how many bytes into it the call is. To work out the line takes several microseconds in a long
script, and its text is in a file; so each is done once."""
_codes: list[CodeType] = []
"""The codes, so that no other comes to have the id of one."""
_MOST_KNOWN = 10_000

CALLER = ExtraCapture(
    caller,
    "_known_calls.get((_id((_frame := _getframe(1)).f_code), _frame.f_lasti)) or _also()",
    {"_getframe": sys._getframe, "_id": id, "_known_calls": _known},
)
"""For the probe of a user's function (summary.py), which is mostly called by the user: that is seen without a call."""


def _learn(code: CodeType, position: int, line: int) -> Where:
    file = code.co_filename
    below = _START and Path(file).is_relative_to(_START)
    short = Path(file).relative_to(_START).as_posix() if below else file
    where = short, line, linecache.getline(file, line).strip()
    if len(_known) < _MOST_KNOWN:
        _codes.append(code)
        _known[id(code), position] = where
    return where
