"""Repetition in a list of siblings, decided on the digests of their subtrees alone; `fold.py` acts on it.

Two neighbours are alike if their digests are the same (`nodes.Shape`). They are also alike if they are the same call,
and one made all direct calls of the other and more. For example, allocating a slot takes a new block only sometimes,
and is still the same work. Runs of alike calls are found first, then sequences of them within a window, the shortest
first; then sequences of those, until there are none.

The time is linear in the siblings, times the nesting depth of repetition: at most the logarithm of their number.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tracellm.report.tree.nodes import Shape

__all__ = ["LONGEST_SEQUENCE", "Part", "Several", "repetition"]

LONGEST_SEQUENCE = 8
"""Longest repeated sequence, in calls: the window of the search."""


@dataclass(frozen=True, slots=True)
class Several:
    """Parts of a list that become one node: merged into one another, or a round of a sequence."""

    parts: tuple["Part", ...]
    merged: bool


Part = int | Several
"""A sibling, by its index in the list, or several that become one."""


@dataclass(frozen=True, slots=True)
class _Item:
    """One item of the list: its digest for comparison, and its part."""

    shape: Shape | None
    """None for an item without a digest: several different siblings combined."""
    key: Hashable
    made: frozenset[Hashable]
    apart: bool
    part: Part


def repetition(siblings: Sequence[Shape]) -> list[Part] | None:
    """Return the parts that siblings with these digests become, in order, or None if nothing repeats."""
    items = _runs(siblings)
    length = 2
    while length <= min(LONGEST_SEQUENCE, len(items) // 2) and (length > 2 or _may_repeat(items)):
        before = len(items)
        items = _sequences(items, length)
        length = length + 1 if len(items) == before else 2  # a folded sequence may be part of a shorter one
    return None if len(items) == len(siblings) else [item.part for item in items]


def _runs(siblings: Sequence[Shape]) -> list[_Item]:
    """Fold runs of alike calls."""
    items: list[_Item] = []
    at = 0
    while at < len(siblings):
        first = siblings[at]
        made, same, end = first.made, True, at + 1
        while end < len(siblings) and not first.apart:
            shape = siblings[end]
            if shape is not siblings[end - 1]:
                if shape.key != first.key or not _alike(made, shape.made):
                    break
                made |= shape.made
                same = False
            end += 1
        part = at if end == at + 1 else Several(tuple(range(at, end)), merged=True)
        items.append(_Item(first if same else None, first.key, made, first.apart, part))
        at = end
    return items


def _sequences(items: Sequence[_Item], length: int) -> list[_Item]:
    """Fold each sequence of `length` items that is repeated in a row."""
    found: list[_Item] = []
    at = 0
    while at < len(items):
        rounds = _rounds(items, at, length)
        if rounds == 1:
            found.append(items[at])
            at += 1
        else:
            end = at + rounds * length
            round_parts = [
                Several(tuple([item.part for item in items[i : i + length]]), merged=False)
                for i in range(at, end, length)
            ]
            keys = tuple([item.key for item in items[at : at + length]])
            part = Several(tuple(round_parts), merged=True)
            found.append(_Item(None, ("repeat", keys), frozenset(keys), apart=False, part=part))
            at = end
    return found


def _rounds(items: Sequence[_Item], at: int, length: int) -> int:
    """Count how often the sequence of `length` items at `at` occurs in a row: 1 if it is not repeated."""
    index = at + length
    while index < len(items) and _same(items[at + (index - at) % length], items[index]):
        index += 1
    return max(1, (index - at) // length)


def _same(a: _Item, b: _Item) -> bool:
    if a.apart or b.apart:
        return False
    if a.shape is b.shape and a.shape is not None:
        return True
    return a.key == b.key and _alike(a.made, b.made)


def _alike(some: frozenset[Hashable], others: frozenset[Hashable]) -> bool:
    """Return whether two nodes of one call made the same calls, or one made those of the other and more."""
    return some == others or (bool(some) and bool(others) and (some <= others or others <= some))


def _may_repeat(items: Sequence[_Item]) -> bool:
    """Return whether something occurs twice within the window; in most lists nothing does."""
    last: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        if index - last.get(item.key, -LONGEST_SEQUENCE - 1) <= LONGEST_SEQUENCE:
            return True
        last[item.key] = index
    return False
