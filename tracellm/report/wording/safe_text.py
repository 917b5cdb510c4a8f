"""Text that came from outside, made safe to look at: control characters are shown, never obeyed.

A prompt may hold escape sequences that would recolour a terminal, or marks that reverse the reading direction. Markup
is another matter: each renderer escapes its own.
"""

import unicodedata

__all__ = ["beginning", "shorten", "visible"]

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}
_UNSEEN = {"Cc", "Cs", "Zl", "Zp", "Cn"}
"""Unicode categories that have no picture: controls, lone surrogates, line separators, unassigned."""
_DIRECTION = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _seen(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if unicodedata.category(char) in _UNSEEN or char in _DIRECTION:
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char


def visible(text: str, *, keep: str = "") -> str:
    """`text` with every character that would act instead of showing written as its escape, except those in `keep`."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(char if char in keep else _seen(char) for char in text)


def shorten(text: str, most: int) -> str:
    """`text` if it has at most `most` characters, else its beginning and an ellipsis, `most` in all."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def beginning(text: str, most: int) -> str:
    """`visible(text)`, shortened to `most` characters; no more of the text is looked at than can be shown."""
    return shorten(visible(text[: most + 1]), most)
