"""Selection of the functions that a recording wraps.

A function of the catalog is recorded when all of these hold:

- it is no deeper in the engine than `detail`, or its class matches `focus`, which is recorded at all levels;
- `only` is empty, or one of its patterns matches the function;
- no pattern of `skip` matches it.

Patterns are like those for file names (`*`, `?`, `[...]`) and case-sensitive. They match `Class.method`, `Class`, the
function's name, or its module: `tracellm.engine.core.sched.scheduler`, in the engine also `core.sched.scheduler` and
`sched.scheduler`; a package stands for all its modules. For a function without a class, the module's file takes the
definition of the class, as in diagrams: `core_client.py`.

A class has the methods of its base classes, too: `only` and `focus` name the class of the object, as diagrams do.
`skip` removes only what the class itself defines, as other classes may share the rest.

The script's own span and functions with `@tracellm.probe` are always recorded.

Patterns are checked before the script runs, against the catalog's functions in the engine's source, which is read
without importing it. A pattern without a match is refused, with similar names as suggestions.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from tracellm.probes.wrapping.probe import Entry
from tracellm.trace.names import LEVELS, Level

__all__ = [
    "DEPTH_LIMIT", "Choice", "Function", "Selection", "UnmatchedPattern", "choices", "chosen_targets", "file_of",
    "unmatched_patterns",
]  # fmt: skip

_ENGINE = "tracellm.engine."
"""Beginning of a module's name that patterns may omit."""

DEPTH_LIMIT = 16_000_000
"""Bytes of records after which a process records only requests and steps, unless a depth was chosen.

This is about 300,000 calls; their trace takes 200 MB and opens in a few seconds.
"""

_MAX_SUGGESTIONS = 3


class Function(NamedTuple):
    """A function that the catalog may wrap, and the names that patterns can match.

    Attributes:
        module: the module it was found in.
        owners: the class that defines it, or the module's file, and the lifeline in diagrams if different.
        name: its own name.
        subclasses: subclasses that inherit it.
    """

    module: str
    owners: tuple[str, ...]
    name: str
    subclasses: tuple[str, ...] = ()

    def is_of(self, pattern: str) -> bool:
        """Return whether it is a method of a matching class."""
        return any(fnmatchcase(owner, pattern) for owner in (*self.owners, *self.subclasses))

    def matches(self, pattern: str, *, subclasses: bool = True) -> bool:
        """Return whether the pattern matches it, its class or its module; subclasses count only with `subclasses`."""
        owners = (*self.owners, *self.subclasses) if subclasses else self.owners
        own_names = [*owners, *(f"{owner}.{self.name}" for owner in owners), self.name]
        in_engine = self.module.removeprefix(_ENGINE)
        modules = (self.module, in_engine, in_engine.partition(".")[2])
        return any(fnmatchcase(name, pattern) for name in own_names) or any(
            fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for name in modules
        )


@dataclass(frozen=True)
class Selection:
    """Choice of the functions that are wrapped.

    Attributes:
        detail: depth in the engine: request, step, layer or kernel.
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
        """Return the selection for a user's options.

        Without `detail` that is everything up to DEPTH_LIMIT bytes, or the steps if `focus` is given.
        """
        focus, only = tuple(focus), tuple(only)
        depth_limit = None if detail or focus or only else DEPTH_LIMIT
        return cls(detail or ("step" if focus else LEVELS[-1]), focus, only, tuple(skip), depth_limit)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the selection from the result of `as_dict`, after a round trip through JSON.

        Raises:
            KeyError, TypeError: `values` is something else.
        """
        focus, only, skip = (tuple(values[name]) for name in ("focus", "only", "skip"))
        return cls(values["detail"], focus, only, skip, values["depth_limit"])

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def has_patterns(self) -> bool:
        """True if it depends on more than a level."""
        return bool(self.focus or self.only or self.skip)

    @property
    def is_deep(self) -> bool:
        """True if more than requests and steps is recorded, and with it token probabilities."""
        return bool(self.focus) or LEVELS.index(self.detail) > LEVELS.index("step")

    def reaches(self, level: Level) -> bool:
        """Return whether any function at this level may be wrapped."""
        return bool(self.focus) or LEVELS.index(level) <= LEVELS.index(self.detail)

    def chooses(self, level: Level, function: Function) -> bool:
        """Return whether a function at this level is wrapped."""
        if any(function.matches(pattern, subclasses=False) for pattern in self.skip):
            return False
        if self.only and not any(function.matches(pattern) for pattern in self.only):
            return False
        is_deep_enough = LEVELS.index(level) <= LEVELS.index(self.detail)
        return is_deep_enough or any(function.is_of(pattern) for pattern in self.focus)


