"""Patches that last as long as a recording, applied when a module is imported.

`ImportHook` calls back when modules have been imported, so a script that never imports the engine does not import it
for a recording either. `Patcher` replaces functions of libraries with it: those of the standard library that start
threads and processes, and those of OpenTelemetry that manage its current span. Replaced functions are not recorded.
"""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tracellm.probes.wrapping.probe import Mistake

__all__ = ["ImportHook", "Patcher"]

Function = Callable[..., Any]


class ImportHook:
    """A finder at the front of `sys.meta_path` that adds a callback to the imports of chosen modules.

    Imports succeed or fail as they would without it; `callback(module)` must not raise.
    """

    def __init__(self, is_chosen: Callable[[str], bool], callback: Callable[[ModuleType], None]) -> None:
        self._is_chosen = is_chosen
        self._callback = callback
        self._searching: set[str] = set()

    def start(self) -> None:
        """Call back for modules imported already, and from now on for those being imported."""
        sys.meta_path.insert(0, self)
        for name, module in list(sys.modules.items()):
            if self._is_chosen(name) and module is not None:
                self._call_back(module)

    def stop(self) -> None:
        """Leave imports alone again."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that other finders return, with the callback added to its loader."""
        if name in self._searching or not self._is_chosen(name):
            return None
        self._searching.add(name)
        try:
            spec = self._find(name, path, target)
        finally:
            self._searching.discard(name)
        execute = getattr(spec and spec.loader, "exec_module", None)
        if spec is None or execute is None or not hasattr(spec.loader, "__dict__") or isinstance(spec.loader, type):
            return spec  # a loader that cannot be changed: the module stays as it is

        def exec_module(module: ModuleType) -> None:
            vars(spec.loader).pop("exec_module", None)  # the first of several hooks does it for all
            execute(module)
            if self in sys.meta_path:  # not stopped during the import
                self._call_back(module)

        spec.loader.exec_module = exec_module  # type: ignore[union-attr,method-assign]
        return spec

    def _call_back(self, module: ModuleType) -> None:
        if not getattr(type(module), "__stand_in__", False):  # stands for others (as_vllm/modules.py), imported too
            self._callback(module)

    def _find(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None and (spec := find_spec(name, path, target)) is not None:
                return spec
        return None


class Patcher:
    """Replaces functions of libraries, now or when their modules are imported.

    `replacements` maps `module:Class.method` or `module:function` to a function from the old function to the new one.
    Functions that cannot be replaced are added to `problems`.
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
        """Replace functions of modules imported already, and of others as they are imported."""
        self._hook.start()

    def stop(self) -> None:
        """Restore the old functions, except where something else has replaced ours."""
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
            if old is None:  # another version of a library may lack it
                continue
            try:
                new = functools.wraps(old)(make(old))
                setattr(owner, name, new)
            except Exception as error:
                self._problems.append(Mistake.of(f"{module.__name__}:{path} is not followed: replacing it", error))
            else:
                self._replaced.append((owner, name, old, new))
