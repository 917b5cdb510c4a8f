"""An expectation as plain data: arrows between lifelines, in the order in which they should happen."""

import html
import re
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Arrow", "ExpectError", "Expectation", "call_names", "plain_names"]

_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_ENTITY = re.compile(r"#(?:(\d+)|([A-Za-z]\w*));")
_CALL = re.compile(r"\s*(?:(?:no)?wrap:)?\s*(?:\d+[.)]\s+)?([^\W\d][\w.]*)", re.IGNORECASE)
_TOLD = re.compile(r"\s+→\s.*$|\s*×\s*[\d,]+\s*$")  # what came back, how often


class ExpectError(Exception):
    """A file in which no expectation can be found; `code` and `values` are the reason, for whoever words it."""

    def __init__(self, code: str, **values: Any) -> None:
        super().__init__(code, values)
        self.code = code
        self.values = values


@dataclass(frozen=True, slots=True)
class Arrow:
    """One call that is expected.

    Attributes:
        line: its line in the file, from 1.
        source: the names of the lifeline that makes the call; any of them will do.
        target: the names of the lifeline that is called.
        names: what the method may be called; an ending `…` stands for any rest.
        owner: the class that defines it, where that is given: `MPClient` of `MPClient.__init__`.
        held: what the caller calls it on, where that is an object it holds: `waiting` of `self.waiting.append`.
        text: how the file writes it, for messages to people.
        phase: the part of the run that it belongs to; empty where the file has none.
        needs: what it needs that not every run has: `mm` for multimodal input.
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
        lifelines: every lifeline of the file, by how the file calls it: the names it may have in a recording.
        partial: whether it is marked as leaving calls out, as the diagrams of a whole run do.
        number, of: which of how many diagrams of the file this is.
        line: where it begins.
    """

    arrows: list[Arrow]
    lifelines: dict[str, frozenset[str]] = field(default_factory=dict)
    partial: bool = False
    number: int = 1
    of: int = 1
    line: int = 1


def plain_names(label: str) -> frozenset[str]:
    """The names that a lifeline may have in a recording.

    `Worker(gpu_worker)` is `Worker`, `A<br/>B` is A or B, `api_server.py` the module `api_server`.
    """
    found = set()
    for part in _BREAK.split(label):
        name = unescape(part).strip().strip("\"'").strip()
        found |= {plain(name), plain(re.sub(r"\s*\(.*\)\s*$", "", name))}
    return frozenset(found - {""})


def plain(name: str) -> str:
    """A lifeline's name as names are compared: without the `.py` of a module."""
    return name.removesuffix(".py")


def unescape(text: str) -> str:
    """Mermaid's entities as the characters that they show: `#59;` is `;`, `#quot;` is `"`."""

    def character(found: re.Match[str]) -> str:
        if found[1]:
            code = int(found[1])
            return chr(code) if code < 0x110000 else found[0]
        shown = html.unescape(f"&{found[2]};")
        return found[0] if shown.startswith("&") and len(shown) > 1 else shown

    return _ENTITY.sub(character, text)


def call_names(text: str) -> tuple[tuple[str, ...], str, str]:
    """The names in `MPClient.__init__(x) ×3`: those of the method, the class that defines it, the object that has it.

    No names where the text is no call, as `return` is none.
    """
    whole = _TOLD.sub("", text).partition("(")[0].strip()
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
