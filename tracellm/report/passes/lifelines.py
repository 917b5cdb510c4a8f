"""Lifelines: in which order they stand, and by which id the diagram's text calls them.

The order keeps arrows short. Where a step is drawn, its lifelines stand as the step goes through them, from the user's
script to the sampler, and any other lifeline stands right of the one that first called it.
"""

import re
from collections.abc import Hashable, Sequence
from typing import TypeVar

__all__ = ["in_order", "readable_ids"]

_Key = TypeVar("_Key", bound=Hashable)

_WORD = re.compile(r"(?![xX])[A-Za-z]\w*[A-Za-z]\w*", re.ASCII)  # the x of `--x-xray` would be read as an arrow's
_KEYWORDS = re.compile(
    "acc|accdescr|acctitle|activate|actor|alt|and|as|autonumber|box|break|create|critical|deactivate|destroy|details|"
    "else|end|left|link|links|loop|note|nowrap|of|opt|option|over|par|par_over|participant|properties|rect|right|"
    "sequencediagram|title|wrap",
    re.IGNORECASE,
)
"""What Mermaid's sequence diagrams read as syntax."""
_PARTS = re.compile("style|classdef", re.IGNORECASE)  # Mermaid looks for these within a line, too


def in_order(calls: Sequence[tuple[_Key, _Key]], of_steps: Sequence[tuple[_Key, _Key]]) -> list[_Key]:
    """Every lifeline once.

    Args:
        calls: caller and callee of every call, in the order of the calls.
        of_steps: those of the calls that lead to the engine's steps or are part of one; without any, the order is that
            of the first calls.
    """
    order = list(dict.fromkeys(key for pair in of_steps or calls for key in pair))
    known = set(order)
    beside: dict[_Key, _Key] = {}  # the lifeline put next to a caller last
    for caller, callee in calls:
        if caller not in known:  # the root of another process, or of a thread
            known.add(caller)
            order.append(caller)
        if callee not in known:
            known.add(callee)
            order.insert(order.index(beside.get(caller, caller)) + 1, callee)
            beside[caller] = callee
    return order


def readable_ids(names: Sequence[str]) -> list[str]:
    """An id for each lifeline: its name, `hello_py` for `hello.py`; `P3` for the third where that would be syntax."""
    used: set[str] = set()
    ids = []
    for number, name in enumerate(names, 1):
        id = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
        if not _WORD.fullmatch(id) or _KEYWORDS.fullmatch(id) or _PARTS.search(id) or id in used:
            id = f"P{number}"
        used.add(id)
        ids.append(id)
    return ids
