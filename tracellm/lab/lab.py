"""A lab: its modules and functions, its texts, its checks and its mutants.

`lab.toml` in a folder of labs/ describes it:

    number = 5
    slug = "block-pool"
    hours = 4
    [title]
    en = "Block pool"
    zh = "块池"
    [invariant]
    en = "..."
    zh = "..."
    [[files]]
    module = "tracellm.engine.core.kv_cache.block_pool"
    functions = ["BlockPool.touch"]
    removed = []
"""

import importlib
import re
import tomllib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from tracellm.lab.checks import Check
from tracellm.lab.sandbox.limits import Limits
from tracellm.lab.source import make_starter

__all__ = ["Lab", "LabFile", "Mutant", "Translated", "find_lab", "load_labs"]

_LABS = Path(__file__).parent / "labs"

_HINT = re.compile(r"<details><summary>.*?</summary>\n(.*?)</details>", re.DOTALL)


class Translated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text in both languages."""

    en: str
    zh: str

    def __getitem__(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en


class LabFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A module of the engine that the student writes a part of."""

    module: str
    functions: tuple[str, ...]
    """Qualified names of the functions to write."""
    removed: tuple[str, ...] = ()
    """Qualified names of helpers that a starter leaves out."""
    twins: tuple[str, ...] = ()
    """Qualified names of functions that stay, and share statements with those to write."""

    @property
    def name(self) -> str:
        """File name in the student's folder."""
        return self.module.rpartition(".")[2] + ".py"

    @property
    def path(self) -> Path:
        """The engine's file, also where a student's file takes the module's place."""
        return Path(__file__).parents[1].joinpath(*self.module.split(".")[1:]).with_suffix(".py")

    def source(self) -> str:
        """Return the text of the engine's file."""
        return self.path.read_text(encoding="utf-8")

    def starter(self) -> str:
        """Return the text with which a student begins.

        Raises:
            SourceError: a function is not in the module any more.
        """
        return make_starter(self.source(), self.functions, self.removed)


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A broken engine: one text of the reference replaced by another.

    `mutants.toml` lists them as `[[mutant]]`. `find` occurs exactly once in the engine's file.
    """

    name: str
    module: str
    find: str
    replace: str
    says: Translated
    """Description of the fault, for the documentation."""
    given: bool = False
    """True if students may run it, and get points for a case that exposes it."""
    exhibit: bool = False
    """True if it is in the museum: the recorded run of the lab's script shows the fault."""

    def source(self, file: LabFile) -> str:
        """Return the broken text of the engine's file.

        Raises:
            ValueError: `find` does not occur exactly once.
        """
        text = file.source()
        if text.count(self.find) != 1:
            raise ValueError(f"mutant {self.name}: its text occurs {text.count(self.find)} times in {file.module}")
        return text.replace(self.find, self.replace)


class Lab(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One lab of the course, as `lab.toml` describes it."""

    number: int
    slug: str
    hours: float
    title: Translated
    invariant: Translated
    """The sentence that the student's code must make true, stated before anything else."""
    files: tuple[LabFile, ...] = ()
    sheets: tuple[str, ...] = ()
    """Files with answers instead of code, which the lab's `sheets.py` makes for a seed."""
    processes: bool = False
    """True if its checks start processes of the engine."""
    limits: Limits = Limits()
    """Limits of the student's process; `[limits]` names those that differ from the default."""

    @property
    def folder(self) -> Path:
        """Folder of the lab's own files."""
        return _LABS / _package(self.number, self.slug)

    @property
    def package(self) -> str:
        """Import name of that folder."""
        return f"tracellm.lab.labs.{self.folder.name}"

    @property
    def checks(self) -> tuple[Check, ...]:
        """The lab's checks, in the order in which they are run."""
        checks: tuple[Check, ...] = importlib.import_module(f"{self.package}.checks").CHECKS
        return checks

    @property
    def predictions(self) -> tuple[Any, ...]:
        """Questions to answer before running anything."""
        name = f"{self.package}.predictions"
        return importlib.import_module(name).PREDICTIONS if find_spec(name) else ()

    @property
    def summarize(self) -> Callable[[Any, Path, str], str] | None:
        """Function of a lab's `summary.py`, or None: describe a `Grade` of a folder further, in a language."""
        name = f"{self.package}.summary"
        return importlib.import_module(name).summarize if find_spec(name) else None

    @property
    def mutants(self) -> tuple[Mutant, ...]:
        """The broken engines of the lab."""
        file = self.folder / "mutants.toml"
        if not file.is_file():
            return ()
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8"))["mutant"], tuple[Mutant, ...])

    def readme(self, lang: str) -> str:
        """Return the lab's README in a language."""
        return (self.folder / ("README.zh.md" if lang == "zh" else "README.md")).read_text(encoding="utf-8")

    def make_sheets(self, seed: str, lang: str) -> dict[str, str]:
        """Return the texts of the answer sheets with which a student of this seed begins, by file name."""
        if not self.sheets:
            return {}
        made: dict[str, str] = importlib.import_module(f"{self.package}.sheets").make_sheets(seed, lang)
        return made

    def hints(self, lang: str) -> list[str]:
        """Return the three hints of the README, from the vaguest to the clearest."""
        return [hint.strip() for hint in _HINT.findall(self.readme(lang))]

    def file(self, module: str) -> LabFile:
        """Return the file of a module.

        Raises:
            KeyError: the lab has no such module.
        """
        for file in self.files:
            if file.module == module:
                return file
        raise KeyError(module)


def _package(number: int, slug: str) -> str:
    return f"lab{number:02}_{slug.replace('-', '_')}"


@cache
def load_labs() -> tuple[Lab, ...]:
    """Return all labs by number."""
    labs = [
        msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Lab) for path in _LABS.glob("lab*/lab.toml")
    ]
    return tuple(sorted(labs, key=lambda lab: lab.number))


def find_lab(number: int) -> Lab | None:
    """Return the lab of this number, or None."""
    return next((lab for lab in load_labs() if lab.number == number), None)
