"""The functions that a selection can name: those of the catalog in the engine's source, read without importing it.

So a pattern that names nothing is refused before the script runs, with the names that are most like it, and not found
out when the run is over.
"""

import ast
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from tracellm.probes.install.selection import ENGINE, Function, Selection, file_of
from tracellm.probes.wrapping.probe import Entry

__all__ = ["Choice", "UnmatchedPattern", "choices", "chosen_targets", "unmatched_patterns"]

_MOST_NEAR = 3


class Choice(NamedTuple):
    """A function that can be recorded, and the catalog's entry that leads to it."""

    function: Function
    entry: Entry


class UnmatchedPattern(NamedTuple):
    """A pattern that does nothing.

    Attributes:
        option: `focus`, `only` or `skip`.
        pattern: the pattern itself.
        why: `unknown`: it names nothing that can be recorded; `inherited`: classes that only inherit what they have,
            and so cannot be skipped by themselves; `left_out`: the other options leave out all that it names.
        names: of what is unknown the names most like it, of what is inherited the classes that define it.
    """

    option: str
    pattern: str
    why: Literal["unknown", "inherited", "left_out"]
    names: tuple[str, ...] = ()


class _Class(NamedTuple):
    bases: tuple[str, ...]
    methods: frozenset[str]


class _Module(NamedTuple):
    classes: dict[str, _Class]
    functions: dict[str, str]
    """The module that defines a function, by the function's name here."""


def chosen_targets(selection: Selection, catalog: Iterable[Entry]) -> set[str]:
    """The targets of the entries that a selection leaves something of."""
    if not selection.has_patterns:
        return {entry.target for entry in catalog if selection.reaches(entry.level)}
    known = choices(catalog)
    return {entry.target for function, entry in known if selection.chooses(entry.level, function)}


def unmatched_patterns(selection: Selection, catalog: Iterable[Entry]) -> list[UnmatchedPattern]:
    """The patterns of a selection that do nothing with this catalog."""
    if not selection.has_patterns:
        return []
    known = choices(catalog)
    functions = [choice.function for choice in known]
    chosen = [choice.function for choice in known if selection.chooses(choice.entry.level, choice.function)]
    found = []
    for pattern in selection.focus:
        if not any(one.is_of(pattern) for one in functions):
            found.append(UnmatchedPattern("focus", pattern, "unknown", _near(pattern, _classes(functions))))
    for option, patterns in (("only", selection.only), ("skip", selection.skip)):
        for pattern in patterns:
            meant = [one for one in functions if one.matches(pattern)]
            if not meant:
                found.append(UnmatchedPattern(option, pattern, "unknown", _near(pattern, _names(functions))))
            elif option == "only" and not any(one.matches(pattern) for one in chosen):
                found.append(UnmatchedPattern(option, pattern, "left_out"))
            elif option == "skip" and not any(one.matches(pattern, heirs=False) for one in meant):
                found.append(
                    UnmatchedPattern(option, pattern, "inherited", tuple(sorted({one.owners[0] for one in meant})))
                )
    return found


def choices(catalog: Iterable[Entry]) -> list[Choice]:
    """Every function that the catalog's entries lead to, under each name that it may have."""
    leads = [(target, entry) for entry in catalog for target in entry.targets]
    sought = dict.fromkeys(target.partition(":")[0] for target, _ in leads)
    modules = {name: found for one in sought for name, found in _modules(one)}
    heirs = _heirs(modules)
    found: dict[tuple[str, str, str], Choice] = {}
    for target, entry in leads:
        module_name, _, path = target.partition(":")
        names = [name for name in modules if fnmatchcase(name, module_name)] or [module_name]
        for name in names:
            for home, owner, method in _places(name, path, modules):
                owners = [owner or file_of(home), *([entry.lifeline] if entry.lifeline else [])]
                of_others = tuple(sorted(heirs.get(owner, ())))
                function = Function(home, tuple(owners), method, of_others)
                found.setdefault((home, owner, method), Choice(function, entry))
    return list(found.values())


