"""An expectation of a run, and its readers: a Mermaid sequence diagram, or a table, in a file.

An expectation is arrows between lifelines, in the order in which the calls should happen. A file is recognized by its
content: a tab-separated table, a Mermaid file, or a page of Markdown or reStructuredText with diagrams. `FILE#2` is the
second sequence diagram of a page; diagrams of another kind, such as flowcharts, do not count.

Mermaid: solid arrows are calls. Dotted arrows, and those labelled `return`, are returns. Boxes, loops, alternatives,
notes and activations change nothing: a call in a loop is expected once. A note that names a phase, such as `Start-up`
or `Generation`, begins it. Syntax: https://mermaid.js.org/syntax/sequenceDiagram.html

Table: one call per line, the columns named in the first line. `from`, `to` and `call` are required. Of several columns
that begin with `call`, the one named `call` counts, or else the last. `phase` and `needs` are optional; other columns
are for people.
"""

import html
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "Arrow",
    "ExpectError",
    "Expectation",
    "call_names",
    "is_table",
    "plain_names",
    "read",
    "read_mermaid",
    "read_table",
]


_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_ENTITY = re.compile(r"#(?:(\d+)|([A-Za-z]\w*));")
_CALL = re.compile(r"\s*(?:(?:no)?wrap:)?\s*(?:\d+[.)]\s+)?([^\W\d][\w.]*)", re.IGNORECASE)
_ANNOTATION = re.compile(r"\s+→\s.*$|\s*×\s*[\d,]+\s*$")  # result, or number of times


class ExpectError(Exception):
    """A file without a readable expectation; `code` and `values` give the reason; the caller makes the sentence."""

    def __init__(self, code: str, **values: Any) -> None:
        super().__init__(code, values)
        self.code = code
        self.values = values


@dataclass(frozen=True, slots=True)
class Arrow:
    """One expected call.

    Attributes:
        line: its line in the file, from 1.
        source: names of the calling lifeline; any of them matches.
        target: names of the called lifeline.
        names: names of the method; a final `…` stands for any rest.
        owner: the class that defines it, if given: `MPClient` of `MPClient.__init__`.
        held: the caller's object it is called on, if given: `waiting` of `self.waiting.append`.
        text: the text in the file, for messages.
        phase: the part of the run; empty if the file has none.
        needs: a requirement that not every run meets: `mm` for multimodal input.
    """

    line: int
    source: frozenset[str]
    target: frozenset[str]
    names: tuple[str, ...]
    owner: str = ""
    held: str = ""
    text: str = ""
    phase: str = ""
    needs: str = ""


@dataclass(slots=True)
class Expectation:
    """The content of a file with an expectation.

    Attributes:
        arrows: the calls, in order.
        lifelines: the possible names in a recording of each lifeline, by its name in the file.
        partial: whether the diagram is marked as leaving calls out, as those of a whole run are.
        number, of: its number, and the number of diagrams in the file.
        line: its first line.
    """

    arrows: list[Arrow]
    lifelines: dict[str, frozenset[str]] = field(default_factory=dict)
    partial: bool = False
    number: int = 1
    of: int = 1
    line: int = 1


def plain_names(label: str) -> frozenset[str]:
    """Return the names that a lifeline may have in a recording.

    `Worker(gpu_worker)` is `Worker`, `A<br/>B` is A or B, `api_server.py` the module `api_server`.
    """
    found = set()
    for part in _BREAK.split(label):
        name = unescape(part).strip().strip("\"'").strip()
        found |= {plain(name), plain(re.sub(r"\s*\(.*\)\s*$", "", name))}
    return frozenset(found - {""})


def plain(name: str) -> str:
    """Return a lifeline's name without the `.py` of a module, as names are compared."""
    return name.removesuffix(".py")


