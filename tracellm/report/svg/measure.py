"""How wide a text is before any browser has seen it: estimates that err on the wide side."""

import re
import unicodedata

__all__ = ["text_width", "wrap"]

MONOSPACE = 0.61
"""Advance of a character of a monospaced font, in ems: 0.60 to 0.61 in the fonts that systems come with."""
WIDE = 1.0
"""Advance of a Chinese character, in ems; emoji are given a little more."""


def _advance(char: str) -> float:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0.0
    if ord(char) >= 0x1F000:
        return 1.3
    if unicodedata.east_asian_width(char) in "WF":
        return WIDE
    return MONOSPACE if ord(char) < 0x2000 else 0.9


def text_width(text: str, size: float) -> float:
    """Width in pixels of `text` in a monospaced font of `size` pixels."""
    return (MONOSPACE * len(text) if text.isascii() else sum(map(_advance, text))) * size


_PIECES = re.compile(r"\s+|[!-~…]*?[({=,;:)\]}>]+|[!-~…]+|.", re.DOTALL)
"""Where a line may break: at spaces, after punctuation, since labels are calls such as `f(a=1, b=[2, 3])`, and around
each character beyond ASCII."""


def wrap(text: str, size: float, widest: float, most_lines: int) -> tuple[list[str], bool]:
    """`text` in lines of at most `widest` pixels, and whether all of it is there.

    What does not fit in `most_lines` is cut, with an ellipsis.
    """
    lines, line = [], ""
    for piece in _PIECES.findall(text):
        while text_width(line + piece, size) > widest:
            if line.strip():
                lines.append(line.rstrip())
                line, piece = "", piece.lstrip()
                continue
            fits = max(1, sum(text_width(piece[: end + 1], size) <= widest for end in range(len(piece))))
            lines.append(piece[:fits])
            piece = piece[fits:]
        line += piece
    if line.strip() or not lines:
        lines.append(line.rstrip())
    if len(lines) <= most_lines:
        return lines, True
    last = lines[most_lines - 1]
    while last and text_width(last + "…", size) > widest:
        last = last[:-1]
    return [*lines[: most_lines - 1], last + "…"], False
