"""The functions that a run called, as data for the page's section "Source" (js/source/functions.js).

Each has its calls, its lines where it is tracellm's own, and its counterparts in vLLM. Helpers that it calls in its own
file, and that the probes do not record, are listed too. Lines are read from the installed package, and only if it is
the version that was recorded. Code of other packages is never read.
"""

import ast
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tracellm import __version__
from tracellm.report.facts.counterparts import VLLM_VERSIONS, counterparts, module_of, ours_by_vllm, parameters
from tracellm.report.facts.requests import as_int, as_text
from tracellm.trace import names
from tracellm.trace.model import Trace

__all__ = ["helpers", "source_data"]

MOST_LINES = 80
"""Lines of one function; the page states how many more there are."""
MOST_CALLERS = 3
"""Lines of the user's script that called one function."""

_PACKAGE = Path(__file__).parents[2]

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class _Called:
    """A function that was called: its location, and its calls by the names of their spans."""

    file: str
    line: int
    spans: dict[str, int] = field(default_factory=dict)
    callers: dict[tuple[str, int, str], None] = field(default_factory=dict)


def source_data(trace: Trace, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the functions of a run's calls by their full names, in the order of their first calls.

    A function has `path`, `file`, `line`, `spans` (number of calls by span name) and `callers` (file, line, text). One
    of tracellm's engine also has `code` and `parameters`; one of vLLM has `ours`, its counterpart here. `vllm` holds
    the counterparts by version, `reason` is a code of the reason for none. Helpers of tracellm's functions follow, with
    `called_by`, the functions that call them, and no calls.
    """
    recorded = str(manifest.get("tracellm", "?"))
    same_version = recorded == __version__
    engine = _mapping(_mapping(manifest, "probes"), "engine")
    calls = _called(trace)
    keys = {name: _key(name, next(iter(called.spans))) for name, called in calls.items()}
    functions = {name: _row(name, keys[name], called, same_version=same_version) for name, called in calls.items()}
    _add_helpers(functions, keys)
    return {
        "recorded": recorded,
        "installed": __version__,
        "versions": VLLM_VERSIONS,
        "engine": {"name": str(engine.get("name", "")), "version": str(engine.get("version", ""))},
        "functions": functions,
    }


def _mapping(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _called(trace: Trace) -> dict[str, _Called]:
    found: dict[str, _Called] = {}
    for span in trace.spans:
        get = span.attributes.get
        name = get(names.CODE_FUNCTION)
        if not isinstance(name, str):
            continue
        called = found.get(name)
        if called is None:
            called = found[name] = _Called(as_text(get(names.CODE_FILE)) or "", as_int(get(names.CODE_LINE)) or 0)
        called.spans[span.name] = called.spans.get(span.name, 0) + 1
        file = as_text(get(names.CALLER_FILE))
        if file is not None and len(called.callers) < MOST_CALLERS:
            called.callers[file, as_int(get(names.CALLER_LINE)) or 0, as_text(get(names.CALLER_TEXT)) or ""] = None
    return found


def _row(name: str, key: str, called: _Called, *, same_version: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "path": _path(name, called.file),
        "file": called.file,
        "line": called.line,
        "spans": called.spans,
        "callers": list(called.callers),
    }
    own = _own(key)
    if own is not None and key != name:
        row["ours"] = own
    elif own is not None and same_version and _first_line(name) == called.line:
        row |= own
    return row | _counterparts(key)


def _add_helpers(functions: dict[str, dict[str, Any]], keys: Mapping[str, str]) -> None:
    """Add the helpers of the functions whose lines are shown, and the helpers of these.

    Args:
        functions: rows by full names.
        keys: keys in the table by full names; a function of vLLM has that of its counterpart in tracellm.
    """
    recorded = set(keys.values())
    waiting = [(name, key) for name, key in keys.items() if "code" in functions[name].get("ours", functions[name])]
    for name, key in waiting:
        for helper in helpers(key):
            if helper in functions:
                if "called_by" in functions[helper]:
                    functions[helper]["called_by"].append(name)
            elif helper not in recorded and not _is_recorded(helper) and (own := _own(helper)) is not None:
                calls: dict[str, Any] = {"spans": {}, "callers": [], "called_by": [name]}
                functions[helper] = {**own, **calls, **(_counterparts(helper) or {"reason": "helper"})}
                waiting.append((helper, helper))


def _is_recorded(name: str) -> bool:
    """Return whether the probes record a function of tracellm's engine."""
    return name in counterparts() and "helper" not in counterparts()[name]


def _path(name: str, file: str) -> str:
    """Return a full name without its module, as in the file's path, or else its last part."""
    module = module_of(file)
    return name.removeprefix(f"{module}.") if name.startswith(f"{module}.") else name.rpartition(".")[2]


def _key(name: str, span_name: str) -> str:
    """Return a function's key in the table: of one of vLLM by its name, or else by the class and method of its span."""
    if not name.startswith("vllm."):
        return name
    key = ours_by_vllm().get(name, name)
    if key.startswith("tracellm."):
        return key
    return _by_path().get(span_name, key)


@cache
def _by_path() -> dict[str, str]:
    """Return the functions of tracellm's engine by `Class.method`."""
    return {".".join(key.rsplit(".", 2)[1:]): key for key in reversed(counterparts()) if key.startswith("tracellm.")}


def _counterparts(key: str) -> dict[str, Any]:
    row = counterparts().get(key, {})
    versions = {version: row[version] for version in VLLM_VERSIONS if version in row}
    if versions:
        return {"vllm": versions, "calls": row["calls"]} if "calls" in row else {"vllm": versions}
    return {"reason": row["reason"]} if row else {}


# -- lines of tracellm's own functions ---------------------------------------------------------------------------------


@cache
def _own(name: str) -> dict[str, Any] | None:
    """Return the place, lines and parameters of a function of the installed tracellm; None if there is no such one."""
    found = _find(name)
    if found is None:
        return None
    path, node = found
    file = path.relative_to(_PACKAGE.parent).as_posix()
    lines = _source(path)[1][node.lineno - 1 : node.end_lineno]
    return {
        "path": _path(name, file),
        "file": file,
        "line": node.lineno,
        "code": textwrap.dedent("".join(lines[:MOST_LINES])),
        "more": max(0, len(lines) - MOST_LINES),
        "lines": len(lines),
        "parameters": parameters(node.args),
        "async": isinstance(node, ast.AsyncFunctionDef),
    }


def _first_line(name: str) -> int | None:
    """Return the line that a recording has of a function of the installed tracellm: that of its first decorator."""
    found = _find(name)
    return found and min(part.lineno for part in (found[1], *found[1].decorator_list))


@cache
def helpers(name: str) -> tuple[str, ...]:
    """Return the functions of the same file that a function of the installed tracellm calls or passes on.

    These are functions of the module, and methods of the function's own class and of its bases in the file, by their
    full names.
    """
    found = _find(name)
    if found is None:
        return ()
    file, node = found
    tree = _source(file)[0]
    module = module_of(file.relative_to(_PACKAGE.parent).as_posix())
    owner = name.removeprefix(f"{module}.").rpartition(".")[0]
    paths: dict[str, None] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(_inside(tree, part.id), _Function):
            paths[part.id] = None
        elif isinstance(part, ast.Attribute) and ast.unparse(part.value) in ("self", "cls"):
            path = _method(tree, owner, part.attr)
            if path is not None:
                paths[path] = None
    return tuple(f"{module}.{path}" for path in paths if f"{module}.{path}" != name)


def _method(tree: ast.Module, owner: str, name: str) -> str | None:
    """Return the path of a method of a class, or of a base of it in the same file; None for a property."""
    node = _inside(tree, owner)
    if not isinstance(node, ast.ClassDef):
        return None
    if isinstance(method := _inside(node, name), _Function):
        is_property = any("property" in ast.unparse(decorator) for decorator in method.decorator_list)
        return None if is_property else f"{owner}.{name}"
    bases = (base.id for base in node.bases if isinstance(base, ast.Name) and base.id != owner)
    return next((path for base in bases if (path := _method(tree, base, name))), None)


def _find(name: str) -> tuple[Path, _Function] | None:
    """Return the file of a function of the installed package, and its node; the name comes from a recording."""
    parts = name.split(".")
    if parts[0] != "tracellm" or not all(part.isidentifier() for part in parts):
        return None
    for end in range(len(parts) - 1, 0, -1):
        base = _PACKAGE.joinpath(*parts[1:end])
        for file in (base.with_suffix(".py"), base / "__init__.py"):
            if end > 1 and file.is_file():
                node: ast.AST | None = _source(file)[0]
                for part in parts[end:]:
                    node = _inside(node, part)
                return (file, node) if isinstance(node, _Function) else None
    return None


def _inside(node: ast.AST | None, name: str) -> ast.AST | None:
    """Return the class or function `name` in a module or class."""
    body = getattr(node, "body", ())
    return next((one for one in body if isinstance(one, ast.ClassDef | _Function) and one.name == name), None)


@cache
def _source(file: Path) -> tuple[ast.Module, list[str]]:
    text = file.read_text(encoding="utf-8")
    return ast.parse(text), text.splitlines(keepends=True)
