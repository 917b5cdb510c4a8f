"""How much one span of the program's own may be told, so that one which lasts for days does not fill the memory.

The limits are those of OpenTelemetry's SDK, by its variables: 128 attributes, 128 events, 128 links; beyond them the
oldest goes, and is counted. A span of the bare API (api_span.py) keeps what it is told in these.
"""

import os
from collections import deque
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

__all__ = ["LimitedAttributes", "LimitedList", "most"]

T = TypeVar("T")

_DEFAULT = 128


def most(*variables: str) -> int | None:
    """What the first of these environment variables says that is set; None, no limit, where it is empty.

    A limit that is no number is the SDK's to refuse, and counts as not set.
    """
    for variable in variables:
        told = os.environ.get(variable)
        if told is not None and not told.strip():
            return None
        if told is not None and told.strip().isdecimal():
            return int(told)
    return _DEFAULT


class LimitedList(Generic[T]):
    """The last so many that were added; `dropped` counts the others."""

    def __init__(self, limit: int | None) -> None:
        self.kept: deque[T] = deque(maxlen=limit)
        self.dropped = 0

    def append(self, one: T) -> None:
        """Add one."""
        self.dropped += len(self.kept) == self.kept.maxlen
        self.kept.append(one)


class LimitedAttributes:
    """The last so many attributes that were set for the first time; `dropped` counts the others."""

    def __init__(self, limit: int | None) -> None:
        self.kept: dict[str, Any] = {}
        self.dropped = 0
        self._limit = limit

    def update(self, attributes: Mapping[str, Any]) -> None:
        """Set these."""
        for key, value in attributes.items():
            if key not in self.kept and self._limit is not None and len(self.kept) >= self._limit:
                self.dropped += 1
                if not self.kept:
                    continue
                del self.kept[next(iter(self.kept))]
            self.kept[key] = value