def unescape(text: str) -> str:
    """Replace Mermaid's entities by their characters: `#59;` is `;`, `#quot;` is `"`."""

    def character(found: re.Match[str]) -> str:
        if found[1]:
            code = int(found[1])
            return chr(code) if code < 0x110000 else found[0]
        shown = html.unescape(f"&{found[2]};")
        return found[0] if shown.startswith("&") and len(shown) > 1 else shown

    return _ENTITY.sub(character, text)


def call_names(text: str) -> tuple[tuple[str, ...], str, str]:
    """Return the names of the method, of the class that defines it, and of the object that has it.

    The text is such as `MPClient.__init__(x) ×3`. There are no names if it is no call, such as `return`.
    """
    whole = _ANNOTATION.sub("", text).partition("(")[0].strip()
    found = _CALL.match(text)
    dotted = found[1].strip(".") if found else ""
    before, _, name = dotted.rpartition(".")
    if found and text[found.end() : found.end() + 1] == "…":
        name += "…"
    qualifier = before.rpartition(".")[2]
    names = tuple(dict.fromkeys(part for part in (name, whole.rpartition(".")[2].strip()) if part))
    if names[:1] == ("return",):
        return (), "", ""
    is_class = bool(qualifier) and qualifier.lstrip("_")[:1].isupper()
    return names, qualifier if is_class else "", "" if is_class or qualifier == "self" else qualifier


_PARTICIPANT = re.compile(r"(?:create\s+)?(?:participant|actor)\s+(.+)", re.IGNORECASE)
_ALIAS = re.compile(r"\s+as\s+", re.IGNORECASE)
_NOTE = re.compile(r"note\s+(?:over|left of|right of)\s+[^:]*:(.*)", re.IGNORECASE)
_MESSAGE = re.compile(
    r"(?P<source>[^\s:;<>+-](?:[^:;<>]*?))\s*"
    r"(?P<arrow><<-->>|<<->>|-->>|->>|--x|-x|--\)|-\)|-->|->)\s*"
    r"[+-]?\s*(?P<target>[^:;<>]+?)\s*:(?P<text>.*)"
)
_COMMENT = re.compile(r"(?:^|\s)%%.*$|#(?!\w+;).*$")
_LEFT_OUT = re.compile(r"\s*%%.*`tracellm show RUN sequence`")  # marks our own diagrams that leave calls out
_PHASES = {
    "startup": re.compile(r"start|启动|load", re.IGNORECASE),
    "generate": re.compile(r"generat|生成", re.IGNORECASE),
}


def read_mermaid(lines: list[tuple[int, str]]) -> Expectation:
    """Return the expectation of a diagram's numbered lines, from `sequenceDiagram` on."""
    lifelines: dict[str, frozenset[str]] = {}
    arrows: list[Arrow] = []
    phase = ""
    for number, line in lines:
        for statement in _statements(line):
            if declared := _PARTICIPANT.fullmatch(statement):
                name, *alias = _ALIAS.split(declared[1].partition("@{")[0].strip(), maxsplit=1)
                lifelines[name.strip()] = plain_names(alias[0]) | plain_names(name) if alias else plain_names(name)
            elif note := _NOTE.fullmatch(statement):
                phase = next((name for name, pattern in _PHASES.items() if pattern.search(note[1])), phase)
            elif message := _MESSAGE.fullmatch(statement):
                source, target = message["source"].strip(), message["target"].strip()
                for name in (source, target):
                    lifelines.setdefault(name, plain_names(name))
                text = unescape(message["text"]).strip()
                names, owner, held = call_names(text)
                if names and not message["arrow"].startswith(("--", "<<--")):
                    arrows.append(
                        Arrow(number, lifelines[source], lifelines[target], names, owner, held,
                              f"{source}->>{target}: {text}", phase)
                    )  # fmt: skip
    partial = any(_LEFT_OUT.match(line) for _, line in lines)
    return Expectation(arrows, lifelines, partial, line=lines[0][0] if lines else 1)


