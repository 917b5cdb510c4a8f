"""Calls back when a module has been imported: so probes are put on the engine when a script imports it, and not before.

A script that never uses the engine never imports it, whether it is explained or not. Whatever the hook cannot do, the
import succeeds or fails as it would without it; a call-back must not raise.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["ImportHook"]


class ImportHook:
    """A finder at the front of `sys.meta_path` that finds nothing itself, but adds `then(module)` to the imports of
    chosen modules.

    `wanted(name)` chooses them. Modules that are imported already are handled by `start`.
    """

    def __init__(self, wanted: Callable[[str], bool], then: Callable[[ModuleType], None]) -> None:
        self._wanted = wanted
        self._then = then
        self._searching: set[str] = set()

    def start(self) -> None:
        """Handle the modules that are there, and from now on those that come."""
        sys.meta_path.insert(0, self)
        for name, module in list(sys.modules.items()):
            if self._wanted(name) and module is not None:
                self._handle(module)

    def stop(self) -> None:
        """Leave imports alone again."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec as the other finders give it, with the call-back added to its loader."""
        if name in self._searching or not self._wanted(name):
            return None
        self._searching.add(name)
        try:
            spec = self._find(name, path, target)
        finally:
            self._searching.discard(name)
        execute = getattr(spec and spec.loader, "exec_module", None)
        if spec is None or execute is None or not hasattr(spec.loader, "__dict__") or isinstance(spec.loader, type):
            return spec  # without a loader that can be changed the module stays as it is

        def exec_module(module: ModuleType) -> None:
            vars(spec.loader).pop("exec_module", None)  # the first of several hooks does it for all
            execute(module)
            if self in sys.meta_path:  # it may have been stopped meanwhile
                self._handle(module)

        spec.loader.exec_module = exec_module  # type: ignore[union-attr,method-assign]
        return spec

    def _handle(self, module: ModuleType) -> None:
        """Call back, unless the module stands in for others (as_vllm/modules.py), which are handled themselves."""
        if not getattr(type(module), "__stand_in__", False):
            self._then(module)

    def _find(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None and (spec := find_spec(name, path, target)) is not None:
                return spec
        return None
