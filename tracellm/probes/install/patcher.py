"""Functions of libraries that are replaced while something is being recorded, and put back afterwards.

They are no calls of the engine and so no spans. Those of the standard library carry along who starts a thread or a
process; those of OpenTelemetry tie its current span to the probed calls (otel/opentelemetry.py). One that cannot be
replaced is skipped and listed as a problem.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tracellm.probes.context.exceptions import remember
from tracellm.probes.install.import_hook import ImportHook
from tracellm.probes.wrapping.probe import Mistake

__all__ = ["Patcher"]

Function = Callable[..., Any]


class Patcher:
    """`replacements` gives, for `module:Class.method` or `module:function`, what makes the new function of the old one.

    A module that is not imported yet is not imported for this; it is changed when it comes. `problems` lists what could
    not be replaced.
    """

    def __init__(self, replacements: Mapping[str, Callable[[Function], Function]], problems: list[Mistake]) -> None:
        self._replacements: dict[str, list[tuple[str, Callable[[Function], Function]]]] = {}
        for target, make in replacements.items():
            module, _, path = target.partition(":")
            self._replacements.setdefault(module, []).append((path, make))
        self._problems = problems
        self._replaced: list[tuple[Any, str, Function, Function]] = []
        self._hook = ImportHook(self._replacements.__contains__, self._replace)

    def start(self) -> None:
        """Replace what is there, and the rest as it is imported."""
        self._hook.start()

    def stop(self) -> None:
        """Put the old functions back, except where ours have been replaced meanwhile."""
        self._hook.stop()
        for owner, name, old, new in reversed(self._replaced):
            if vars(owner).get(name) is new:
                setattr(owner, name, old)
        self._replaced.clear()

    def _replace(self, module: Any) -> None:
        for path, make in self._replacements[module.__name__]:
            class_name, _, name = path.rpartition(".")
            owner = getattr(module, class_name, None) if class_name else module
            old = None if owner is None else vars(owner).get(name)
            if old is None:  # another version of a library may not have it
                continue
            try:
                new = functools.wraps(old)(make(old))
                setattr(owner, name, new)
            except Exception as error:
                kind, message, _ = remember(error)
                self._problems.append(
                    Mistake(f"{module.__name__}:{path} is not followed: replacing it raised {kind}", message)
                )
            else:
                self._replaced.append((owner, name, old, new))
