"""The user's line: where in their own code the call was made that a probe sees."""

import linecache
import os
import sys
import sysconfig
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tracellm.trace import names

__all__ = ["caller", "caller_attributes"]

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
    return "library" if packaged or file.startswith((*_LIBRARIES, "<frozen")) else "user"


def caller() -> tuple[str, int] | None:
    """File and line of the user's call that is being recorded; None when it was the engine that called."""
    frame = sys._getframe(1)
    while frame is not None:
        owner = _belongs_to(frame.f_code.co_filename)
        if owner == "user":
            return frame.f_code.co_filename, frame.f_lineno
        if owner == "tracellm":
            return None
        frame = frame.f_back  # type: ignore[assignment]
    return None


@lru_cache(maxsize=1024)
def caller_attributes(where: tuple[str, int] | None) -> dict[str, Any]:
    """The user's line as attributes, not to be changed; the file from the folder of the start, if it lies there."""
    if where is None:
        return {}
    file, line = where
    below = _START and Path(file).is_relative_to(_START)
    short = Path(file).relative_to(_START).as_posix() if below else file
    attributes: dict[str, Any] = {names.CALLER_FILE: short, names.CALLER_LINE: line}
    if text := linecache.getline(file, line).strip():
        attributes[names.CALLER_TEXT] = text
    return attributes
