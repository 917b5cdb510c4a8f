"""What the files of this catalog share: entries about functions of a vLLM, some of which tell what ours do.

Where a function of vLLM's does what one of our engine's does, with arguments of the same names, its entry is ours with
another target (`like`); so a recording says the same of both, in the same words.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracellm.probes.wrapping.probe import Entry, path_of
from tracellm.probes.wrapping.summary import Where, caller
from tracellm.trace.names import Level

__all__ = ["at", "heirs", "like", "plain", "told_as", "users_line"]

_PROBES = str(Path(__file__).parents[2]) + os.sep


def at(target: str) -> str:
    """A target of vLLM's, of which the package is left out: `v1.engine.core:EngineCore.step`."""
    return f"vllm.{target}"


def plain(level: Level, module: str, *functions: str, **more: Any) -> list[Entry]:
    """Entries for functions of one module of vLLM's whose arguments and results, in short, say enough."""
    return [Entry(at(f"{module}:{function}"), level, **more) for function in functions]


def heirs(level: Level, module: str, *functions: str) -> list[Entry]:
    """The same, for methods whose spans are called alike in all classes that inherit them: a CPUWorker is a Worker."""
    return [
        entry
        for class_name, _, method in (function.partition(".") for function in functions)
        for entry in told_as(class_name, level, f"{module}:{class_name}", method)
    ]


def told_as(kind: str, level: Level, home: str, *methods: str) -> list[Entry]:
    """Entries for methods of the class at `home`, whose spans are called as those of our class `kind`; which class
    defines what ran, say a CPUWorker, is in `code.function.name`."""
    return [Entry(at(f"{home}.{one}"), level, lifeline=kind, span_name=f"{kind}.{one}") for one in methods]


def like(ours: Iterable[Entry], path: str, target: str, *other_targets: str, **changes: Any) -> Entry:
    """Of our engine's entries the one about `path` (`Class.method`), for a function of vLLM's that does the same.

    Raises:
        LookupError: there is none.
    """
    found = [entry for entry in ours if path_of(entry.target) == path]
    if not found:
        raise LookupError(f"our engine's catalog has no entry for {path}")
    return replace(found[0], target=at(target), other_targets=tuple(map(at, other_targets)), **changes)


def users_line() -> Where | None:
    """Where in the user's code the call is made that is being captured; None when it was vLLM that called."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PROBES):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None and str(frame.f_globals.get("__name__")).startswith("vllm."):
        return None
    return caller()