_AMBIGUOUS = ("utils", "helpers", "interface", "__init__")
"""Names of modules that only their directories distinguish."""


def file_of(module_name: str) -> str:
    """Return the owner of a function without a class: its module's file, `core_client.py` or `sched/utils.py`."""
    folder, _, name = module_name.rpartition(".")
    file = f"{name}.py"
    return f"{folder.rpartition('.')[2]}/{file}" if name in _AMBIGUOUS and folder else file


# -- checking patterns ------------------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """A function that can be recorded, and the catalog's entry that leads to it."""

    function: Function
    entry: Entry


class UnmatchedPattern(NamedTuple):
    """A pattern without effect.

    Attributes:
        option: `focus`, `only` or `skip`.
        pattern: the pattern itself.
        why: `unknown` if it matches nothing that can be recorded; `inherited` for classes that only inherit, and cannot
            be skipped by themselves; `left_out` if the other options exclude everything that it matches.
        names: for `unknown` the most similar names, for `inherited` the classes that define the methods.
    """

    option: str
    pattern: str
    why: Literal["unknown", "inherited", "left_out"]
    names: tuple[str, ...] = ()


def chosen_targets(selection: Selection, catalog: Iterable[Entry]) -> set[str]:
    """Return the targets of the entries of which a selection chooses any function."""
    if not selection.has_patterns:
        return {entry.target for entry in catalog if selection.reaches(entry.level)}
    return {entry.target for function, entry in choices(catalog) if selection.chooses(entry.level, function)}


def unmatched_patterns(selection: Selection, catalog: Iterable[Entry]) -> list[UnmatchedPattern]:
    """Return the patterns of a selection that have no effect with this catalog."""
    if not selection.has_patterns:
        return []
    all_choices = choices(catalog)
    functions = [choice.function for choice in all_choices]
    chosen = [choice.function for choice in all_choices if selection.chooses(choice.entry.level, choice.function)]
    found = []
    for pattern in selection.focus:
        if not any(function.is_of(pattern) for function in functions):
            found.append(UnmatchedPattern("focus", pattern, "unknown", _similar(pattern, _class_names(functions))))
    for option, patterns in (("only", selection.only), ("skip", selection.skip)):
        for pattern in patterns:
            matching = [function for function in functions if function.matches(pattern)]
            if not matching:
                found.append(UnmatchedPattern(option, pattern, "unknown", _similar(pattern, _all_names(functions))))
            elif option == "only" and not any(function.matches(pattern) for function in chosen):
                found.append(UnmatchedPattern(option, pattern, "left_out"))
            elif option == "skip" and not any(function.matches(pattern, subclasses=False) for function in matching):
                definers = tuple(sorted({function.owners[0] for function in matching}))
                found.append(UnmatchedPattern(option, pattern, "inherited", definers))
    return found


def _class_names(functions: Iterable[Function]) -> set[str]:
    return {
        name for function in functions for name in (*function.owners, *function.subclasses) if not name.endswith(".py")
    }


def _all_names(functions: list[Function]) -> set[str]:
    """Return everything that a pattern may match."""
    methods = {f"{owner}.{function.name}" for function in functions for owner in function.owners}
    modules = {function.module.removeprefix(_ENGINE) for function in functions}
    return _class_names(functions) | methods | {function.name for function in functions} | modules


