"""A mark of each user: whether an earlier run has shown the explanations of the console log.

The mark is an empty file in the user's state folder (XDG Base Directory Specification). A folder that cannot be written
means that every run shows them.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

__all__ = ["explanations_seen", "remember_explanations"]


def explanations_seen(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this user has seen the explanations."""
    try:
        return _mark(environ).exists()
    except (OSError, RuntimeError):
        return False


def remember_explanations(environ: Mapping[str, str] = os.environ) -> None:
    """Leave the mark of this user."""
    with suppress(OSError, RuntimeError):
        mark = _mark(environ)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _mark(environ: Mapping[str, str]) -> Path:
    """Return the path of the mark; relative paths in XDG_STATE_HOME are ignored, as specified.

    Raises:
        RuntimeError: there is no home directory.
    """
    state = Path(environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path.home() / ".local" / "state"
    return state / "tracellm" / "explanations-seen"
