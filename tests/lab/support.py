"""Folders of labs for the tests: reference, solutions of another style, mutants."""

import ast
from pathlib import Path

from tracellm.lab.folder import make_folder
from tracellm.lab.lab import Lab, Mutant
from tracellm.lab.source import put_bodies, take_bodies

SOLUTIONS = Path(__file__).parent / "solutions"


def folder_of(lab: Lab, path: Path, sources: dict[str, str] | None = None) -> Path:
    """Make a lab's folder with these texts by module; other files are the engine's."""
    make_folder(lab, path, "en", seed="0")
    for file in lab.files:
        (path / file.name).write_text((sources or {}).get(file.module, file.source()), encoding="utf-8")
    return path


def mutant_folder(lab: Lab, mutant: Mutant, path: Path) -> Path:
    """Make a lab's folder with the files of a mutant."""
    return folder_of(lab, path, {mutant.module: mutant.source(lab.file(mutant.module))})


def solutions(lab: Lab) -> list[Path]:
    """Return the folders with solutions in another style."""
    return sorted(path for path in (SOLUTIONS / lab.folder.name).glob("*") if path.is_dir())


def solution_folder(lab: Lab, solution: Path, path: Path) -> Path:
    """Make a lab's folder with a solution: its function bodies in the starters, everything else of it at their ends."""
    sources = {}
    for file in lab.files:
        text = (solution / file.name).read_text(encoding="utf-8")
        starter = put_bodies(file.starter(), take_bodies(text, file.functions))
        sources[file.module] = starter + "\n\n" + _others(text, file.functions)
    return folder_of(lab, path, sources)


def _others(text: str, functions: tuple[str, ...]) -> str:
    """Return the imports, helpers and constants of a solution."""
    kept = []
    for node in ast.parse(text).body:
        name = getattr(node, "name", None)
        is_written = name in functions or any(one.startswith(f"{name}.") for one in functions)
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_written and not is_docstring:
            kept.append(ast.get_source_segment(text, node) or "")
    return "\n\n".join(kept) + "\n"