def _similar(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that differ from the pattern only in a few letters, or in case."""
    by_lower: dict[str, list[str]] = {}
    for name in sorted(names):
        by_lower.setdefault(name.lower(), []).append(name)
    close = get_close_matches(pattern.strip("*").lower(), by_lower, _MAX_SUGGESTIONS, 0.6)
    return tuple(name for lower in close for name in by_lower[lower])[:_MAX_SUGGESTIONS]


# -- reading the engine's source --------------------------------------------------------------------------------------


class _Class(NamedTuple):
    bases: tuple[str, ...]
    methods: frozenset[str]


class _Module(NamedTuple):
    classes: dict[str, _Class]
    functions: dict[str, str]
    """Defining module of each imported function, by its name here."""


def choices(catalog: Iterable[Entry]) -> list[Choice]:
    """Return every function that the catalog's entries lead to, under each of its possible names."""
    targets = [(target, entry) for entry in catalog for target in entry.targets]
    sought = dict.fromkeys(target.partition(":")[0] for target, _ in targets)
    modules = {name: module for pattern in sought for name, module in _modules(pattern)}
    subclasses = _subclasses(modules)
    found: dict[tuple[str, str, str], Choice] = {}
    for target, entry in targets:
        module_name, _, path = target.partition(":")
        for name in [name for name in modules if fnmatchcase(name, module_name)] or [module_name]:
            for home, owner, method in _definitions(name, path, modules):
                owners = (owner or file_of(home), *([entry.lifeline] if entry.lifeline else []))
                function = Function(home, owners, method, tuple(sorted(subclasses.get(owner, ()))))
                found.setdefault((home, owner, method), Choice(function, entry))
    return list(found.values())


def _definitions(module_name: str, path: str, modules: dict[str, _Module]) -> Iterator[tuple[str, str, str]]:
    """Yield module, class ("" for none) and name of the function `path` where it is defined; as given if unreadable."""
    class_name, _, method = path.rpartition(".")
    module = modules.get(module_name)
    if module is None:
        yield module_name, class_name, method
    elif not class_name:
        if method in module.functions:
            yield module.functions[method], "", method
    elif "*" in class_name:
        for name, found in module.classes.items():
            if fnmatchcase(name, class_name) and method in found.methods:
                yield module_name, name, method
    elif class_name in module.classes:
        yield _definer(class_name, method, module_name, modules) or (module_name, class_name, method)


def _definer(
    class_name: str, method: str, module_name: str, modules: dict[str, _Module]
) -> tuple[str, str, str] | None:
    """Return module, class and name of the method in the class, or the nearest of its bases, that defines it."""
    if class_name not in modules[module_name].classes:
        module_name = next((name for name, module in modules.items() if class_name in module.classes), "")
    if not module_name:
        return None
    found = modules[module_name].classes[class_name]
    if method in found.methods:
        return module_name, class_name, method
    return next(
        (definition for base in found.bases if (definition := _definer(base, method, module_name, modules))), None
    )


def _subclasses(modules: dict[str, _Module]) -> dict[str, set[str]]:
    """Return all subclasses of each class, by name."""
    bases = {name: found.bases for module in modules.values() for name, found in module.classes.items()}
    subclasses: dict[str, set[str]] = {}
    for name in bases:
        above, left = set(), list(bases[name])
        while left:
            if (base := left.pop()) not in above:
                above.add(base)
                left += bases.get(base, ())
        for base in above:
            subclasses.setdefault(base, set()).add(name)
    return subclasses


def _modules(pattern: str) -> Iterator[tuple[str, _Module]]:
    """Yield the module, or all that a name ending in `*` matches; nothing without source."""
    top, _, rest = pattern.partition(".")
    spec = find_spec(top)  # only a top-level package can be found without importing another
    for location in (spec and spec.submodule_search_locations) or ():
        folder = Path(location)
        path = rest.replace(".", "/")
        files = folder.glob(f"{path.removesuffix('*')}**/*.py") if "*" in rest else [folder / f"{path}.py"]
        for file in files:
            parts = file.relative_to(folder).with_suffix("").parts
            name = ".".join((top, *(parts[:-1] if parts[-1] == "__init__" else parts)))
            if fnmatchcase(name, pattern) and file.is_file():
                yield name, _read(name, file)


@cache
def _read(name: str, file: Path) -> _Module:
    """Return the classes and functions that the module's source defines, or imports by name."""
    classes: dict[str, _Class] = {}
    functions = {}
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.ClassDef):
            methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
            bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
            names = (ast.unparse(base).rpartition(".")[2] for base in bases)
            classes[node.name] = _Class(tuple(names), frozenset(methods))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name] = name
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            functions |= {alias.asname or alias.name: node.module for alias in node.names}
    return _Module(classes, functions)