def _places(module_name: str, path: str, modules: dict[str, _Module]) -> Iterator[tuple[str, str, str]]:
    """Module, class ("" for none) and name of the function `path` where it is defined; as given if unreadable."""
    class_name, _, method = path.rpartition(".")
    module = modules.get(module_name)
    if module is None:
        yield module_name, class_name, method
    elif not class_name:
        if method in module.functions:
            yield module.functions[method], "", method
    elif "*" in class_name:
        for name, one in module.classes.items():
            if fnmatchcase(name, class_name) and method in one.methods:
                yield module_name, name, method
    elif class_name in module.classes:
        yield _definer(class_name, method, module_name, modules) or (module_name, class_name, method)


def _definer(
    class_name: str, method: str, module_name: str, modules: dict[str, _Module]
) -> tuple[str, str, str] | None:
    """Module, class and name of the method in the class, or the nearest of its bases, that defines it."""
    if class_name not in modules[module_name].classes:
        module_name = next((name for name, one in modules.items() if class_name in one.classes), "")
    if not module_name:
        return None
    known = modules[module_name].classes[class_name]
    if method in known.methods:
        return module_name, class_name, method
    return next((found for base in known.bases if (found := _definer(base, method, module_name, modules))), None)


def _heirs(modules: dict[str, _Module]) -> dict[str, set[str]]:
    """All classes that derive from a class, by its name."""
    bases = {name: one.bases for module in modules.values() for name, one in module.classes.items()}
    heirs: dict[str, set[str]] = {}
    for name in bases:
        above, left = set(), list(bases[name])
        while left:
            if (base := left.pop()) not in above:
                above.add(base)
                left += bases.get(base, ())
        for base in above:
            heirs.setdefault(base, set()).add(name)
    return heirs


# -- reading the source -----------------------------------------------------------------------------------------------


def _modules(name: str) -> Iterator[tuple[str, _Module]]:
    """The module, or all that a name ending in `*` stands for; nothing where there is no source to read."""
    top, _, rest = name.partition(".")
    spec = find_spec(top)  # of the package at the top, which alone can be found without importing another
    for place in (spec and spec.submodule_search_locations) or ():
        folder = Path(place)
        pattern = rest.replace(".", "/")
        files = folder.glob(f"{pattern.removesuffix('*')}**/*.py") if "*" in rest else [folder / f"{pattern}.py"]
        for file in files:
            parts = file.relative_to(folder).with_suffix("").parts
            module_name = ".".join((top, *(parts[:-1] if parts[-1] == "__init__" else parts)))
            if fnmatchcase(module_name, name) and file.is_file():
                yield module_name, _read(module_name, file)


@cache
def _read(name: str, file: Path) -> _Module:
    """The classes and functions that the source of the module `name` defines, or imports by name."""
    classes: dict[str, _Class] = {}
    functions = {}
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, ast.ClassDef):
            methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
            bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
            names = (ast.unparse(base).rpartition(".")[2] for base in bases)
            classes[node.name] = _Class(tuple(names), frozenset(methods))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name] = name
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            functions |= {one.asname or one.name: node.module for one in node.names}
    return _Module(classes, functions)


# -- what is most like it ---------------------------------------------------------------------------------------------


def _classes(functions: Iterable[Function]) -> set[str]:
    return {name for one in functions for name in (*one.owners, *one.heirs) if not name.endswith(".py")}


def _names(functions: list[Function]) -> set[str]:
    """Everything that a pattern may match."""
    of_classes = {f"{owner}.{one.name}" for one in functions for owner in one.owners}
    modules = {one.module.removeprefix(ENGINE) for one in functions}
    return _classes(functions) | of_classes | {one.name for one in functions} | modules


def _near(pattern: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that differ from the pattern in a few letters only, or in upper and lower case."""
    known: dict[str, list[str]] = {}
    for name in sorted(names):
        known.setdefault(name.lower(), []).append(name)
    like = get_close_matches(pattern.strip("*").lower(), known, _MOST_NEAR, 0.6)
    return tuple(name for one in like for name in known[one])[:_MOST_NEAR]
