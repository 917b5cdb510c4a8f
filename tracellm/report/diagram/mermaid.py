"""A `Diagram` as Mermaid text, valid for any content.

Mermaid has no quoting: a `;` or `#` in a message, `%%`, or a word such as `style` in the wrong place ends or changes
the statement. It has entities, `#59;` for `;`, which it shows as the character; `escape` writes them. Syntax:
https://mermaid.js.org/syntax/sequenceDiagram.html
"""

import re
from collections.abc import Iterable, Iterator
from textwrap import wrap

from tracellm.report.diagram.model import Close, Diagram, Item, Loop, Message, Note, Participant
from tracellm.report.wording.safe_text import visible

__all__ = ["NOTE_WIDTH", "escape", "to_mermaid"]

NOTE_WIDTH = 48
"""Characters in a line of a note: Mermaid does not break lines by itself."""

_ARROWS = {"call": "->>", "return": "-->>", "error": "--x", "message": "-)"}

_UNSAFE = re.compile(
    r"""["#$%&;<>@`\\]"""  # separators, comments, entities, markup, formulas; `@{` configures a lifeline
    r"|[\ufb02\u00b6]"  # marks that Mermaid itself puts in place of an entity
    r"|(?i:(?<=styl)e|(?<=classde)f)"  # of a line with `style...:` and an entity, Mermaid cuts off the last `;`
    r"|^\s|\s$|\A:|(?i:\Awrap|\Anowrap)",  # blanks at the ends are trimmed, `wrap:` at the start is an option
)


def escape(text: str) -> str:
    """Return `visible(text)` on one line, with Mermaid's syntax written as entities."""
    return _UNSAFE.sub(lambda found: f"#{ord(found[0][0])};{found[0][1:]}", visible(text))


def to_mermaid(diagram: Diagram) -> str:
    """Return the diagram as Mermaid source, ending in a newline."""
    return "\n".join(_lines(diagram)) + "\n"


def _lines(diagram: Diagram) -> Iterator[str]:
    yield "sequenceDiagram"
    if diagram.remark:
        yield f"    %% {visible(diagram.remark)}"
    declared = {participant.id: f"participant {_declared(participant)}" for participant in diagram.participants}
    if diagram.boxes:
        for box in diagram.boxes:
            # without a colour, Mermaid would take the label's first word for one
            yield f"    box transparent {escape(box.label)}"
            yield from (f"        {declared[id]}" for id in box.participants)
            yield "    end"
    else:
        yield from (f"    {line}" for line in declared.values())
    yield from _item_lines(diagram.items, "    ")


def _declared(participant: Participant) -> str:
    if participant.below:
        return f"{participant.id} as {escape(participant.label)}<br/>{escape(participant.below)}"
    return participant.id if participant.id == participant.label else f"{participant.id} as {escape(participant.label)}"


def _item_lines(items: Iterable[Item], indent: str) -> Iterator[str]:
    for item in items:
        match item:
            case Message():
                sign = "+" if item.opens else "-" if item.closes else ""
                yield f"{indent}{item.source}{_ARROWS[item.kind]}{sign}{item.target}: {escape(item.text)}"
            case Close():
                yield f"{indent}deactivate {item.participant}"
            case Note():
                over = item.first if item.first == item.last else f"{item.first},{item.last}"
                lines = [item.text] if item.phase else wrap(visible(item.text), NOTE_WIDTH)
                yield f"{indent}Note over {over}: {'<br/>'.join(map(escape, lines))}"
            case Loop():
                yield f"{indent}loop {escape(item.text)}"
                yield from _item_lines(item.items, indent + "    ")
                yield f"{indent}end"
