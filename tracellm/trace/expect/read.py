"""Finds an expectation in a file: a table, a Mermaid file, or a page of Markdown or reStructuredText with diagrams.

What a file holds is seen by its content, not by its name. Of a page with several sequence diagrams one is meant:
`FILE#2` is the second. Diagrams of another kind, such as flowcharts, do not count.
"""

import re
from pathlib import Path

from tracellm.trace.expect.arrows import Expectation, ExpectError
from tracellm.trace.expect.mermaid import read_mermaid
from tracellm.trace.expect.table import is_table, read_table

__all__ = ["read"]

_Lines = list[tuple[int, str]]

_FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*\{?\s*mermaid\b", re.IGNORECASE)
_DIRECTIVE = re.compile(r"(\s*)\.\.\s+mermaid::\s*$")
_KIND = re.compile(r"sequenceDiagram\b")
_LARGEST = 10_000_000  # characters: more is no file that a person wrote


def read(path: str) -> Expectation:
    """The expectation in a file; `path#2` is the second diagram in it.

    Raises:
        ExpectError: there is no such file, or nothing in it that can be expected.
    """
    name, number = path, None
    if not Path(path).exists() and (found := re.fullmatch(r"(.+)#(\d+)", path)):
        name, number = found[1], int(found[2])
    try:
        with open(name, encoding="utf-8-sig") as file:
            lines = file.read(_LARGEST).splitlines()
    except FileNotFoundError:
        raise ExpectError("missing", path=name) from None
    except UnicodeDecodeError:
        raise ExpectError("no_text", path=name) from None
    except (OSError, ValueError) as error:
        raise ExpectError("unreadable", path=name, reason=getattr(error, "strerror", None) or error) from None
    if not any(line.strip() for line in lines):
        raise ExpectError("empty", path=name)
    try:
        expectation = _diagram(lines, number)
    except ExpectError as error:
        raise ExpectError(error.code, **{**error.values, "path": name}) from None
    if not expectation.arrows:
        raise ExpectError("no_calls", path=name)
    return expectation


def _diagram(lines: list[str], number: int | None) -> Expectation:
    diagrams = [shown for shown in _diagrams(lines) if shown]
    if not diagrams:
        if is_table(lines):
            return read_table(lines)
        raise ExpectError("no_diagram")
    if number is not None and not 1 <= number <= len(diagrams):
        raise ExpectError("no_such_diagram", number=number, count=len(diagrams))
    expectation = read_mermaid(diagrams[(number or 1) - 1])
    expectation.number, expectation.of = number or 1, 1 if number else len(diagrams)
    return expectation


def _diagrams(lines: list[str]) -> list[_Lines]:
    """The lines of each sequence diagram after its first."""
    numbered = list(enumerate(lines, 1))
    blocks = _blocks(numbered)
    return [found for block in (blocks or [numbered]) if (found := _after_kind(block))]


def _blocks(numbered: _Lines) -> list[_Lines]:
    """The contents of fences and directives."""
    found: list[_Lines] = []
    rest = iter(numbered)
    held: tuple[int, str] | None = None
    while (here := held or next(rest, None)) is not None:
        held = None
        line = here[1]
        if fence := _FENCE.match(line):
            block: _Lines = []
            for number, inside in rest:
                if inside.strip().startswith(fence[1]):
                    break
                block.append((number, inside))
            found.append(block)
        elif directive := _DIRECTIVE.match(line):
            block = []
            for number, inside in rest:
                if inside.strip() and len(inside) - len(inside.lstrip()) <= len(directive[1]):
                    held = number, inside
                    break
                block.append((number, inside))
            found.append(block)
    return found


def _after_kind(block: _Lines) -> _Lines:
    """The text after `sequenceDiagram`; nothing when the diagram is of another kind."""
    in_front_matter = False
    for i, (_, line) in enumerate(block):
        said = line.strip()
        if said == "---":
            in_front_matter = not in_front_matter
        elif _KIND.match(said):
            return [(block[i][0], said[len("sequenceDiagram") :].lstrip(" ;")), *block[i + 1 :]]
        elif said and not in_front_matter and not said.startswith(("%%", ":")):
            return []
    return []
