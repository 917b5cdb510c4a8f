"""Reads a Mermaid sequence diagram as an expectation: the calls, and who they are between.

Solid arrows are calls. Dotted ones are returns, and so is an arrow labelled `return`. Boxes, loops, alternatives,
notes and activations change nothing: what stands in a loop is expected once. A note that names a phase, as `Start-up`
or `Generation` over all lifelines, begins it. Syntax: https://mermaid.js.org/syntax/sequenceDiagram.html
"""

import re

from tracellm.trace.expect.arrows import Arrow, Expectation, call_names, plain_names, unescape

__all__ = ["read_mermaid"]

_PARTICIPANT = re.compile(r"(?:create\s+)?(?:participant|actor)\s+(.+)", re.IGNORECASE)
_ALIAS = re.compile(r"\s+as\s+", re.IGNORECASE)
_NOTE = re.compile(r"note\s+(?:over|left of|right of)\s+[^:]*:(.*)", re.IGNORECASE)
_MESSAGE = re.compile(
    r"(?P<source>[^\s:;<>+-](?:[^:;<>]*?))\s*"
    r"(?P<arrow><<-->>|<<->>|-->>|->>|--x|-x|--\)|-\)|-->|->)\s*"
    r"[+-]?\s*(?P<target>[^:;<>]+?)\s*:(?P<text>.*)"
)
_COMMENT = re.compile(r"(?:^|\s)%%.*$|#(?!\w+;).*$")
_LEFT_OUT = re.compile(r"\s*%%.*`tracellm show RUN sequence`")  # the mark of our own diagrams that leave calls out
_PHASES = {
    "startup": re.compile(r"start|启动|load", re.IGNORECASE),
    "generate": re.compile(r"generat|生成", re.IGNORECASE),
}


def read_mermaid(lines: list[tuple[int, str]]) -> Expectation:
    """The expectation of a diagram's lines, each with its number, from `sequenceDiagram` on."""
    lifelines: dict[str, frozenset[str]] = {}
    arrows: list[Arrow] = []
    phase = ""
    for number, line in lines:
        for statement in _statements(line):
            if declared := _PARTICIPANT.fullmatch(statement):
                name, *alias = _ALIAS.split(declared[1].partition("@{")[0].strip(), maxsplit=1)
                lifelines[name.strip()] = plain_names(alias[0]) | plain_names(name) if alias else plain_names(name)
            elif note := _NOTE.fullmatch(statement):
                phase = next((name for name, says in _PHASES.items() if says.search(note[1])), phase)
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
    """The statements of a line: `;` ends one unless it ends an entity, `%%` and `#` begin a comment."""
    without = _COMMENT.sub("", line)
    parts, begin = [], 0
    for found in re.finditer(r"(#\w+;)|;", without):
        if not found[1]:
            parts.append(without[begin : found.start()])
            begin = found.end()
    return [part.strip() for part in (*parts, without[begin:]) if part.strip()]
