"""Images and sounds of requests in words: size, squares, tokens, and origin of their embeddings."""

from tracellm.report.facts.items.item import Item
from tracellm.report.facts.items.uses import Source
from tracellm.report.texts import text, texts
from tracellm.report.wording.safe_text import visible

__all__ = ["item_facts", "item_source", "item_title"]


def item_title(item: Item, index: int, lang: str) -> str:
    """Return the item's name in its request, and its kind; a kind without a text is returned as it is."""
    key = f"page.item.{item.modality}"
    return text(lang, key, item=index) if key in texts(lang) else f"mm_features[{index}]: {visible(item.modality)}"


def item_facts(item: Item, lang: str) -> list[str]:
    """Return size, squares and tokens of an item."""
    facts = []
    if item.size is not None:
        facts.append(text(lang, "page.item.size", width=item.size[0], height=item.size[1]))
    if item.seconds is not None:
        facts.append(text(lang, "page.item.seconds", seconds=f"{item.seconds:.3g}"))
    if item.grid is not None:
        facts.append(text(lang, "page.item.grid", rows=item.grid[0], columns=item.grid[1]))
    if item.length:
        facts.append(text(lang, "page.item.tokens", n=item.length, first=item.offset, last=item.end - 1))
    return facts


def item_source(step: int, source: Source, lang: str) -> str:
    """Return the origin of an item's embeddings in a step."""
    return text(lang, f"page.item.{source}", n=step)
