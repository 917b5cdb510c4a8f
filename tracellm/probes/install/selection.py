"""The selection of the functions that a recording wraps, at installation: others stay the functions they were.

A function of the catalog is recorded when all of these hold:

- it sits no deeper in the engine than `detail`, or is of a class that `focus` names, which is recorded at all levels;
- `only` is empty, or one of its patterns matches the function;
- no pattern of `skip` matches it.

A pattern is as for file names (`*`, `?`, `[...]`), minds case, and matches a function by any of: `Class.method`,
`Class`, the function's or method's own name, or its module, `tracellm.engine.core.sched.scheduler`. In the engine
`core.sched.scheduler` and `sched.scheduler` do, too; a package stands for all modules in it. A function that no class
has goes by its module's file, as in diagrams: `core_client.py` stands where a class would.

A class has the methods of its base classes too: `only` and `focus` name it as the diagrams do, by the objects that are
called. `skip` takes out only what the class itself defines, as others may have the rest.

The script's own span and functions with `@tracellm.probe` are always recorded: someone has chosen them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Self

from tracellm.trace.names import LEVELS, Level

__all__ = ["DEPTH_LIMIT", "ENGINE", "Function", "Selection", "file_of"]

ENGINE = "tracellm.engine."
"""The beginning of a module's name that a pattern may leave out."""

DEPTH_LIMIT = 16_000_000
"""Bytes of records after which a process records only requests and steps, where nobody asked for a depth: some 300,000
calls, the trace of which takes 200 MB and opens in a few seconds."""


class Function(NamedTuple):
    """A function that the catalog may wrap, by the names under which people know it.

    Attributes:
        module: the module that it was found in.
        owners: the class that defines it, and by what name else it is drawn; of a function, its module's file.
        name: its own name.
        heirs: classes that have it from the one that defines it.
    """

    module: str
    owners: tuple[str, ...]
    name: str
    heirs: tuple[str, ...] = ()

    def is_of(self, pattern: str) -> bool:
        """Is it a method of a class that matches?"""
        return any(fnmatchcase(one, pattern) for one in (*self.owners, *self.heirs))

    def matches(self, pattern: str, *, heirs: bool = True) -> bool:
        """Does the pattern name it, its class or its module; without `heirs`, by what defines it?"""
        owners = (*self.owners, *self.heirs) if heirs else self.owners
        known = [*owners, *(f"{owner}.{self.name}" for owner in owners), self.name]
        in_engine = self.module.removeprefix(ENGINE)
        modules = (self.module, in_engine, in_engine.partition(".")[2])
        return any(fnmatchcase(one, pattern) for one in known) or any(
            fnmatchcase(one, pattern) or fnmatchcase(one, f"{pattern}.*") for one in modules
        )


@dataclass(frozen=True)
class Selection:
    """The choice of what is wrapped.

    Attributes:
        detail: how deep in the engine: request, step, layer or kernel.
        focus: patterns of classes that are recorded at every level.
        only: patterns; nothing else is recorded. Empty: everything.
        skip: patterns; none of these is recorded.
        depth_limit: bytes of a process's records after which only requests and steps are recorded. None: no limit.
    """

    detail: Level = LEVELS[-1]
    focus: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    depth_limit: int | None = None

    @classmethod
    def of(
        cls,
        detail: Level | None = None,
        focus: Iterable[str] = (),
        only: Iterable[str] = (),
        skip: Iterable[str] = (),
    ) -> Self:
        """The selection for a user's options: without `detail` everything, up to DEPTH_LIMIT bytes; where classes are
        in focus, the steps beside them."""
        focus, only = tuple(focus), tuple(only)
        depth_limit = None if detail or focus or only else DEPTH_LIMIT
        return cls(detail or ("step" if focus else LEVELS[-1]), focus, only, tuple(skip), depth_limit)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The selection that `as_dict` gave, after it was written as JSON.

        Raises:
            KeyError, TypeError: it gave something else.
        """
        focus, only, skip = (tuple(values[name]) for name in ("focus", "only", "skip"))
        return cls(values["detail"], focus, only, skip, values["depth_limit"])

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def has_patterns(self) -> bool:
        """Does it ask for more than a level?"""
        return bool(self.focus or self.only or self.skip)

    @property
    def is_deep(self) -> bool:
        """Whether more than requests and steps is recorded, and with it how probable tokens were."""
        return bool(self.focus) or not self._is_at_most("step")

    def reaches(self, level: Level) -> bool:
        """May anything be wrapped that sits at this level?"""
        return bool(self.focus) or self._is_deep_enough(level)

    def chooses(self, level: Level, function: Function) -> bool:
        """Is a function at this level wrapped?"""
        if any(function.matches(pattern, heirs=False) for pattern in self.skip):
            return False
        if self.only and not any(function.matches(pattern) for pattern in self.only):
            return False
        return self._is_deep_enough(level) or any(function.is_of(pattern) for pattern in self.focus)

    def _is_deep_enough(self, level: Level) -> bool:
        return LEVELS.index(level) <= LEVELS.index(self.detail)

    def _is_at_most(self, level: Level) -> bool:
        return LEVELS.index(self.detail) <= LEVELS.index(level)


_SAYS_NOTHING = ("utils", "helpers", "interface", "__init__")
"""Names of modules that only their folders distinguish."""


def file_of(module_name: str) -> str:
    """The owner of a function that no class has: its module's file, `core_client.py`, or `sched/utils.py`."""
    folder, _, name = module_name.rpartition(".")
    file = f"{name}.py"
    return f"{folder.rpartition('.')[2]}/{file}" if name in _SAYS_NOTHING and folder else file