def _statements(line: str) -> list[str]:
    """Split a line into statements: `;` ends one unless it ends an entity, `%%` and `#` begin a comment."""
    without = _COMMENT.sub("", line)
    parts, begin = [], 0
    for found in re.finditer(r"(#\w+;)|;", without):
        if not found[1]:
            parts.append(without[begin : found.start()])
            begin = found.end()
    return [part.strip() for part in (*parts, without[begin:]) if part.strip()]


_IN_EVERY_RUN = {"", "text", "-"}


def is_table(lines: list[str]) -> bool:
    """Return whether this is a table: its first line that is not blank has tabs."""
    return "\t" in next((line for line in lines if line.strip() and not line.startswith("#")), "")


def read_table(lines: list[str]) -> Expectation:
    """Return the expectation of a table's lines.

    Raises:
        ExpectError: a column is missing, or a row is too short or has no call.
    """
    rows = [
        (number, [cell.strip() for cell in line.rstrip("\r\n").split("\t")])
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.startswith("#")
    ]
    header = [name.lower() for name in rows[0][1]]
    calls = [i for i, name in enumerate(header) if name.startswith("call")]
    missing = [name for name in ("from", "to") if name not in header] + ["call"] * (not calls)
    if missing:
        raise ExpectError("columns", missing=", ".join(missing), found=", ".join(header))
    source, target = header.index("from"), header.index("to")
    call = header.index("call") if "call" in header else calls[-1]
    optional = {name: header.index(name) for name in ("phase", "needs") if name in header}
    lifelines: dict[str, frozenset[str]] = {}
    arrows = []
    for number, cells in rows[1:]:
        if len(cells) <= max(source, target, call):
            raise ExpectError("row", line=number, cells=len(cells), needed=max(source, target, call) + 1)
        names, owner, held = call_names(cells[call])
        if not (names and cells[source] and cells[target]):
            raise ExpectError("row_empty", line=number)
        extra = {name: cells[i] if i < len(cells) else "" for name, i in optional.items()}
        for name in (cells[source], cells[target]):
            lifelines.setdefault(name, plain_names(name))
        arrows.append(
            Arrow(
                number,
                lifelines[cells[source]],
                lifelines[cells[target]],
                names,
                owner,
                held,
                f"{cells[source]} → {cells[target]}: {cells[call]}",
                extra.get("phase", ""),
                "" if extra.get("needs", "") in _IN_EVERY_RUN else extra["needs"],
            )
        )
    return Expectation(arrows, lifelines)


_Lines = list[tuple[int, str]]

_FENCE = re.compile(r"\s*(`{3,}|~{3,})\s*\{?\s*mermaid\b", re.IGNORECASE)
_DIRECTIVE = re.compile(r"(\s*)\.\.\s+mermaid::\s*$")
_KIND = re.compile(r"sequenceDiagram\b")
_LARGEST = 10_000_000  # characters: no file written by hand is longer


def read(path: str) -> Expectation:
    """Return the expectation in a file; `path#2` is the second diagram in it.

    Raises:
        ExpectError: there is no such file, or no expectation in it.
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
    diagrams = _diagrams(lines)
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
    """Return the lines of each sequence diagram after its first."""
    numbered = list(enumerate(lines, 1))
    blocks = _blocks(numbered)
    return [found for block in (blocks or [numbered]) if (found := _after_kind(block))]


def _blocks(numbered: _Lines) -> list[_Lines]:
    """Return the contents of fences and directives."""
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
    """Return the lines after `sequenceDiagram`, or none for a diagram of another kind."""
    in_front_matter = False
    for i, (_, line) in enumerate(block):
        content = line.strip()
        if content == "---":
            in_front_matter = not in_front_matter
        elif _KIND.match(content):
            return [(block[i][0], content[len("sequenceDiagram") :].lstrip(" ;")), *block[i + 1 :]]
        elif content and not in_front_matter and not content.startswith(("%%", ":")):
            return []
    return []
