"""Functions of libraries that are replaced while something is being recorded, and put back afterwards.

They are no calls of the engine and so no spans. Those of the standard library carry along who starts a thread or a
process; those of OpenTelemetry know of probed calls, and tell of spans (otel/opentelemetry.py).
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tracellm.probes.import_hook import ImportHook

__all__ = ["Patches"]

Function = Callable[..., Any]


class Patches:
    """`replacements` gives, for `module:Class.method`, what makes the new function of the old one.

    A module that nobody has imported is not imported for this; it is changed when it comes.
    """

    def __init__(self, replacements: Mapping[str, Callable[[Function], Function]]) -> None:
        self._replacements: dict[str, list[tuple[str, str, Callable[[Function], Function]]]] = {}
        for target, make in replacements.items():
            module, _, path = target.partition(":")
            class_name, _, method = path.partition(".")
            self._replacements.setdefault(module, []).append((class_name, method, make))
        self._replaced: list[tuple[type, str, Function, Function]] = []
        self._hook = ImportHook(self._replacements.__contains__, self._replace)

    def start(self) -> None:
        """Replace what is there, and the rest as it is imported."""
        self._hook.start()

    def stop(self) -> None:
        """Put the old functions back, except where somebody else has replaced ours meanwhile."""
        self._hook.stop()
        for owner, method, old, new in reversed(self._replaced):
            if vars(owner).get(method) is new:
                setattr(owner, method, old)
        self._replaced.clear()

    def _replace(self, module: Any) -> None:
        for class_name, method, make in self._replacements[module.__name__]:
            owner = getattr(module, class_name, None)
            old = None if owner is None else vars(owner).get(method)
            if owner is None or old is None:  # another version of a library may not have it
                continue
            new = functools.wraps(old)(make(old))
            setattr(owner, method, new)
            self._replaced.append((owner, method, old, new))
