"""Text from outside, made safe to show: control characters are escaped.

A prompt may have escape sequences that would recolour a terminal, or marks that reverse the reading direction. Markup
is escaped by each renderer.
"""

import unicodedata

__all__ = ["beginning", "shorten", "visible"]

_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"}
_UNSEEN = {"Cc", "Cs", "Zl", "Zp", "Cn"}
"""Unicode categories without a visible character: controls, lone surrogates, line separators, unassigned."""
_DIRECTION = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _seen(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if unicodedata.category(char) in _UNSEEN or char in _DIRECTION:
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return char


def visible(text: str, *, keep: str = "") -> str:
    """Return `text` with the escapes of all characters that would act instead of showing, except those in `keep`."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(char if char in keep else _seen(char) for char in text)


def shorten(text: str, most: int) -> str:
    """Return `text`, cut to `most` characters, the ellipsis included."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def beginning(text: str, most: int) -> str:
    """Return `visible(text)`, cut to `most` characters; only the beginning of a long text is examined."""
    return shorten(visible(text[: most + 1]), most)
