"""Facts of a request's images and sounds, read from its span: place in the prompt, size, patches, small picture."""

import json
import re
from dataclasses import dataclass
from math import isqrt
from typing import Any

from tracellm.trace import names
from tracellm.trace.model import Span

__all__ = ["Item", "read_items"]

_PICTURE = re.compile(r"data:image/(?:jpeg|png);base64,[A-Za-z0-9+/]+={0,2}")
_MOST_CHARACTERS = 6_144
_MOST_SQUARES = 65_536


@dataclass(frozen=True, slots=True)
class Item:
    """One image or sound; what was not recorded is None or empty.

    Attributes:
        modality: image or audio.
        offset: position of its first token in the prompt.
        length: number of its tokens.
        identifier: first 12 characters of its identifier.
        size: width and height of an image in pixels.
        seconds: length of a sound.
        grid: rows and columns of an image's tokens: one for each square of merged patches.
        picture: data URL of a small picture.
        cached: whether the front end had processed it before.
    """

    modality: str
    offset: int
    length: int
    identifier: str
    size: tuple[int, int] | None = None
    seconds: float | None = None
    grid: tuple[int, int] | None = None
    picture: str = ""
    cached: bool | None = None

    @property
    def end(self) -> int:
        """Position after its last token."""
        return self.offset + self.length


def read_items(span: Span) -> tuple[Item, ...]:
    """Return the items of a request's span."""
    listed, pictures = span.attributes.get(names.REQUEST_ITEMS), span.attributes.get(names.REQUEST_PICTURES)
    if not isinstance(listed, list):
        return ()
    shown = pictures if isinstance(pictures, list) else []
    return tuple(_item(text, shown[i] if i < len(shown) else "") for i, text in enumerate(listed))


def _item(text: Any, picture: Any) -> Item:
    try:
        values = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        values = None
    values = values if isinstance(values, dict) else {}
    size, patches = _naturals(values.get("size"), 2), _naturals(values.get("patches"), 3)
    (offset, length) = _naturals([values.get("offset"), values.get("length")], 2) or (0, 0)
    seconds, cached = values.get("seconds"), values.get("cached")
    return Item(
        modality=str(values.get("modality", "?")),
        offset=offset,
        length=length,
        identifier=str(values.get("identifier", "")),
        size=(size[0], size[1]) if size and min(size) else None,
        seconds=float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None,
        grid=_grid(patches, length) if patches else None,
        picture=picture if _is_picture(picture) else "",
        cached=cached if isinstance(cached, bool) else None,
    )


def _naturals(values: Any, count: int) -> tuple[int, ...] | None:
    """Return as many natural numbers as expected, or None."""
    if not isinstance(values, list) or len(values) != count:
        return None
    return tuple(values) if all(type(value) is int and value >= 0 for value in values) else None


def _grid(patches: tuple[int, ...], length: int) -> tuple[int, int] | None:
    """Return rows and columns of tokens, if each token stands for a square of patches."""
    times, height, width = patches
    side = isqrt(height * width // length) if length else 0
    if times != 1 or not side or height % side or width % side:
        return None
    rows, columns = height // side, width // side
    return (rows, columns) if rows * columns == length <= _MOST_SQUARES else None


def _is_picture(picture: Any) -> bool:
    return isinstance(picture, str) and len(picture) <= _MOST_CHARACTERS and bool(_PICTURE.fullmatch(picture))
