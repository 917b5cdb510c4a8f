"""What users tell of calls under way, through OpenTelemetry's current span: kept until the calls end.

A part of the builder (build.py), in the process where spans are made.
"""

from collections import deque
from collections.abc import Callable

from tracellm.probes.otel.told import attributes_of, event_of, link_of
from typing import Any

Told = Any
from tracellm.trace.model import Span

__all__ = ["Notes"]

_MOST = 50_000  # of half a kilobyte each


class Notes:
    """Of the attributes, events and links told of calls that have not ended, the last ones.

    Of a call that has ended nothing more can be told, yet some tell: not all may be kept for ever.

    Attributes:
        of: by the number of the call.
        let_go: how many were not kept.
    """

    def __init__(self) -> None:
        self.of: dict[int, deque[Told]] = {}
        self.let_go = 0
        self._count = 0

    def keep(self, call: int, told: Told) -> None:
        """Until this call ends."""
        self.of.setdefault(call, deque()).append(told)
        self._count += 1
        if self._count > _MOST:
            first, oldest = next(iter(self.of.items()))
            oldest.popleft()
            self._count -= 1
            self.let_go += 1
            if not oldest:
                del self.of[first]

    def add_to(self, span: Span, call: int, wall: Callable[[int], int], text: bool) -> None:
        """Add what was told of this call to its span: nothing that the recording says itself is replaced by it."""
        notes = self.of.pop(call)
        self._count -= len(notes)
        own = dict(span.attributes)
        for one in notes:
            span.attributes.update(attributes_of(one.attributes, text))
            if one.event is not None:
                name, attributes, time, is_wall = one.event
                span.events.append(event_of(name, attributes, time if is_wall else wall(time), text))
            if one.link is not None:
                span.links.append(link_of(*one.link, text))
        span.attributes.update(own)
