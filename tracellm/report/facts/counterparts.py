"""Counterparts in vLLM of the functions that a run called: file, class, line and parameters, in two versions.

counterparts.json is made from both versions' sources by scripts/vllm_sources.py; it holds no text of vLLM. The report's
section "Source" shows it, and the section on the client names the files of its classes.
"""

import ast
import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["VLLM_VERSIONS", "counterparts", "files_of", "module_of", "ours_by_vllm", "parameters"]

VLLM_VERSIONS = ("0.11.1", "0.32.0")
"""Versions in the table; the first is the one whose names tracellm's engine has."""


@cache
def counterparts() -> dict[str, dict[str, Any]]:
    """Return the table: by a function's full name, its row.

    A row has, for each version that has the function, `file`, `name`, `line`, `lines`, `parameters`, `async` if it is
    a coroutine, and `part` if the function has ours as a part; or else the `reason` why there is none. `calls` has the
    names that the last version calls and the first one does not (`added`), and the reverse (`removed`). Functions that
    only vLLM has are listed by their names there.
    """
    found: dict[str, dict[str, Any]] = json.loads(
        resources.files("tracellm.report.facts").joinpath("counterparts.json").read_text(encoding="utf-8")
    )
    return found


@cache
def ours_by_vllm() -> dict[str, str]:
    """Return the key in `counterparts` of each function of vLLM, by its name in recordings of either version."""
    found: dict[str, str] = {}
    for key, row in counterparts().items():
        for version in VLLM_VERSIONS:
            if version in row and not row[version].get("part"):
                first, *others = row[version]["name"].split(".")
                name = ".".join([first, *others[-1:]])  # a nested function is recorded without the one around it
                found.setdefault(f"{module_of(row[version]['file'])}.{name}", key)
    return found


def module_of(file: str) -> str:
    """Return the name of the module in a file, `a/b.py` or `a/b/__init__.py`."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def files_of(owners: Iterable[str], version: str) -> dict[str, list[str]]:
    """Return the files of vLLM that have these classes and functions, each with its own.

    Args:
        owners: names of classes, or of functions outside of classes.
        version: one of VLLM_VERSIONS.
    """
    homes: dict[str, str] = {}
    for row in counterparts().values():
        if version in row:
            homes.setdefault(row[version]["name"].partition(".")[0], row[version]["file"])
    files: dict[str, list[str]] = {}
    for owner in owners:
        files.setdefault(homes[owner], []).append(owner)
    return files


def parameters(args: ast.arguments) -> list[str]:
    """Return a function's parameters as in the table: `name=` has a default, and those after `*` need their names."""
    positional = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    first = len(positional) - len(args.defaults)
    found = [f"{name}=" if i >= first else name for i, name in enumerate(positional)]
    if args.vararg or args.kwonlyargs:
        found.append(f"*{args.vararg.arg if args.vararg else ''}")
    found += [f"{arg.arg}=" if value else arg.arg for arg, value in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    return [*found, f"**{args.kwarg.arg}"] if args.kwarg else found
