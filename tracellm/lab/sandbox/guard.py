"""Notices when a student's code changes the grader, or Python's own functions, in its process.

Expected values are not in that process, so such a change gains little; it could make a check measure something else,
for example by stopping a trace function. Python has no walls within a process: this finds the plain attempts.
"""

import builtins
import sys
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["Guard"]

_EVENTS = frozenset(("sys.settrace", "sys.setprofile", "gc.get_objects", "gc.get_referrers", "gc.get_referents"))
"""Audit events that a student's code has no reason to cause."""


class Guard:
    """Compares the functions of modules with those at its beginning, and listens to Python's audit events."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = frozenset(files)
        self._event = ""
        modules = [module for name, module in sys.modules.items() if f"{name}.".startswith("tracellm.lab.")]
        self._known = dict(_functions([*modules, builtins, sys, sys.modules["os"]]))
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: Any) -> None:
        if event in _EVENTS and not self._event:
            frame = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename not in self._files:
                frame = frame.f_back  # type: ignore[assignment]
            if frame is not None:
                self._event = event

    def changed(self) -> str:
        """Return the name of the first thing that was changed, or an empty string."""
        if self._event:
            return self._event
        now = dict(_functions({module for module, _ in self._known.values() if isinstance(module, ModuleType)}))
        return next((name for name, (_, seen) in self._known.items() if name not in now or now[name][1] != seen), "")


def _functions(modules: Iterable[ModuleType]) -> Iterator[tuple[str, tuple[ModuleType, tuple[int, int]]]]:
    """Yield the functions and classes of modules by name, with their identities."""
    for module in modules:
        for name, value in list(vars(module).items()):
            if callable(value):
                yield f"{module.__name__}.{name}", (module, _identity(value))
            if isinstance(value, type) and value.__module__ == module.__name__ and module is not builtins:
                for inner, attribute in list(vars(value).items()):
                    if callable(attribute):
                        yield f"{module.__name__}.{name}.{inner}", (module, _identity(attribute))


def _identity(value: Any) -> tuple[int, int]:
    return id(value), id(value.__code__) if isinstance(value, FunctionType) else 0
