"""A module's source with functions emptied, and the way back.

`make_starter` replaces the bodies of the functions that a student writes. `put_bodies` fills bodies in again: with
those of the reference (`take_bodies`) the result is the engine's file, byte for byte.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["SourceError", "make_starter", "put_bodies", "take_bodies"]

_EMPTY = "raise NotImplementedError"
"""Body of an emptied function; a comment with its name follows."""

_REMOVED = "# removed: "
"""Comment in place of a removed helper; its name follows."""


class SourceError(Exception):
    """A function that a lab names is not in the module."""


@dataclass(frozen=True)
class _Cut:
    """Lines that a starter leaves out, and the line in their place; numbers from 0, `end` exclusive."""

    name: str
    start: int
    end: int
    placeholder: str


def make_starter(source: str, functions: Sequence[str], removed: Sequence[str] = ()) -> str:
    """Empty `functions`, keeping signatures and docstrings; remove the helpers `removed` entirely.

    Args:
        source: the module's text.
        functions: qualified names, such as `BlockPool.touch`.
        removed: qualified names of functions that only the emptied ones call.

    Raises:
        SourceError: a name is not in the module.
    """
    lines = source.splitlines(keepends=True)
    for cut in reversed(_cuts(source, functions, removed)):
        lines[cut.start : cut.end] = [cut.placeholder]
    return "".join(lines)


def take_bodies(source: str, functions: Sequence[str], removed: Sequence[str] = ()) -> dict[str, str]:
    """Return the text that `make_starter` leaves out, by qualified name.

    Raises:
        SourceError: a name is not in the module.
    """
    lines = source.splitlines(keepends=True)
    return {cut.name: "".join(lines[cut.start : cut.end]) for cut in _cuts(source, functions, removed)}


def put_bodies(starter: str, bodies: Mapping[str, str]) -> str:
    """Replace the placeholders of a starter by `bodies`.

    Raises:
        SourceError: the starter has no placeholder of this name.
    """
    lines = starter.splitlines(keepends=True)
    for name, body in bodies.items():
        found = [
            number for number, line in enumerate(lines) if line.strip() in (f"{_EMPTY}  # {name}", f"{_REMOVED}{name}")
        ]
        if len(found) != 1:
            raise SourceError(f"the starter has {len(found)} placeholders of {name}")
        lines[found[0]] = body
    return "".join(lines)


def _cuts(source: str, functions: Sequence[str], removed: Sequence[str]) -> list[_Cut]:
    """Return the cuts in order of their lines."""
    found = dict(_functions(ast.parse(source)))
    if missing := [name for name in (*functions, *removed) if name not in found]:
        raise SourceError(f"no such function: {', '.join(missing)}")
    lines = source.splitlines(keepends=True)
    cuts = [_body(found[name], name, lines) for name in functions]
    cuts += [_whole(found[name], name) for name in removed]
    return sorted(cuts, key=lambda cut: cut.start)


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return the functions of a module and of its classes by qualified name; of overloads the last."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, lines: list[str]) -> _Cut:
    first = function.body[0]
    docstring = ast.get_docstring(function, clean=False) is not None
    if docstring:
        assert first.end_lineno is not None
        start = first.end_lineno
    else:
        start = first.lineno - 1
        while lines[start - 1].strip().startswith("#"):  # comments above the first statement
            start -= 1
    assert function.end_lineno is not None
    indent = " " * first.col_offset
    return _Cut(name, start, function.end_lineno, f"{indent}{_EMPTY}  # {name}\n")


def _whole(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> _Cut:
    start = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)]) - 1
    assert function.end_lineno is not None
    return _Cut(name, start, function.end_lineno, f"{' ' * function.col_offset}{_REMOVED}{name}\n")
