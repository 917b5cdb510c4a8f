"""Loads a student's files under the names of the engine's modules.

`install` is called before the engine is imported: in the student's process of a check, and at the import of tracellm
wherever the environment variable `TRACELLM_LAB` names a lab's folder. Processes that the engine starts inherit the
variable, so the engine core's process has the student's code too. Only the standard library is imported here.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

__all__ = ["LAB_FILE", "VARIABLE", "LoadError", "install", "install_from_environment", "read_files"]

VARIABLE = "TRACELLM_LAB"
"""Environment variable with the path of a lab's folder."""

LAB_FILE = "lab.json"
"""File of a lab's folder that names the lab, its seed and its files."""


class LoadError(Exception):
    """A folder that is no lab's, or that lacks a file."""


class _Loader(SourceFileLoader):
    """Compiles the file at each import: a cached version could be older than the student's last change."""

    def get_code(self, fullname: str) -> CodeType:
        """See `SourceLoader`."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _Finder(MetaPathFinder):
    """Finds the student's file for each module that a lab names."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `MetaPathFinder`."""
        file = self.files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=_Loader(fullname, str(file)))


def read_files(folder: Path) -> dict[str, Path]:
    """Return the student's files by the module that each replaces.

    Raises:
        LoadError: the folder is no lab's folder, or a file is missing.
    """
    try:
        files = json.loads((folder / LAB_FILE).read_text(encoding="utf-8"))["files"]
        found = {module: folder / name for module, name in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LoadError(f"{folder} is no folder of a lab: {LAB_FILE} is missing or damaged ({error})") from None
    for path in found.values():
        if not path.is_file():
            raise LoadError(f"{path} is missing; `tracellm lab start` makes it anew in another folder")
    return found


def install(files: Mapping[str, Path]) -> None:
    """Load these files whenever their modules are imported.

    Raises:
        LoadError: one of the modules is imported already.
    """
    if imported := [name for name in files if name in sys.modules]:
        raise LoadError(f"{', '.join(imported)} was imported before the student's file could take its place")
    sys.meta_path.insert(0, _Finder(files))


def install_from_environment(folder: str) -> None:
    """Install the files of the folder in `TRACELLM_LAB`; a folder that cannot be read ends the program."""
    try:
        install(read_files(Path(folder)))
    except LoadError as error:
        sys.exit(f"tracellm: {VARIABLE}: {error}")
