"""Images and sounds of requests, for the page's Requests section and its script.

A picture is drawn with a square for each of its tokens, so its frame has their rows and columns. The page's script
draws the same (js/steps/items.js). Pictures come from the run; facts/items/item.py has checked that they are data URLs.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tracellm.report.facts.items.item import Item
from tracellm.report.facts.items.uses import ItemUse, item_uses
from tracellm.report.facts.items.wording import item_facts, item_source, item_title
from tracellm.report.facts.requests import RequestFacts, requests
from tracellm.report.texts import text
from tracellm.report.wording.safe_text import visible
from tracellm.trace.model import Trace
from tracellm.trace.ranges import format_ranges
from tracellm.trace.steps import EncoderState

__all__ = ["ItemRows", "encoder_row", "has_pictures", "item_views"]

MOST_ITEMS = 32
"""Items of one request."""
MOST_PICTURES = 256
"""Pictures that the script gets."""
_SIDES = 192, 320
"""Least and most of a picture's longest side on the page, in pixels."""
_SQUARE = 7
"""Pixels of a square, within these sides."""
_MOST_LINES = 80
"""Squares along a side that lines part; more are too small."""


def has_pictures(trace: Trace) -> bool:
    """Return whether an item of a request has a picture."""
    return any(item.picture for request in requests(trace.spans) for item in request.items)


def item_views(request: RequestFacts, uses: Sequence[ItemUse], lang: str) -> list[dict[str, Any]]:
    """Return the items of a request, each with its picture and its facts in words."""
    views = []
    for index, item in enumerate(request.items[:MOST_ITEMS]):
        use = uses[index] if index < len(uses) else ItemUse()
        facts = item_facts(item, lang)
        if use.blocks:
            facts.append(text(lang, "page.item.blocks", blocks=format_ranges(use.blocks)))
        facts += [item_source(*source, lang) for source in use.sources]
        if item.cached:
            facts.append(text(lang, "page.item.cached"))
        views.append(
            {"title": item_title(item, index, lang), "facts": facts, "picture": item.picture, "frame": _frame(item)}
        )
    return views


def _frame(item: Item) -> dict[str, Any] | None:
    """Return rows and columns of a picture's frame, its size on the page, and the lines between its squares."""
    if item.grid is not None:
        rows, columns = item.grid
        across, down = range(1, rows), range(1, columns)
        lines = "".join([*(f"M0 {y}H{columns}" for y in across), *(f"M{x} 0V{rows}" for x in down)])
        lines = lines if max(rows, columns) <= _MOST_LINES else ""
    elif item.size is not None and item.picture:
        (columns, rows), lines = item.size, ""
    else:
        return None
    scale = min(max(_SIDES[0], _SQUARE * max(rows, columns) if item.grid else 0), _SIDES[1]) / max(rows, columns)
    size = {"width": max(1, round(columns * scale)), "height": max(1, round(rows * scale))}
    return {"rows": rows, "columns": columns, "lines": lines, **size}


class ItemRows:
    """Items of requests as data for the script; equal pictures are kept once, in `pictures`."""

    def __init__(self, trace: Trace) -> None:
        self.pictures: list[str] = []
        self._uses = item_uses(trace)
        self._numbers: dict[str, int] = {}

    def rows(self, request: RequestFacts) -> list[dict[str, Any]]:
        """Return the rows of a request's items."""
        uses = self._uses.get(request.span_id, ())
        return [
            self._row(item, uses[index] if index < len(uses) else ItemUse())
            for index, item in enumerate(request.items[:MOST_ITEMS])
        ]

    def _row(self, item: Item, use: ItemUse) -> dict[str, Any]:
        row = {
            "kind": item.modality,
            "offset": item.offset,
            "length": item.length,
            "size": item.size,
            "seconds": item.seconds,
            "grid": item.grid,
            "picture": self._number(item.picture),
            "cached": item.cached,
            "sources": use.sources or None,
        }
        return {name: value for name, value in row.items() if value is not None}

    def _number(self, picture: str) -> int | None:
        """Return the index of a picture in `pictures`; None if there is none, or there are too many."""
        if picture and picture not in self._numbers and len(self.pictures) < MOST_PICTURES:
            self._numbers[picture] = len(self.pictures)
            self.pictures.append(picture)
        return self._numbers.get(picture)


def encoder_row(encoder: EncoderState, number: Callable[[str], int]) -> dict[str, Any]:
    """Return the encoder in a step as data for the script; `number` returns the row of a request."""
    return {
        "items": [[number(encoded.request_id), encoded.item, encoded.num_tokens] for encoded in encoder.items],
        "budget": encoder.budget,
        "size": encoder.cache_size,
        "free": encoder.cache_free,
        "freeable": encoder.cache_freeable,
        "evicted": [visible(identifier) for identifier in encoder.evicted],
    }
